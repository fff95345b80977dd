//! Spend kept by ten seconds while recent, then by minute. Records are read at most every five seconds: the last seconds
//! then, and eleven minutes every five (a try that fails makes its spend a loss afterwards: what was spent longer before
//! the failure stays where it was); never more than 20,000 records in one statement, the past piece by piece.

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

/// Everything this young is read again now and then, in seconds.
const FINE: f64 = 660.0;
/// So often, in seconds.
const DEEP: f64 = 300.0;
/// The most expensive tasks, and what running ones have spent, so often, in seconds.
const TOP: f64 = 60.0;
/// Cells at most.
const CELLS: usize = 100_000;

/// The spend of one instance.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// By slot of ten seconds or a minute, and by spender.
    pub slots: BTreeMap<i64, BTreeMap<Key, Spend>>,
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
    /// When it was last read, in seconds since 1970.
    pub read_at: f64,
    tried_at: f64,
    deep_at: f64,
    top_at: f64,
    rate: f64,
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
        if self.missing.is_some() || now - self.tried_at < 4.5 {
            return Ok(());
        }
        self.tried_at = now;
        let back = match self.known_from {
            Some(_) if now - self.deep_at >= DEEP => {
                self.deep_at = now;
                FINE
            }
            _ => 10.0,
        };
        let reach = (ROWS as f64 * 0.6 / self.rate.max(0.01)).max(10.0);
        let from = down(now - back.min(reach), 10.0);
        let from = self
            .known_from
            .map_or(from, |known| from.max(down(known, 10.0)));
        let records = self
            .replace(session, instance, from, now + 10.0, 10)
            .await?;
        self.read_at = now;
        self.rate = records as f64 / (now - from).max(1.0);
        self.cut = (records >= ROWS)
            .then(|| format!("cost: more than {ROWS} records in half a minute: at least this"));
        if self.known_from.is_none() {
            self.known_from = Some(from);
            self.deep_at = now;
        }
        self.past(session, instance, now, now - window).await?;
        if now - self.top_at >= TOP {
            self.top_at = now;
            self.running = running(session, instance).await?;
            self.top = top(session, instance, now - window, now + 10.0).await?;
        }
        self.age(now, window);
        self.known_from = self.known_from.map(|t| t.max(now - window));
        Ok(())
    }

    async fn replace(
        &mut self,
        session: &Session,
        instance: &Instance,
        from: f64,
        to: f64,
        slot: i64,
    ) -> Result<i64, Fault> {
        let (rows, records) = spend(session, instance, from, to, slot).await?;
        if records >= ROWS && to - from > 120.0 {
            return Ok(records);
        }
        let keep = self.slots.split_off(&(to as i64));
        drop(self.slots.split_off(&(from as i64)));
        self.slots.extend(keep);
        let mut cells: usize = self.slots.values().map(BTreeMap::len).sum();
        for (slot, key, spent) in rows {
            if cells < CELLS || key == Key::All {
                self.slots
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

    /// Pieces of the past, newest first.
    async fn past(
        &mut self,
        session: &Session,
        instance: &Instance,
        now: f64,
        limit: f64,
    ) -> Result<(), Fault> {
        let limit = down(limit, 60.0);
        let coarse = down(now - FINE - 60.0, 60.0);
        let mut records = 0;
        let mut size = 600.0f64;
        for _ in 0..24 {
            let Some(to) = self.known_from.filter(|known| *known > limit + 60.0) else {
                return Ok(());
            };
            if records >= ROWS / 2 {
                return Ok(());
            }
            let fits = ROWS as f64 * 0.5 / self.rate.max(0.01);
            let (slot, floor) = if to > coarse {
                (10, coarse)
            } else {
                (60, limit)
            };
            let from = down(to - size.min(fits).max(60.0), slot as f64).max(floor);
            let n = self.replace(session, instance, from, to, slot).await?;
            if n >= ROWS && to - from > 120.0 {
                size = (to - from) / 4.0;
                continue;
            }
            records += n;
            self.known_from = Some(from);
        }
        Ok(())
    }

    /// Folds what is no longer read again into minutes, and drops what is out of the window.
    fn age(&mut self, now: f64, window: f64) {
        let keep = self
            .slots
            .split_off(&(down(now - FINE - 120.0, 60.0) as i64));
        for (slot, spenders) in std::mem::replace(&mut self.slots, keep) {
            let minute = self.slots.entry(slot - slot.rem_euclid(60)).or_default();
            for (key, spend) in spenders {
                minute.entry(key).or_default().add(&spend);
            }
        }
        self.slots = self.slots.split_off(&((now - window) as i64 - 60));
    }
}

fn down(t: f64, step: f64) -> f64 {
    (t / step).floor() * step
}
