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
    /// It took the place of one that is gone.
    heir: bool,
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
                    heir: false,
                }
            });
            known.gone = None;
            known.anchors = anchors;
        }
        self.follow(now);
        self.moved.retain(|(_, at)| now - *at < TOLD);
    }

    /// Was it found before?
    pub fn knows(&self, instance: &Instance) -> bool {
        let home = (instance.system.clone(), instance.schema.clone());
        self.known.contains_key(&home)
    }

    /// What is gone may be elsewhere: where its main table is, else where one of its kind appeared since it went.
    fn follow(&mut self, now: Instant) {
        for find in [Self::same, Self::alike] {
            let gone = self
                .known
                .iter()
                .filter_map(|(home, k)| Some((k.gone?, home)));
            let mut gone: Vec<(Instant, Home)> = gone.map(|(at, h)| (at, h.clone())).collect();
            // the last one to go is the likeliest to have been replaced
            gone.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
            for (_, from) in gone {
                if let Some(heir) = find(self, &from) {
                    self.moves(from, heir, now);
                }
            }
        }
    }

    fn here(&self) -> impl Iterator<Item = (&Home, &Known)> {
        self.known.iter().filter(|(_, k)| k.gone.is_none())
    }

    fn same(&self, from: &Home) -> Option<Home> {
        let old = &self.known.get(from)?.anchors;
        let mut here = self.here();
        let heir = here.find(|(_, k)| !k.anchors.is_disjoint(old));
        heir.map(|(home, _)| home.clone())
    }

    fn alike(&self, from: &Home) -> Option<Home> {
        let gone = self.known.get(from)?.gone?;
        let new = |k: &Known| !k.heir && k.first >= gone;
        let mut here = self.here();
        let heir = here.find(|(home, k)| home.0 == from.0 && new(k));
        heir.map(|(home, _)| home.clone())
    }

    fn moves(&mut self, from: Home, heir: Home, at: Instant) {
        let now = match heir.0 == from.0 {
            true => format!("in schema {}", heir.1),
            false => format!("read as {}", words(&heir)),
        };
        info!(system = words(&from), now, "queue moved");
        self.known.remove(&from);
        if let Some(known) = self.known.get_mut(&heir) {
            known.heir = true;
        }
        let (system, schema) = from;
        let moved = Moved {
            system,
            schema,
            now,
        };
        self.moved.push((moved, at));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{Relation, profiles};

    fn system(name: &str, schema: &str, oid: u32) -> Instance {
        let profile = profiles(&[]).expect("the built-in ones").remove(0);
        Instance {
            profile,
            system: name.into(),
            schema: schema.into(),
            anchor: "tasks".into(),
            relations: vec![Relation {
                oid,
                ..Relation::default()
            }],
            claim_index: None,
            branches: Vec::new(),
            values: Default::default(),
            notes: Vec::new(),
            made: Default::default(),
        }
    }

    struct Looks {
        systems: Systems,
        begun: Instant,
    }

    impl Looks {
        fn new() -> Self {
            Self {
                systems: Systems::default(),
                begun: Instant::now(),
            }
        }

        /// What is gone, and what moved where, after so many seconds.
        fn see(&mut self, s: u64, here: &[Instance]) -> (Vec<String>, Vec<String>) {
            let now = self.begun + Duration::from_secs(s);
            self.systems.look(here.iter(), now);
            let mut snapshot = Snapshot::default();
            self.systems.fill(&mut snapshot);
            let moved = snapshot.moved.iter();
            let moved = moved.map(|m| format!("{} is now {}", label(&m.system, &m.schema), m.now));
            (snapshot.gone, moved.collect())
        }

        fn missed(&self, s: u64) -> bool {
            self.systems.missed(self.begun + Duration::from_secs(s))
        }
    }

    #[test]
    fn what_is_gone_stays_so_until_it_is_back() {
        let mut looks = Looks::new();
        let (a, b) = (system("q", "a", 1), system("q", "b", 2));
        assert_eq!(looks.see(0, &[a.clone(), b.clone()]), (vec![], vec![]));
        let gone = vec!["q in schema a".to_string()];
        // the one that was there all along is no heir
        assert_eq!(
            looks.see(1, std::slice::from_ref(&b)),
            (gone.clone(), vec![])
        );
        assert!(looks.missed(2) && !looks.missed(3602));
        assert_eq!(looks.see(3700, std::slice::from_ref(&b)), (gone, vec![]));
        assert_eq!(looks.see(3701, &[a, b]), (vec![], vec![]));
        assert!(!looks.missed(3702));
    }

    #[test]
    fn a_table_is_known_by_its_oid_whatever_it_is_called() {
        let mut looks = Looks::new();
        looks.see(0, &[system("q", "a", 1), system("q", "b", 2)]);
        // both got new names, and one of them the other's
        let here = [system("q", "b", 1), system("q", "c", 2)];
        let moved = vec!["q in schema a is now in schema b".to_string()];
        assert_eq!(looks.see(1, &here), (vec![], moved.clone()));
        assert_eq!(looks.see(300, &here), (vec![], moved));
        assert_eq!(looks.see(301, &here), (vec![], vec![]), "said for a while");
        let other = [system("p", "b", 1), system("q", "c", 2)];
        let read = vec!["q in schema b is now read as p in schema b".to_string()];
        assert_eq!(looks.see(400, &other), (vec![], read));
        // there and back again
        assert_eq!(
            looks.see(401, &here).1,
            ["p in schema b is now read as q in schema b"]
        );
    }

    #[test]
    fn one_of_its_kind_that_appears_later_takes_its_place_and_only_one() {
        let mut looks = Looks::new();
        looks.see(0, &[system("q", "a", 1), system("q", "b", 2)]);
        let gone = |names: &[&str]| -> Vec<String> {
            names.iter().map(|n| format!("q in schema {n}")).collect()
        };
        assert_eq!(looks.see(1, &[]), (gone(&["a", "b"]), vec![]));
        // another system is none of its kind
        let (c, p) = (system("q", "c", 3), system("p", "d", 4));
        assert_eq!(
            looks.see(2, std::slice::from_ref(&p)),
            (gone(&["a", "b"]), vec![])
        );
        let moved = vec!["q in schema a is now in schema c".to_string()];
        assert_eq!(looks.see(3, &[c.clone(), p]), (gone(&["b"]), moved));
        assert_eq!(looks.see(4000, &[c]).0, ["p in schema d", "q in schema b"]);
        // dropped and made elsewhere between two looks
        let moved = vec!["q in schema c is now in schema e".to_string()];
        let seen = looks.see(4001, &[system("q", "e", 5)]);
        let gone = vec!["p in schema d".to_string(), "q in schema b".to_string()];
        assert_eq!(seen, (gone, moved));
    }
}
