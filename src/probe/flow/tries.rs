//! Tries by kind and by tenant: the last ten minutes against those before, with the commonest error.

use super::Attempts;
use super::history::History;
use super::report::{not_bins, recent_from};
use super::slots::{Cell, Key};
use crate::probe::ServerTime;
use crate::queue::Instance;
use std::collections::BTreeMap;

impl History {
    /// Tries by kind and by tenant: the last ten minutes against those before.
    pub fn attempts(&self, instance: &Instance, now: f64) -> Vec<Attempts> {
        if self.ends_known(instance).is_err() {
            return Vec::new();
        }
        let mut all: BTreeMap<(&str, String, String), Group> = BTreeMap::new();
        let edge = recent_from(now);
        let recent = self.slots.fine.range(edge..);
        for (slot, key, cell) in
            recent.flat_map(|(s, cells)| not_bins(cells).map(|(k, c)| (*s, k, c)))
        {
            let Some(name) = group(key) else { continue };
            let g = all.entry(name).or_default();
            match key {
                Key::KindError(_, _, error) | Key::TenantError(_, _, error) => {
                    *g.errors.entry(error.clone()).or_default() += cell.failed;
                }
                _ => {
                    g.recent.add(cell);
                    g.slots.entry(slot).or_default().add(cell);
                }
            }
        }
        let older = self
            .slots
            .old
            .values()
            .chain(self.slots.fine.range(..edge).map(|(_, cells)| cells));
        for (key, cell) in older.flat_map(not_bins) {
            if let (Some(name), Key::Kind(..) | Key::Tenant(..)) = (group(key), key) {
                all.entry(name).or_default().before.add(cell);
            }
        }
        all.into_iter()
            .map(|((by, queue, name), g)| g.shown(instance, by, queue, name))
            .collect()
    }
}

#[derive(Default)]
struct Group {
    recent: Cell,
    before: Cell,
    errors: BTreeMap<String, u64>,
    slots: BTreeMap<i64, Cell>,
}

fn group(key: &Key) -> Option<(&'static str, String, String)> {
    Some(match key {
        Key::Kind(q, k) | Key::KindError(q, k, _) => ("kind", q.clone(), k.clone()),
        Key::Tenant(_, t) | Key::TenantError(_, t, _) => ("tenant", String::new(), t.clone()),
        _ => return None,
    })
}

impl Group {
    fn shown(self, instance: &Instance, by: &str, queue: String, name: String) -> Attempts {
        let worst = self.errors.iter().max_by_key(|(_, n)| **n);
        // backwards from the newest slot: since when has at least half failed?
        let mut since = None;
        for (slot, cell) in self.slots.iter().rev() {
            if cell.n > 0 && cell.failed * 2 < cell.n {
                break;
            }
            if cell.failed > 0 {
                since = ServerTime::from_epoch(*slot as f64);
            }
        }
        Attempts {
            system: instance.system.clone(),
            schema: instance.schema.clone(),
            queue,
            by: by.to_string(),
            name,
            recent: self.recent.n as u32,
            recent_failed: self.recent.failed as u32,
            before: self.before.n as u32,
            before_failed: self.before.failed as u32,
            error: worst.map(|(e, _)| e.clone()),
            error_n: worst.map_or(0, |(_, n)| *n as u32),
            lost: None,
            tries_per_task: None,
            failing_since: since,
        }
    }
}
