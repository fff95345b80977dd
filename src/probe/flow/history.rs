//! Keeping history up to date: slots that a transaction still writing may touch are read again and replaced; the past
//! is filled in piece by piece, newest first. A row-wise watermark would lose late commits exactly in an incident, and
//! one future timestamp would stop it.

use super::arrivals::{Arrivals, Few, KEPT};
use super::read::{Answer, ROWS, Span, read};
use super::slots::{FINE, RECENT, Slots};
use crate::connect::{Fault, Session};
use crate::probe::queues::depth::BRANCHES;
use crate::queue::profile::Clock;
use crate::queue::{Branch, Instance};
use std::collections::BTreeMap;

/// Seconds of fine slots: a minute more than what counts as recent.
const EDGE: f64 = RECENT as f64 + 60.0;
/// Seconds after which everything within reach is read again where workers write the times: clocks that are behind write
/// into the past.
const DEEP: f64 = 60.0;

/// The history of one instance.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Finished tries.
    pub slots: Slots,
    /// Arrivals.
    pub arrivals: Arrivals,
    /// Tries are complete from here on, in seconds since 1970.
    pub known_from: Option<f64>,
    /// Something was cut short.
    pub cut: Option<String>,
    /// By branch: when it was read, and from when on what was read may still change.
    read: BTreeMap<String, (f64, f64)>,
    far_at: f64,
    deep_at: f64,
    /// Tries, and arrivals, a second.
    rates: (f64, f64),
    piece: Option<f64>,
    cursor: usize,
}

/// What lies further back than this, in seconds, is read again only now and then.
const FAR: f64 = 60.0;
/// So often, in seconds.
const FAR_EVERY: f64 = 10.0;

/// What a poll needs to know besides the instance.
#[derive(Clone, Copy, Debug)]
pub struct When {
    /// The server's clock.
    pub now: f64,
    /// When the oldest transaction that may still write began.
    pub oldest: Option<f64>,
    /// Sessions hide when theirs began.
    pub hidden: bool,
    /// How far back to look, in seconds.
    pub window: f64,
}

fn down(t: f64, step: i64) -> i64 {
    let t = t.floor() as i64;
    t - t.rem_euclid(step)
}

fn branch_name(branch: &Branch) -> String {
    branch.get("q").cloned().unwrap_or_default()
}

impl History {
    /// Reads what is new, reads again what may have changed, and some more of the past.
    pub async fn poll(
        &mut self,
        session: &Session,
        instance: &Instance,
        when: When,
    ) -> Result<(), Fault> {
        let all = &instance.branches;
        if all.is_empty() {
            return Ok(());
        }
        let many = all.len() > BRANCHES;
        let from = if many { self.cursor % all.len() } else { 0 };
        let chosen: Vec<Branch> = all
            .iter()
            .cycle()
            .skip(from)
            .take(all.len().min(BRANCHES))
            .cloned()
            .collect();
        self.cursor = from + chosen.len();
        self.edge_of_now(session, instance, &chosen, many, when)
            .await?;
        if many {
            self.cut = Some(
                "history: from now on only, since there are more than 32 tables or queues".into(),
            );
        } else {
            self.past(session, instance, when).await?;
        }
        self.slots.age(when.now, when.window);
        self.arrivals.age(when.now, down(when.now - EDGE, FINE));
        self.known_from = self.known_from.map(|t| t.max(when.now - when.window));
        Ok(())
    }

    /// Seconds that can be read again without reading too many rows.
    fn reach(&self) -> f64 {
        let rate = self.rates.0.max(self.rates.1).max(0.01);
        (ROWS as f64 * 0.6 / rate).clamp(2.0 * FINE as f64, RECENT as f64)
    }

