//! The part of a profile that says what an operator may do.

use super::profile::Sql;
use crate::action::Verb;
use serde::Deserialize;
use std::collections::BTreeMap;

/// What an operator may do.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Actions {
    /// FROM of the table that an action changes, with its alias (`{schema}.jobs j`).
    pub target: Option<Sql>,
    /// Its key (`j.id`), unique within a branch.
    pub key: Option<Sql>,
    /// The key's type, to turn an id back (`bigint`, `{key:type}`).
    pub key_type: Option<Sql>,
    /// Further condition on the target (`j.name = {q:literal}`).
    pub within: Option<Sql>,
    /// The number that must still be what was seen (attempt or lease token); it exists on every row.
    pub version: Option<Sql>,
    /// Make it claimable again.
    pub requeue: Option<Action>,
    /// The same, with a full new set of tries.
    pub requeue_fresh: Option<Action>,
    /// Call it off.
    pub cancel: Option<Action>,
    /// Take it away from an owner whose lease has expired.
    pub release: Option<Action>,
    /// Make it due at once.
    pub run_now: Option<Action>,
    /// Give it another priority: `:priority`, an int8.
    pub priority: Option<Action>,
    /// Put it out of the workers' sight.
    pub park: Option<Action>,
    /// Put it back into their sight.
    pub unpark: Option<Action>,
}

impl Actions {
    /// What the profile says about a verb.
    pub fn of(&self, verb: Verb) -> Option<&Action> {
        let mut each = self.each().into_iter();
        each.find(|(key, _)| *key == verb.name())?.1
    }

    /// Each action under its key in the profile.
    pub fn each(&self) -> [(&'static str, Option<&Action>); 8] {
        [
            ("requeue", self.requeue.as_ref()),
            ("requeue_fresh", self.requeue_fresh.as_ref()),
            ("cancel", self.cancel.as_ref()),
            ("release", self.release.as_ref()),
            ("run_now", self.run_now.as_ref()),
            ("priority", self.priority.as_ref()),
            ("park", self.park.as_ref()),
            ("unpark", self.unpark.as_ref()),
        ]
    }
}

/// One action: `refuse`, or `set`, `call` or `statement`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// It cannot be done, and why.
    pub refuse: Option<String>,
    /// Which rows it takes, in native terms over the target.
    pub when: Option<Sql>,
    /// SET list of the UPDATE.
    pub set: Option<Sql>,
    /// Further columns to set, by name in `[optional]`, where they exist.
    #[serde(default)]
    pub also_set: BTreeMap<String, Sql>,
    /// SELECT that does it for one locked and re-checked row, whose key is `:id`.
    pub call: Option<Sql>,
    /// A whole statement that checks by itself: from `:ids`, `:seen`, `:tokens`, `:attempts`, `:reason` (and
    /// `:priority`) to rows of id, outcome, now_state, why.
    pub statement: Option<Sql>,
    /// What it amounts to.
    #[serde(default)]
    pub effect: Effect,
    /// Rows that it does not take: native condition and the reason, first match wins.
    #[serde(default)]
    pub except: Vec<Except>,
}

/// Rows that an action does not take.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Except {
    /// Native condition over the target.
    pub when: Sql,
    /// Why not.
    pub why: String,
}

/// What an action amounts to.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The task is in its new state.
    #[default]
    Changed,
    /// The worker was asked.
    Requested,
    /// The task was let go and comes back by itself.
    Released,
}
