//! Systems that are half there: most of what a profile wants is found, and something is not, so that nothing is read. A
//! table that was dropped or renamed is told by its name, where "no queue found" would leave one to search.

use super::detect::{Catalogue, Found, fits, matches};
use super::profile::Profile;
use super::{Instance, Relation};
use crate::probe::systems::label;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A system of which something is missing.
#[derive(Clone, Debug)]
pub struct Half {
    /// How it would be read.
    pub profile: Arc<Profile>,
    /// Schema it lives in.
    pub schema: String,
    /// Its main table.
    pub anchor: String,
    /// `table usage`, `column leased_until of agent_jobs`.
    pub missing: Vec<String>,
}

/// What a profile wants of a schema, and what is not there.
struct Compared {
    wanted: usize,
    absent: usize,
    missing: Vec<String>,
}

impl Compared {
    fn look(&mut self, name: &str, columns: &[String], relation: Option<&Relation>) {
        self.wanted += 1 + columns.len();
        let Some(relation) = relation else {
            self.absent += 1 + columns.len();
            self.missing.push(format!("table {name}"));
            return;
        };
        for column in columns
            .iter()
            .filter(|c| !relation.columns.contains_key(*c))
        {
            self.absent += 1;
            self.missing.push(format!("column {column} of {name}"));
        }
    }
}

/// A profile wants more than this share of what is not there: the tables are of something else.
const MOST: f64 = 0.5;

impl Compared {
    /// `name` is the main table's, which may be absent itself.
    fn of(p: &Profile, schema: &str, name: &str, anchor: Option<&Found>, all: &[Found]) -> Self {
        let mut compared = Self {
            wanted: 0,
            absent: 0,
            missing: Vec::new(),
        };
        compared.look(name, &p.detect.columns, anchor.map(|a| &a.relation));
        for also in &p.detect.also {
            let mut relations = all.iter().map(|f| &f.relation);
            let there = relations.find(|r| r.schema == schema && r.name == also.relation);
            compared.look(&also.relation, &also.columns, there);
        }
        compared
    }

    /// The share that is not there; `None` where nothing is missing, or too much.
    fn share(&self) -> Option<f64> {
        let share = self.absent as f64 / self.wanted as f64;
        (!self.missing.is_empty() && share <= MOST).then_some(share)
    }
}

impl Half {
    /// What is missing, in words: `agent_queue in schema agent_queue: column kind of tasks is not there`.
    pub fn why(&self) -> String {
        let system = label(self.profile.system.get_ref(), &self.schema);
        let are = if self.missing.len() == 1 { "is" } else { "are" };
        let missing = self.missing.join(", ");
        format!("{system}: {missing} {are} not there")
    }

    /// What is missing, and what can be done about it.
    pub fn sentence(&self) -> String {
        format!("{}; {}", self.why(), self.advice())
    }

    /// What can be done about it.
    pub fn advice(&self) -> String {
        match &self.profile.grants.made_by {
            Some(by) => format!(
                "restore it; a queue of an older version gets it by {by} --schema {}",
                self.schema
            ),
            None => {
                "restore it, or name a profile that does without (profiles in the configuration)"
                    .into()
            }
        }
    }
}

impl Catalogue {
    /// Systems of which at least half is there, and that nothing reads.
    pub fn half_there(&self, profiles: &[Arc<Profile>], read: &[Instance]) -> Vec<Half> {
        let mut best: Vec<(f64, Half)> = Vec::new();
        for profile in profiles {
            for (schema, anchor) in places(profile, &self.0) {
                let name = anchor.map_or(profile.detect.anchor.as_str(), |a| &a.relation.name);
                let compared = Compared::of(profile, &schema, name, anchor, &self.0);
                let is_read = read.iter().any(|i| i.schema == schema && i.anchor == name);
                let Some(share) = compared.share().filter(|_| !is_read) else {
                    continue;
                };
                let half = Half {
                    profile: profile.clone(),
                    anchor: name.to_string(),
                    schema,
                    missing: compared.missing,
                };
                let same =
                    |(_, h): &&mut (f64, Half)| h.schema == half.schema && h.anchor == half.anchor;
                match best.iter_mut().find(same) {
                    Some(known) if known.0 <= share => {}
                    Some(known) => *known = (share, half),
                    None => best.push((share, half)),
                }
            }
        }
        best.into_iter().map(|(_, half)| half).collect()
    }

