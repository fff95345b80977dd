//! Spend kept by minute, the newest by ten seconds. Records are read at most every five seconds: the last two minutes then, eleven minutes once a
//! minute (a try that fails makes its spend a loss afterwards), everything once in five minutes; never more than
//! 20,000 records in one statement, the past piece by piece.

use super::read::{ROWS, Top, missing, running, spend, top};
use crate::connect::{Fault, Session};
use crate::probe::Usd;
use crate::queue::Instance;
use std::collections::BTreeMap;

/// Who spent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// All together.
    All,
    /// An agent.
    Agent(String),
    /// A tenant.
    Tenant(String),
    /// An application.
    Application(String),
    /// A model.
    Model(String),
}

/// What was spent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spend {
    /// Records.
    pub records: u64,
    /// Model cost.
    pub model: Usd,
    /// Compute cost.
    pub compute: Usd,
    /// Of both, on tries that failed or were superseded.
    pub failed: Usd,
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Tokens without a price.
    pub unpriced: u64,
}

impl Spend {
    /// Adds another.
    pub fn add(&mut self, other: &Spend) {
        self.records += other.records;
        self.model += other.model;
        self.compute += other.compute;
        self.failed += other.failed;
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.unpriced = self.unpriced.saturating_add(other.unpriced);
    }

    /// Model and compute cost.
    pub fn usd(&self) -> Usd {
        self.model + self.compute
    }
}

/// How far back spend is kept by ten seconds: a little more than the longest `cost_still`.
const FINE: f64 = 130.0;
/// Cells at most.
const CELLS: usize = 100_000;

/// The spend of one instance.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// By the start of a minute, or of ten seconds of the newest ones, and by spender.
    pub minutes: BTreeMap<i64, BTreeMap<Key, Spend>>,
    /// When it was last read, in seconds since 1970.
    pub read_at: f64,
    /// Complete from here on, in seconds since 1970.
    pub known_from: Option<f64>,
    /// The most expensive tasks.
    pub top: Vec<Top>,
    /// Spent so far by running tasks.
    pub running: Usd,
    /// Why there is none.
    pub missing: Option<String>,
    /// Something was left out.
    pub cut: Option<String>,
    minute_at: f64,
    all_at: f64,
    top_at: f64,
    rate: f64,
    again: Option<f64>,
}

impl Ledger {
    /// Reads what is new and what may have changed. Does nothing more often than every five seconds.
    pub async fn poll(
        &mut self,
        session: &Session,
        instance: &Instance,
        now: f64,
        window: f64,
    ) -> Result<(), Fault> {
        self.missing = missing(instance);
        if self.missing.is_some() || now - self.read_at < 4.5 {
            return Ok(());
        }
        self.read_at = now;
        let back: f64 = match self.known_from {
            None => 60.0,
            Some(_) if now - self.minute_at >= 60.0 => {
                self.minute_at = now;
                660.0
            }
            Some(_) => 60.0,
        };
        let reach = (ROWS as f64 * 0.6 / self.rate.max(0.01)).max(60.0);
        let from = floor60(now - back.min(reach));
        let from = self.known_from.map_or(from, |known| from.max(known));
        let records = self.replace(session, instance, from, now + 60.0).await?;
        self.rate = records as f64 / (now - from).max(1.0);
        self.cut = (records >= ROWS)
            .then(|| format!("cost: more than {ROWS} records in a minute: at least this"));
        self.known_from.get_or_insert(from);
        if now - self.all_at >= 300.0 {
            self.all_at = now;
            // everything again, from here backwards
            self.again = Some(from);
        }
        self.past(session, instance, now - window).await?;
        self.running = running(session, instance).await?;
        if now - self.top_at >= 30.0 {
            self.top_at = now;
            self.top = top(session, instance, now - window, now + 60.0).await?;
        }
        let out = (now - window) as i64 - 60;
        self.minutes = self.minutes.split_off(&out);
        self.known_from = self.known_from.map(|t| t.max(now - window));
        Ok(())
    }

    async fn replace(
        &mut self,
        session: &Session,
        instance: &Instance,
        from: f64,
        to: f64,
    ) -> Result<i64, Fault> {
        let fine = floor60(self.read_at - FINE);
        let (rows, records) = spend(session, instance, from, to, fine).await?;
        if records >= ROWS && to - from > 120.0 {
            return Ok(records);
        }
        let keep = self.minutes.split_off(&(to as i64));
        drop(self.minutes.split_off(&(from as i64)));
        self.minutes.extend(keep);
        let mut cells: usize = self.minutes.values().map(BTreeMap::len).sum();
        for (slot, key, spent) in rows {
            if cells < CELLS || key == Key::All {
                self.minutes
                    .entry(slot)
                    .or_default()
                    .entry(key)
                    .or_default()
                    .add(&spent);
                cells += 1;
            } else {
                self.cut = Some("cost: too many spenders to keep apart".into());
            }
        }
        Ok(records)
    }

    /// Pieces of the past, newest first: what was never read, then what is to be read again.
    async fn past(
        &mut self,
        session: &Session,
        instance: &Instance,
        limit: f64,
    ) -> Result<(), Fault> {
        let mut records = 0;
        let mut size = 600.0f64;
        for _ in 0..24 {
            let limit = floor60(limit);
            let to = match (self.known_from, self.again) {
                (Some(known), _) if known > limit + 60.0 => known,
                (_, Some(again)) if again > limit => again,
                _ => {
                    self.again = None;
                    return Ok(());
                }
            };
            if records >= ROWS / 2 {
                return Ok(());
            }
            let fits = ROWS as f64 * 0.5 / self.rate.max(0.01);
            let from = floor60(to - size.min(fits).max(60.0)).max(limit);
            let n = self.replace(session, instance, from, to).await?;
            if n >= ROWS && to - from > 120.0 {
                size = (to - from) / 4.0;
                continue;
            }
            records += n;
            if self.known_from.is_some_and(|known| from < known) {
                self.known_from = Some(from);
            } else {
                self.again = Some(from);
            }
        }
        Ok(())
    }
}

fn floor60(t: f64) -> f64 {
    (t / 60.0).floor() * 60.0
}
