//! Leases: which have expired, who holds what, which task loses its workers again and again.

use super::ServerTime;
use super::tasks::TaskKey;
use serde::{Deserialize, Serialize};

pub mod poison;
pub mod read;
pub mod sessions;
pub mod skew;

pub use sessions::{Memory, match_sessions};

/// A running task that is stuck: its lease has expired, or its system's own rule says so.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// Profile.
    pub system: String,
    /// Schema.
    pub schema: String,
    /// Queue.
    pub queue: String,
    /// Task id, as text.
    pub task: String,
    /// Kind.
    pub kind: Option<String>,
    /// Worker that holds it, where the system records one.
    pub worker: Option<String>,
    /// Seconds since the lease ended; `None` where it has no end (a NULL lease).
    pub overdue_s: Option<f64>,
    /// Attempt.
    pub attempt: Option<i64>,
    /// Lease token, where the system has fencing.
    pub lease_token: Option<i64>,
    /// Age of an unacknowledged cancel request, in seconds.
    pub cancel_requested_s: Option<f64>,
    /// The rule that calls it stuck.
    pub rule: String,
    /// Is a session of its worker seen?
    pub session: Seen,
}

/// Whether a session of a worker is connected. Absence proves nothing: good workers give connections back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// A session with the worker's name is connected.
    Seen,
    /// None is, but one was, or most other workers can be matched.
    None,
    /// Cannot be told.
    #[default]
    Unknown,
}

/// A worker, as the running tasks and recent attempts show it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Profile.
    pub system: String,
    /// Schema.
    pub schema: String,
    /// Its name in the task rows.
    pub worker: String,
    /// Version it reports.
    pub version: Option<String>,
    /// Running tasks it holds.
    pub holds: u32,
    /// Attempts it finished a minute, over ten minutes.
    pub done_per_min: Option<f64>,
    /// Share of its attempts that failed over ten minutes, 0 to 1; `None` below 5 attempts.
    pub fail_share: Option<f64>,
    /// Its clock minus the server's, in seconds, where claims show it.
    pub clock_skew_s: Option<f64>,
    /// Claims that the skew rests on.
    pub clock_samples: u32,
    /// The next lease of its to end.
    pub next_expiry: Option<ServerTime>,
    /// Seconds until then; negative when overdue.
    pub next_expiry_s: Option<f64>,
    /// Age of its newest heartbeat, in seconds.
    pub heartbeat_s: Option<f64>,
    /// Whether a session of its is connected.
    pub session: Seen,
    /// State and wait of that session, short (`idle tx`, `waiting`).
    pub session_state: Option<String>,
    /// Seconds for which a session that was once seen has been absent.
    pub absent_s: Option<f64>,
}

/// A task that lost worker after worker: attempts that ended without an outcome of the worker's own, because its
/// lease ran out. Attempts lost in a minute in which at least 30 % of the workers vanished (a deploy) don't count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Poison {
    /// The task.
    #[serde(flatten)]
    pub key: TaskKey,
    /// Attempts lost, at least two.
    pub lost_attempts: u32,
    /// Different workers that lost them.
    pub workers: u32,
    /// From the first loss to the last, in seconds.
    pub over_s: f64,
}
