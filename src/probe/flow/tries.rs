//! Tries by kind and by tenant: the last ten minutes against those before, with the commonest error.

use super::Attempts;
use super::history::History;
use super::report::recent_from;
use super::slots::{Cell, Key};
use crate::probe::ServerTime;
use crate::queue::Instance;
use std::cmp::Reverse;
use std::collections::BTreeMap;

impl History {
    /// Tries by kind and by tenant: the last ten minutes against those before.
    pub fn attempts(&self, instance: &Instance, now: f64) -> Vec<Attempts> {
        if self.ends_known(instance).is_err() {
            return Vec::new();
        }
        let mut all: BTreeMap<(&str, &str, &str), Group> = BTreeMap::new();
        let edge = recent_from(now);
        let recent = self.slots.fine.range(edge..);
        for (slot, key, cell) in
            recent.flat_map(|(s, cells)| cells.counts.iter().map(|(k, c)| (*s, k, c)))
        {
            let Some(name) = group(key) else { continue };
            let g = all.entry(name).or_default();
            match key {
                Key::KindError(_, _, error) | Key::TenantError(_, _, error) => {
                    *g.errors.entry(error).or_default() += cell.failed;
                }
                _ => {
                    g.recent.add(cell);
                    match g.slots.last_mut().filter(|(last, _)| *last == slot) {
                        Some((_, tries)) => tries.add(cell),
                        None => g.slots.push((slot, Tries::of(cell))),
                    }
                }
            }
        }
        let older = self
            .slots
            .old
            .values()
            .chain(self.slots.fine.range(..edge).map(|(_, cells)| cells));
        for (key, cell) in older.flat_map(|cells| &cells.counts) {
            if let (Some(name), Key::Kind(..) | Key::Tenant(..)) = (group(key), key) {
                all.entry(name).or_default().before.add(cell);
            }
        }
        let mut groups: Vec<_> = all.into_iter().collect();
        if groups.len() > GROUPS {
            groups.sort_by_key(|(_, g)| Reverse((g.recent.failed, g.recent.n, g.before.n)));
            groups.truncate(GROUPS);
            groups.sort_by_key(|(name, _)| *name);
        }
        groups
            .into_iter()
            .map(|((by, queue, name), g)| g.shown(instance, by, queue, name))
            .collect()
    }
}

/// Kinds and tenants at most: those that fail most, then those that try most.
const GROUPS: usize = 1000;

#[derive(Default)]
struct Group<'a> {
    recent: Tries,
    before: Tries,
    errors: BTreeMap<&'a str, u64>,
    /// By slot, in order.
    slots: Vec<(i64, Tries)>,
}

#[derive(Default)]
struct Tries {
    n: u64,
    failed: u64,
}

impl Tries {
    fn of(cell: &Cell) -> Self {
        let (n, failed) = (cell.n, cell.failed);
        Self { n, failed }
    }

    fn add(&mut self, cell: &Cell) {
        self.n += cell.n;
        self.failed += cell.failed;
    }
}

fn group(key: &Key) -> Option<(&'static str, &str, &str)> {
    Some(match key {
        Key::Kind(q, k) | Key::KindError(q, k, _) => ("kind", q, k),
        Key::Tenant(_, t) | Key::TenantError(_, t, _) => ("tenant", "", t),
        _ => return None,
    })
}

impl Group<'_> {
    fn shown(self, instance: &Instance, by: &str, queue: &str, name: &str) -> Attempts {
        let worst = self.errors.iter().max_by_key(|(_, n)| **n);
        // backwards from the newest slot: since when has at least half failed?
        let mut since = None;
        for (slot, tries) in self.slots.iter().rev() {
            if tries.n > 0 && tries.failed * 2 < tries.n {
                break;
            }
            if tries.failed > 0 {
                since = ServerTime::from_epoch(*slot as f64);
            }
        }
        Attempts {
            system: instance.system.clone(),
            schema: instance.schema.clone(),
            queue: queue.to_string(),
            by: by.to_string(),
            name: name.to_string(),
            recent: self.recent.n as u32,
            recent_failed: self.recent.failed as u32,
            before: self.before.n as u32,
            before_failed: self.before.failed as u32,
            error: worst.map(|(e, _)| e.to_string()),
            error_n: worst.map_or(0, |(_, n)| *n as u32),
            lost: None,
            tries_per_task: None,
            failing_since: since,
        }
    }
}
