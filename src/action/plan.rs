//! What is about to be done, frozen: the tasks as the operator saw them.

use super::Verb;
use crate::probe::State;
use crate::probe::tasks::{Filter, Task, TaskKey};
use serde::{Deserialize, Serialize};

/// Which tasks the operator points at.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// These; all of one system and schema.
    These(Vec<TaskKey>),
    /// All that match, on the server, of one system and schema.
    Matching {
        /// Profile.
        system: String,
        /// Schema.
        schema: String,
        /// Which.
        filter: Box<Filter>,
    },
}

impl Choice {
    /// Profile and schema; `None` where nothing is chosen.
    pub fn home(&self) -> Option<(&str, &str)> {
        match self {
            Choice::These(keys) => keys.first().map(|k| (k.system.as_str(), k.schema.as_str())),
            Choice::Matching { system, schema, .. } => Some((system, schema)),
        }
    }
}

/// A task as the operator saw it: the write applies only if it still is that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// What names it.
    pub key: TaskKey,
    /// Neutral state seen.
    pub state: State,
    /// Native state seen.
    pub native_state: String,
    /// Attempt seen.
    pub attempt: Option<i64>,
    /// Lease token seen.
    pub lease_token: Option<i64>,
}

impl Target {
    /// The task as it was read.
    pub fn of(task: &Task) -> Self {
        Self {
            key: task.key.clone(),
            state: task.state,
            native_state: task.native_state.clone(),
            attempt: task.attempt,
            lease_token: task.lease_token,
        }
    }
}

/// What was confirmed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What.
    pub verb: Verb,
    /// To which tasks, in key order; all of one system and schema.
    pub targets: Vec<Target>,
    /// Names this action in the journals.
    pub action_id: String,
    /// Why, in the operator's words.
    pub reason: Option<String>,
}

impl Plan {
    /// A plan with a name of its own: it may be carried out once.
    pub fn new(verb: Verb, targets: Vec<Target>, reason: Option<String>) -> Self {
        Self {
            verb,
            targets,
            action_id: new_id(),
            reason,
        }
    }
}

/// A name for an action that no other has.
pub(super) fn new_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// What became of one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fate {
    /// What names it.
    pub key: TaskKey,
    /// `changed`, `requested`, `released`, `locked`, `moved on`, `gone`, `refused` or `failed`.
    pub outcome: String,
    /// Why it was refused or failed, in the system's own words.
    pub why: Option<String>,
    /// Its native state now, where it still exists.
    pub now_state: Option<String>,
}

impl Fate {
    /// Was it changed (or, for a running task, was the request set)?
    pub fn done(&self) -> bool {
        matches!(self.outcome.as_str(), "changed" | "requested" | "released")
    }

    /// The outcome as a person reads it.
    pub fn words(&self) -> &str {
        match (self.outcome.as_str(), &self.why) {
            ("refused" | "failed", Some(why)) => why,
            ("locked", _) => "locked by another session",
            ("moved on", _) => "changed since it was seen",
            (outcome, _) => outcome,
        }
    }
}
