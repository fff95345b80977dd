//! What history says: flow by minute, rates, finished tasks, claims, workers.

use super::Flow;
use super::history::History;
use super::slots::{Cell, Cells, FINE, Key, Name, RECENT};
use crate::probe::ServerTime;
use crate::queue::profile::{Ends, Source};
use crate::queue::{Branch, Instance};
use std::collections::{BTreeMap, BTreeSet};

/// "Usual" needs so many samples.
pub const SAMPLES: u64 = 50;
/// Minutes of flow.
pub const MINUTES: usize = 60;
/// The attempt source of an instance, or why there is none.
pub fn attempt_source(instance: &Instance) -> Result<&Source, String> {
    let none = Branch::new();
    let branch = instance.branches.first().unwrap_or(&none);
    instance.source(&instance.profile.attempts, branch)
}

/// Start of the first slot that counts as recent.
pub(super) fn recent_from(now: f64) -> i64 {
    let from = now as i64 - RECENT;
    from - from.rem_euclid(FINE)
}

/// The cells of kinds: they come first.
pub(super) fn kinds(cells: &Cells) -> impl Iterator<Item = (&Key, &Cell)> {
    let counts = cells.counts.iter();
    counts.take_while(|(key, _)| matches!(key, Key::Kind(..)))
}

/// The cells of the kinds of one queue.
fn kinds_of<'a>(cells: &'a Cells, queue: &'a str) -> impl Iterator<Item = &'a Cell> {
    let from = cells.counts.range(Key::Kind(queue.into(), "".into())..);
    from.take_while(move |(key, _)| matches!(key, Key::Kind(q, _) if **q == *queue))
        .map(|(_, cell)| cell)
}

/// Counts over a while, of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Arrivals a minute over five minutes.
    pub arrived: Option<f64>,
    /// Tasks finished a minute.
    pub finished: Option<f64>,
    /// Tries that failed a minute.
    pub failed: Option<f64>,
}

impl History {
    /// Queues that history knows.
    pub fn queues(&self) -> BTreeSet<String> {
        // thousands of entries of a few queues: whatever else is counted of a try, its kind is
        let tries = self.slots.fine.values().flat_map(kinds);
        let minutes = self.slots.minutes.values().flat_map(|m| m.keys());
        let all = tries
            .map(|(key, _)| key.queue())
            .chain(minutes.map(String::as_str))
            .chain(self.arrivals.queues().map(String::as_str));
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for name in all {
            if !names.contains(name) {
                names.insert(name);
            }
        }
        names.into_iter().map(String::from).collect()
    }

    pub(super) fn ends_known(&self, instance: &Instance) -> Result<(), String> {
        let unknown = &instance.profile.unknown;
        match attempt_source(instance) {
            Err(why) => Err(why),
            Ok(source) if source.ends == Ends::Claimed => Err(unknown
                .get("finished")
                .cloned()
                .unwrap_or_else(|| "there is no finished time".into())),
            Ok(_) => Ok(()),
        }
    }

    fn arrivals_known(&self, instance: &Instance) -> Result<(), String> {
        let none = Branch::new();
        let branch = instance.branches.first().unwrap_or(&none);
        instance
            .source(&instance.profile.arrivals, branch)
            .map(|_| ())
    }

    /// Final states by minute of a queue; the last minute is the running one.
    fn minutes(&self, queue: &str, first: i64) -> (Vec<u32>, Vec<u32>) {
        let (mut finished, mut failed) = (vec![0u32; MINUTES], vec![0u32; MINUTES]);
        let mut add = |slot: i64, f: u64, x: u64| {
            if let Some(at) = usize::try_from((slot - first).div_euclid(60))
                .ok()
                .filter(|at| *at < MINUTES)
            {
                finished[at] += f as u32;
                failed[at] += x as u32;
            }
        };
        for (minute, queues) in self.slots.minutes.range(first..) {
            if let Some(m) = queues.get(queue) {
                add(*minute, m.final_states.iter().sum(), m.failed);
            }
        }
        for (slot, cells) in &self.slots.fine {
            for cell in kinds_of(cells, queue) {
                add(*slot, cell.finished(), cell.failed);
            }
        }
        (finished, failed)
    }