    async fn edge_of_now(
        &mut self,
        session: &Session,
        instance: &Instance,
        chosen: &[Branch],
        many: bool,
        when: When,
    ) -> Result<(), Fault> {
        let now = when.now;
        let names: Vec<String> = chosen.iter().map(branch_name).collect();
        let reads = names.iter().map(|n| self.read.get(n).copied());
        let mut reads = reads;
        let before = reads.try_fold((f64::INFINITY, f64::INFINITY), |a, b| {
            b.map(|b| (a.0.min(b.0), a.1.min(b.1)))
        });
        let deep = instance.profile.clock == Clock::Worker && now - self.deep_at >= DEEP;
        let mut still = f64::INFINITY;
        let since = match before {
            None => now - 60.0,
            Some(_) if deep => {
                self.deep_at = now;
                now - self.reach()
            }
            Some((read_at, unsettled)) => {
                let far = now - unsettled > FAR;
                let from = if far && now - self.far_at < FAR_EVERY {
                    still = unsettled;
                    read_at
                } else {
                    if far {
                        self.far_at = now;
                    }
                    unsettled.max(now - self.reach())
                };
                let slack = match instance.profile.clock {
                    Clock::Server => 2.0,
                    Clock::Worker => FINE as f64,
                };
                from.min(read_at) - slack
            }
        };
        let oldest_fine = down(now - EDGE, FINE);
        let known = self.known_from.map_or(i64::MIN, |t| down(t, FINE));
        let since =
            down(since, FINE)
                .max(oldest_fine)
                .max(if before.is_some() { known } else { i64::MIN });
        let span = Span {
            since: since as f64,
            until: now + 10.0,
            slot: FINE,
            wide: FINE,
            attempts: true,
            arrivals: true,
        };
        let answer = read(session, instance, chosen, span).await?;
        let queues = many.then_some(names.as_slice());
        self.slots.forget(since, queues);
        self.arrivals.forget(since, queues);
        let seconds = (now - since as f64).max(1.0);
        self.rates = (
            answer.rows as f64 / seconds,
            answer.arrived as f64 / seconds,
        );
        if answer.rows >= ROWS || answer.arrived >= ROWS {
            self.cut = Some(format!(
                "flow: more than {ROWS} tries or arrivals since the last look, at least these"
            ));
        } else if self.cut.as_ref().is_some_and(|c| c.starts_with("flow:")) {
            self.cut = None;
        }
        self.add_fine(answer);
        self.known_from.get_or_insert(since as f64);
        self.arrivals.known_from.get_or_insert(since as f64);
        // whoever was writing then may yet commit something that lies before now; sessions that hide their age get a minute
        let hidden = if when.hidden { now - 60.0 } else { now };
        let unsettled = when.oldest.unwrap_or(now).min(hidden).min(still);
        for name in names {
            self.read.insert(name, (now, unsettled));
        }
        Ok(())
    }

    fn add_fine(&mut self, answer: Answer) {
        self.slots.take(answer.tries);
        for (slot, queue, n, first, last) in answer.arrivals {
            self.arrivals.add(slot, &queue, Few { n, first, last });
        }
    }

    /// Fills in the past, as far as a poll's worth of rows goes.
    async fn past(
        &mut self,
        session: &Session,
        instance: &Instance,
        when: When,
    ) -> Result<(), Fault> {
        let mut rows = 0;
        let fine_from = down(when.now - EDGE, FINE) as f64;
        let reading = (
            instance
                .branches
                .iter()
                .any(|b| instance.source(&instance.profile.attempts, b).is_ok()),
            instance
                .branches
                .iter()
                .any(|b| instance.source(&instance.profile.arrivals, b).is_ok()),
        );
        for _ in 0..24 {
            let (Some(tries), Some(arrivals)) = (self.known_from, self.arrivals.known_from) else {
                return Ok(());
            };
            let attempts = reading.0 && tries > when.now - when.window;
            // arrivals go on alone, to a day
            let both = reading.1 && (arrivals - tries).abs() < 1.0;
            let alone = reading.1 && !attempts && arrivals > when.now - KEPT;
            // there is no hurry with yesterday
            let enough = if attempts { ROWS / 2 } else { ROWS / 6 };
            if rows >= enough || !(attempts || alone) {
                return Ok(());
            }
            let to = if attempts { tries } else { arrivals };
            let rate = if attempts {
                self.rates.0.max(self.rates.1)
            } else {
                self.rates.1
            };
            let most = if attempts { RECENT as f64 } else { KEPT };
            let fits = (ROWS as f64 * 0.5 / rate.max(0.01)).clamp(FINE as f64, most);
            let length = self.piece.unwrap_or(fits).min(fits.max(FINE as f64));
            let limit = if attempts {
                when.now - when.window
            } else {
                when.now - KEPT
            };
            let mut from = (down(to - length, FINE) as f64).max(down(limit, 60) as f64);
            let fine = to > fine_from;
            if fine {
                from = from.max(fine_from);
            }
            let span = Span {
                since: from,
                until: to,
                slot: if fine { FINE } else { 60 },
                wide: if fine { FINE } else { RECENT },
                attempts,
                arrivals: both || alone,
            };
            let answer = read(session, instance, &instance.branches, span).await?;
            if answer.rows >= ROWS || answer.arrived >= ROWS {
                if to - from <= FINE as f64 + 1.0 {
                    let what = format!(
                        "history: from {} s ago only, so many tries are made",
                        (when.now - to) as i64
                    );
                    self.cut.get_or_insert(what);
                    return Ok(());
                }
                self.piece = Some((to - from) / 4.0);
                return Ok(());
            }
            self.piece = None;
            rows += answer.rows + answer.arrived;
            let seconds = (to - from).max(1.0);
            if answer.rows > 0 || answer.arrived > 0 {
                self.rates = (
                    answer.rows as f64 / seconds,
                    answer.arrived as f64 / seconds,
                );
            }
            if fine {
                self.add_fine(answer);
            } else {
                self.add_old(answer);
            }
            if attempts {
                self.known_from = Some(from);
            }
            if both || alone {
                self.arrivals.known_from = Some(from);
            }
        }
        Ok(())
    }

    fn add_old(&mut self, answer: Answer) {
        self.slots.take_old(answer.tries);
        for (slot, queue, n, first, last) in answer.arrivals {
            self.arrivals.add_old(slot, &queue, Few { n, first, last });
        }
    }
}
