//! What the operator does: a plan with frozen ids, one short transaction, an outcome per id, a journal row.

use crate::probe::State;
use crate::probe::tasks::TaskKey;
use serde::{Deserialize, Serialize};

/// What can be done to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Make it claimable again.
    Requeue,
    /// Call it off; a running task is asked to stop.
    Cancel,
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

/// What is about to be done, frozen when the dialog opens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What.
    pub verb: Verb,
    /// To which tasks; all of one system and schema.
    pub targets: Vec<Target>,
    /// Names this action in the journal.
    pub action_id: String,
    /// Why, in the operator's words.
    pub reason: Option<String>,
}