    /// Flow of one queue.
    pub fn flow(&self, instance: &Instance, queue: &str, now: ServerTime) -> Flow {
        let running = now.epoch() as i64 - (now.epoch() as i64).rem_euclid(60);
        let first = running - 60 * (MINUTES as i64 - 1);
        let ends = self.ends_known(instance);
        let arrivals = self.arrivals_known(instance);
        let (finished, failed) = self.minutes(queue, first);
        let unknown: Vec<String> = [
            arrivals.as_ref().err().map(|w| format!("arrivals: {w}")),
            ends.as_ref().err().map(|w| format!("finished: {w}")),
            self.cut.clone(),
        ]
        .into_iter()
        .flatten()
        .collect();
        Flow {
            system: instance.system.clone(),
            schema: instance.schema.clone(),
            queue: queue.to_string(),
            from: ServerTime::from_epoch(first as f64),
            arrived: arrivals
                .is_ok()
                .then(|| self.arrivals.by_minute(queue, first, MINUTES)),
            finished: ends.is_ok().then_some(finished),
            failed_attempts: ends.is_ok().then_some(failed),
            unknown: (!unknown.is_empty()).then(|| unknown.join("; ")),
        }
    }

    /// Rates of one queue over five minutes (or since we know, if that is less).
    pub fn rates(&self, instance: &Instance, queue: &str, now: f64) -> Rates {
        let over = |known: Option<f64>| known.map(|t| (now - t).clamp(FINE as f64, 300.0));
        let from = |over: f64| {
            let t = (now - over) as i64;
            t - t.rem_euclid(FINE)
        };
        let mut rates = Rates::default();
        if let (Ok(()), Some(over)) = (
            self.arrivals_known(instance),
            over(self.arrivals.known_from),
        ) {
            let seconds = now - from(over) as f64;
            rates.arrived = Some(self.arrivals.since(queue, from(over)) as f64 * 60.0 / seconds);
        }
        if let (Ok(()), Some(over)) = (self.ends_known(instance), over(self.known_from)) {
            let seconds = now - from(over) as f64;
            let mut sum = Cell::default();
            let slots = self.slots.fine.range(from(over)..);
            for cell in slots.flat_map(|(_, cells)| kinds_of(cells, queue)) {
                sum.add(cell);
            }
            rates.finished = Some(sum.finished() as f64 * 60.0 / seconds);
            rates.failed = Some(sum.failed as f64 * 60.0 / seconds);
        }
        rates
    }

    /// Tasks of a queue that reached succeeded, failed, cancelled within the last `seconds`; `None` where unknown.
    pub fn final_states(
        &self,
        instance: &Instance,
        queue: &str,
        now: f64,
        seconds: f64,
    ) -> Option<[u64; 3]> {
        self.ends_known(instance).ok()?;
        let from = (now - seconds) as i64;
        let mut sum = [0; 3];
        let mut add = |states: [u64; 3]| sum.iter_mut().zip(states).for_each(|(a, b)| *a += b);
        for (_, queues) in self.slots.minutes.range(from - from.rem_euclid(60)..) {
            if let Some(m) = queues.get(queue) {
                add(m.final_states);
            }
        }
        for (_, cells) in self.slots.fine.range(from..) {
            for cell in kinds_of(cells, queue) {
                add(cell.final_states);
            }
        }
        Some(sum)
    }

    /// The newest claims that ended tries show, by queue and kind; for the whole queue by an empty kind.
    pub fn claims(&self) -> BTreeMap<(Name, Name), ServerTime> {
        let whole = Name::from("");
        let mut newest: BTreeMap<(Name, Name), f64> = BTreeMap::new();
        for (key, cell) in self
            .slots
            .fine
            .values()
            .chain(self.slots.old.values())
            .flat_map(kinds)
        {
            if let Key::Kind(queue, kind) = key
                && cell.claimed.is_finite()
            {
                for kind in [kind, &whole] {
                    let at = newest.entry((queue.clone(), kind.clone()));
                    let at = at.or_insert(cell.claimed);
                    *at = at.max(cell.claimed);
                }
            }
        }
        let time = |(name, t)| Some((name, ServerTime::from_epoch(t)?));
        newest.into_iter().filter_map(time).collect()
    }

    /// Tries and failures of each worker over ten minutes, and the minutes that were seen.
    pub fn workers(&self, now: f64) -> (BTreeMap<String, Cell>, f64) {
        let mut out: BTreeMap<String, Cell> = BTreeMap::new();
        let recent = self
            .slots
            .fine
            .range(recent_from(now)..)
            .flat_map(|(_, cells)| &cells.counts);
        for (key, cell) in recent {
            if let Key::Worker(_, worker) = key {
                out.entry(worker.to_string()).or_default().add(cell);
            }
        }
        let seen = self
            .known_from
            .map_or(0.0, |t| now - t)
            .clamp(FINE as f64, RECENT as f64);
        (out, seen / 60.0)
    }
}
