//! How far an action has come, for whoever watches it.

/// How far a run has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Names the action.
    pub action_id: String,
    /// Targets of the plan.
    pub asked: u64,
    /// Targets whose fate is known.
    pub done: u64,
    /// Of those, changed.
    pub changed: u64,
    /// Targets a second so far.
    pub per_second: f64,
    /// Waiting for rows that others have locked.
    pub locked: u64,
}