    /// What is left of a system that was read before; `None` where it is whole, less than half is there, or its tables
    /// are something else by now.
    pub fn half_of(&self, instance: &Instance) -> Option<Half> {
        let (profile, schema) = (&instance.profile, &instance.schema);
        let is_anchor =
            |f: &&Found| f.relation.schema == *schema && f.relation.name == instance.anchor;
        let anchor = self.0.iter().find(is_anchor);
        if anchor.is_some_and(|a| !fits(profile, a)) {
            return None;
        }
        let compared = Compared::of(profile, schema, &instance.anchor, anchor, &self.0);
        compared.share()?;
        Some(Half {
            profile: profile.clone(),
            schema: schema.clone(),
            anchor: instance.anchor.clone(),
            missing: compared.missing,
        })
    }
}

/// Where a profile's main table is, and the schemas that have only its other tables.
fn places<'a>(p: &Profile, all: &'a [Found]) -> Vec<(String, Option<&'a Found>)> {
    let anchors = all.iter().filter(|f| fits(p, f));
    let mut places: Vec<_> = anchors
        .map(|f| (f.relation.schema.clone(), Some(f)))
        .collect();
    let also = |f: &&Found| p.detect.also.iter().any(|a| a.relation == f.relation.name);
    let schemas: BTreeSet<&String> = all
        .iter()
        .filter(also)
        .map(|f| &f.relation.schema)
        .collect();
    for schema in schemas {
        let here =
            |f: &Found| f.relation.schema == *schema && matches(&p.detect.anchor, &f.relation.name);
        if !p.detect.anchor.contains('*') && !all.iter().any(here) {
            places.push((schema.clone(), None));
        }
    }
    places.retain(|(schema, _)| p.detect.schemas.is_empty() || p.detect.schemas.contains(schema));
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{Branch, profiles};

    fn profile(system: &str) -> Arc<Profile> {
        let all = profiles(&[]).expect("the built-in ones");
        let mut all = all.into_iter();
        all.find(|p| p.system.get_ref() == system).expect(system)
    }

    /// All that a profile wants, in a schema of the same name.
    fn whole(profile: &Profile) -> Vec<Found> {
        let d = &profile.detect;
        let also = d.also.iter().map(|a| (&a.relation, &a.columns));
        let all = [(&d.anchor, &d.columns)].into_iter().chain(also);
        let found = |(name, columns): (&String, &Vec<String>)| Found {
            relation: Relation {
                schema: profile.system.get_ref().clone(),
                name: name.clone(),
                columns: columns.iter().map(|c| (c.clone(), "text".into())).collect(),
                ..Relation::default()
            },
            is_view: false,
            time_zone: "UTC".into(),
        };
        all.map(found).collect()
    }

    fn missing(change: impl FnOnce(&mut Vec<Found>)) -> Option<String> {
        let profile = profile("agent_queue");
        let instance = Instance {
            system: "agent_queue".into(),
            schema: "agent_queue".into(),
            anchor: "tasks".into(),
            relations: Vec::new(),
            claim_index: None,
            branches: vec![Branch::new()],
            values: Default::default(),
            notes: Vec::new(),
            made: Default::default(),
            profile: profile.clone(),
        };
        let mut all = whole(&profile);
        change(&mut all);
        Catalogue(all).half_of(&instance).map(|half| half.why())
    }

    #[test]
    fn what_a_known_system_lacks_is_named() {
        const IS: &str = "agent_queue in schema agent_queue: ";
        assert_eq!(missing(|_| {}), None, "it is whole");
        let column = missing(|all| {
            all[0].relation.columns.remove("kind");
        });
        assert_eq!(
            column,
            Some(format!("{IS}column kind of tasks is not there"))
        );
        let table = missing(|all| {
            all[0].relation.name = "tasks_old".into();
        });
        assert_eq!(table, Some(format!("{IS}table tasks is not there")));
        let two = missing(|all| {
            all.retain(|f| f.relation.name != "usage");
            all[0].relation.columns.remove("kind");
        });
        let both = format!("{IS}column kind of tasks, table usage are not there");
        assert_eq!(two, Some(both));
    }

    #[test]
    fn what_is_gone_or_something_else_is_not_half_there() {
        assert_eq!(missing(Vec::clear), None);
        assert_eq!(missing(|all| all.truncate(1)), None, "most is missing");
        let moved = missing(|all| {
            for found in all {
                found.relation.schema = "elsewhere".into();
            }
        });
        assert_eq!(moved, None);
        // a view of that name is no table of the system's
        assert_eq!(missing(|all| all[0].is_view = true), None);
    }
}
