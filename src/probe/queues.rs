//! Depth of every queue: exact where cheap, bounded where large.

use super::{Bound, Count, State};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub mod depth;
pub mod estimate;
pub mod invariants;

/// One queue of one system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// Profile that reads it.
    pub system: String,
    /// Schema it lives in.
    pub schema: String,
    /// Its name.
    pub queue: String,
    /// Tasks by neutral state; `None` where the system does not record that state (see `notes`). Final states are
    /// those finished within the window, unless marked as estimates.
    pub states: BTreeMap<State, Option<Count>>,
    /// Tasks that may run at once, where the system has such a limit.
    pub limit: Option<u32>,
    /// Ready tasks whose row a transaction holds (claimed but not committed, say): at least.
    pub locked: u32,
    /// Age of the oldest task that is due, unlocked and ready, since it became eligible, in seconds.
    pub oldest_ready_s: Option<f64>,
    /// Overdue retryable tasks that nobody claims (systems whose workers do not look at them).
    pub overdue_retryable: u32,
    /// Arrivals a minute, over the last five minutes.
    pub in_per_min: Option<f64>,
    /// Tasks finished a minute, over the last five minutes.
    pub finished_per_min: Option<f64>,
    /// Attempts that failed a minute, over the last five minutes.
    pub failed_attempts_per_min: Option<f64>,
    /// Tasks that gave up during the last hour.
    pub failed_1h: Option<u32>,
    /// Seconds since a task was last claimed, where it can be known.
    pub last_claim_s: Option<f64>,
    /// Seconds since the last arrival, and the longest gap between arrivals over the history we have.
    pub last_arrival_s: Option<f64>,
    /// Longest gap between arrivals within `arrival_history_s`, in seconds.
    pub longest_gap_s: Option<f64>,
    /// How far back arrivals were looked at, in seconds.
    pub arrival_history_s: f64,
    /// Running tasks that run longer than their kind's usual p95.
    pub over_usual: Option<u32>,
    /// Running tasks whose lease lasts and whose kind has a usual p95 (the denominator of `over_usual`).
    pub over_usual_of: u32,
    /// Depth by kind, largest first, at most 20.
    pub kinds: Vec<Kind>,
    /// Kinds beyond those.
    #[serde(default)]
    pub more_kinds: u32,
    /// A paused queue is not stalled.
    pub paused: bool,
    /// What is not known here, and why.
    pub notes: Vec<String>,
}

/// Finished tasks of a system over all time, from the planner's statistics; `other` counts native states that its
/// profile does not know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Profile.
    pub system: String,
    /// Schema.
    pub schema: String,
    /// By state; empty where there are no statistics.
    pub states: BTreeMap<State, Count>,
    /// Its rows can carry a cancel request, so that a running task can be asked to stop.
    #[serde(default)]
    pub asks_to_stop: bool,
}

/// Kinds of a queue that are kept apart at most.
pub const KINDS: usize = 20;

/// Depth of one kind of task within a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kind {
    /// Its name.
    pub kind: String,
    /// Ready tasks.
    pub ready: u32,
    /// Running tasks.
    pub running: u32,
    /// Age of the oldest ready one, in seconds.
    pub oldest_ready_s: Option<f64>,
    /// Seconds since one was last claimed, looking back an hour; `None` when none was.
    pub last_claim_s: Option<f64>,
}

impl Queue {
    /// Exact, bounded or estimated number of tasks in a state; 0 where none was seen, `None` where unknown.
    pub fn count(&self, state: State) -> Option<Count> {
        match self.states.get(&state) {
            Some(count) => *count,
            None => Some(Count::exact(0)),
        }
    }

    /// Number of tasks in a state, 0 where unknown.
    pub fn n(&self, state: State) -> u64 {
        self.count(state).map_or(0, |c| c.count)
    }

    /// `+` where [`n`](Self::n) is "at least", else nothing.
    pub fn plus(&self, state: State) -> &'static str {
        match self.count(state).map(|c| c.bound) {
            Some(Bound::AtLeast) => "+",
            _ => "",
        }
    }
}

/// Something that a sound queue never holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Invariant {
    /// Running without a lease, in a system that gives leases.
    RunsWithoutLease,
    /// Running, but nobody's.
    RunsWithoutOwner,
    /// Running with no open attempt, in a system that records attempts.
    RunsWithoutAttempt,
    /// More than one attempt of a task is open.
    ManyOpenAttempts,
    /// More than one attempt of a task succeeded.
    SucceededTwice,
    /// Usage reported for a task that does not exist.
    UsageWithoutTask,
    /// Claimed before it was created.
    ClaimedBeforeCreated,
}

/// Rows of a queue that break an invariant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Violation {
    /// Profile.
    pub system: String,
    /// Schema.
    pub schema: String,
    /// Which invariant.
    pub rule: Invariant,
    /// Ids of at most ten of the tasks, as text; call ids for usage without a task.
    #[serde(default)]
    pub ids: Vec<String>,
    /// How many rows break it.
    pub n: u64,
}
