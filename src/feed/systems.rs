//! Which queue systems were here, which of them are gone, and where those are now.

use crate::probe::systems::{Moved, label};
use crate::probe::{GONE_S, Snapshot};
use crate::queue::Instance;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tracing::info;

/// How long it is told where a system is now.
const TOLD: Duration = Duration::from_secs(300);

/// Profile and schema.
type Home = (String, String);

/// One that was found.
struct Known {
    first: Instant,
    /// Since when it is not found any more.
    gone: Option<Instant>,
    /// The `pg_class.oid` of its main tables, which a new name does not change.
    anchors: BTreeSet<u32>,
}

/// Remembers systems from look to look.
#[derive(Default)]
pub struct Systems {
    known: BTreeMap<Home, Known>,
    moved: Vec<(Moved, Instant)>,
}

fn words(home: &Home) -> String {
    label(&home.0, &home.1)
}

impl Systems {
    /// These are here now.
    pub fn look<'a>(&mut self, here: impl Iterator<Item = &'a Instance>, now: Instant) {
        let mut homes: BTreeMap<Home, BTreeSet<u32>> = BTreeMap::new();
        for instance in here {
            let home = (instance.system.clone(), instance.schema.clone());
            let anchors = homes.entry(home).or_default();
            anchors.extend(instance.relations.first().map(|r| r.oid));
        }
        for (home, known) in &mut self.known {
            if !homes.contains_key(home) && known.gone.is_none() {
                info!(system = words(home), "queue gone");
                known.gone = Some(now);
            }
        }
        for (home, anchors) in homes {
            self.moved
                .retain(|(m, _)| (&m.system, &m.schema) != (&home.0, &home.1));
            let known = self.known.entry(home).or_insert_with_key(|home| {
                info!(system = words(home), "queue found");
                Known {
                    first: now,
                    gone: None,
                    anchors: BTreeSet::new(),
                }
            });
            known.gone = None;
            known.anchors = anchors;
        }
        self.follow(now);
        self.moved.retain(|(_, at)| now - *at < TOLD);
    }

    /// What is gone may have gone elsewhere.
    fn follow(&mut self, now: Instant) {
        let gone = self.known.iter().filter(|(_, k)| k.gone.is_some());
        let gone: Vec<Home> = gone.map(|(home, _)| home.clone()).collect();
        let mut heirs = BTreeSet::new();
        for from in gone {
            let Some(heir) = self.heir(&from, &heirs) else {
                continue;
            };
            let now_is = match heir.0 == from.0 {
                true => format!("in schema {}", heir.1),
                false => format!("read as {}", words(&heir)),
            };
            info!(system = words(&from), now = now_is, "queue moved");
            heirs.insert(heir);
            self.known.remove(&from);
            let (system, schema) = from;
            let moved = Moved {
                system,
                schema,
                now: now_is,
            };
            self.moved.push((moved, now));
        }
    }

    /// Where a system that is gone is now: where its main table is, else where one of its kind appeared since it went.
    fn heir(&self, from: &Home, taken: &BTreeSet<Home>) -> Option<Home> {
        let old = self.known.get(from)?;
        let gone = old.gone?;
        let free = |(home, known): &(&Home, &Known)| known.gone.is_none() && !taken.contains(*home);
        let here = || self.known.iter().filter(free);
        let same = here().find(|(_, k)| !k.anchors.is_disjoint(&old.anchors));
        let like = || here().find(|(home, k)| home.0 == from.0 && k.first >= gone);
        same.or_else(like).map(|(home, _)| home.clone())
    }

    /// Writes what is told into a snapshot.
    pub fn fill(&self, snapshot: &mut Snapshot) {
        let gone = self.known.iter().filter(|(_, k)| k.gone.is_some());
        snapshot.gone = gone.map(|(home, _)| words(home)).collect();
        snapshot.moved = self.moved.iter().map(|(m, _)| m.clone()).collect();
    }

    /// Something went a short while ago, so that it is worth looking often whether it is back.
    pub fn missed(&self, now: Instant) -> bool {
        let mut gone = self.known.values().filter_map(|k| k.gone);
        gone.any(|at| now - at < Duration::from_secs_f64(GONE_S))
    }
}
