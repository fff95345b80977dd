//! Systems that are not what, or not where, they were. Of one that lacks a table or a column what was read last stays, and
//! nothing is concluded from it.

use super::Snapshot;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A system in words.
pub fn label(system: &str, schema: &str) -> String {
    format!("{system} in schema {schema}")
}

/// A system that went elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// Profile that read it.
    pub system: String,
    /// Schema it lived in.
    pub schema: String,
    /// Where it is now: `in schema billing`.
    pub now: String,
}

/// A system that cannot be read, since a part of it is not there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HalfThere {
    /// Profile.
    pub system: String,
    /// Schema.
    pub schema: String,
    /// `table usage`, `column kind of tasks`; from the catalogue.
    pub missing: Vec<String>,
    /// The same in words: `agent_queue in schema agent_queue: column kind of tasks is not there`.
    pub why: String,
    /// What can be done about it.
    pub advice: String,
    /// Seconds since its queues were last read, at the time of the snapshot; `None` where they never were.
    pub age_s: Option<f64>,
}

impl Snapshot {
    /// Is the system of that name and schema known not to be here any more?
    pub fn has_left(&self, system: &str, schema: &str) -> bool {
        let mut moved = self.moved.iter();
        self.gone.contains(&label(system, schema))
            || moved.any(|m| m.system == system && m.schema == schema)
    }

    /// The system of that name and schema, where it is half there.
    pub fn half_of(&self, system: &str, schema: &str) -> Option<&HalfThere> {
        let mut half = self.half_there.iter();
        half.find(|h| h.system == system && h.schema == schema)
    }

    /// The first of the systems that are half there, where none is whole.
    pub fn all_half(&self) -> Option<&HalfThere> {
        let totals = self.totals.iter().map(|t| (&t.system, &t.schema));
        let mut systems = totals.chain(self.queues.iter().map(|q| (&q.system, &q.schema)));
        let half = systems.all(|(system, schema)| self.half_of(system, schema).is_some());
        self.half_there.first().filter(|_| half)
    }

    /// What is known now: without what was read last of systems that are half there. Spend is of all systems together,
    /// and stays.
    pub fn known(&self) -> Cow<'_, Self> {
        if self.half_there.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut known = self.clone();
        let is = |system: &str, schema: &str| self.half_of(system, schema).is_none();
        known.queues.retain(|q| is(&q.system, &q.schema));
        known.totals.retain(|t| is(&t.system, &t.schema));
        known.stages.retain(|s| is(&s.system, &s.schema));
        known.flow.retain(|f| is(&f.system, &f.schema));
        known.attempts.retain(|a| is(&a.system, &a.schema));
        known.leases.retain(|l| is(&l.system, &l.schema));
        known.workers.retain(|w| is(&w.system, &w.schema));
        known.poison.retain(|p| is(&p.key.system, &p.key.schema));
        known.violations.retain(|v| is(&v.system, &v.schema));
        known.failures.retain(|f| is(&f.system, &f.schema));
        let rows = &mut known.tasks.rows;
        rows.retain(|t| is(&t.key.system, &t.key.schema));
        Cow::Owned(known)
    }
}
