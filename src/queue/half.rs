//! Systems that are half there: most of what a profile wants is found, and something is not, so that nothing is read. A
//! table that was dropped or renamed is told by its name, where "no queue found" would leave one to search.

use super::detect::{Found, catalogue, fits, matches, named};
use super::profile::Profile;
use super::{Instance, Relation};
use crate::connect::{Fault, Session};
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

fn compare(p: &Profile, schema: &str, anchor: Option<&Found>, all: &[Found]) -> Compared {
    let mut compared = Compared {
        wanted: 0,
        absent: 0,
        missing: Vec::new(),
    };
    let anchor = anchor.map(|a| &a.relation);
    let name = anchor.map_or(p.detect.anchor.as_str(), |a| a.name.as_str());
    compared.look(name, &p.detect.columns, anchor);
    for also in &p.detect.also {
        let mut relations = all.iter().map(|f| &f.relation);
        let there = relations.find(|r| r.schema == schema && r.name == also.relation);
        compared.look(&also.relation, &also.columns, there);
    }
    compared
}

/// Systems of which at least half is there, and that nothing reads.
pub async fn half_there(
    session: &Session,
    profiles: &[Arc<Profile>],
    found: &[Instance],
) -> Result<Vec<Half>, Fault> {
    let names: BTreeSet<String> = profiles.iter().flat_map(|p| named(p)).collect();
    let all = catalogue(session, names).await?;
    let mut best: Vec<(f64, Half)> = Vec::new();
    for profile in profiles {
        for (schema, anchor) in places(profile, &all) {
            let compared = compare(profile, &schema, anchor, &all);
            let share = compared.absent as f64 / compared.wanted as f64;
            let name = anchor.map_or(profile.detect.anchor.as_str(), |a| a.relation.name.as_str());
            let read = found.iter().any(|i| i.schema == schema && i.anchor == name);
            if read || compared.missing.is_empty() || share > 0.5 {
                continue;
            }
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
    Ok(best.into_iter().map(|(_, half)| half).collect())
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
