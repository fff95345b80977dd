//! Task rows: the ones most in need of attention, and one task whole on demand.

use super::{ServerTime, State, Usd};
use serde::{Deserialize, Serialize};

pub mod collect;
pub mod detail;
pub mod list;
pub mod query;
pub mod redact;
pub mod row;

pub use detail::detail;
pub use query::{Filter, query};

/// The list behind the tasks pane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskList {
    /// Rows, most in need of attention first.
    pub rows: Vec<Task>,
    /// Why the list is not complete, if so.
    pub note: Option<String>,
}

/// What names a task across systems.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskKey {
    /// Profile.
    pub system: String,
    /// Schema.
    pub schema: String,
    /// Queue: needed by systems whose ids are unique only within one.
    pub queue: String,
    /// Id, as text.
    pub id: String,
}

/// A neutral task row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// What names it.
    #[serde(flatten)]
    pub key: TaskKey,
    /// Kind.
    pub kind: Option<String>,
    /// Neutral state.
    pub state: State,
    /// The system's own word.
    pub native_state: String,
    /// As stored; whether high or low goes first differs by system.
    pub priority: Option<f64>,
    /// Created.
    pub created_at: Option<ServerTime>,
    /// Due.
    pub eligible_at: Option<ServerTime>,
    /// Claimed.
    pub claimed_at: Option<ServerTime>,
    /// Started.
    pub started_at: Option<ServerTime>,
    /// Finished.
    pub finished_at: Option<ServerTime>,
    /// Lease end.
    pub lease_until: Option<ServerTime>,
    /// Newest heartbeat.
    pub heartbeat_at: Option<ServerTime>,
    /// Called stuck by a rule of its profile: the rule's name.
    pub stuck: Option<String>,
    /// Who works on it.
    pub worker: Option<String>,
    /// Tries so far.
    pub attempt: Option<i64>,
    /// Tries allowed.
    pub max_attempts: Option<i64>,
    /// Fencing number.
    pub lease_token: Option<i64>,
    /// First line of the last error, at most 200 characters.
    pub last_error: Option<String>,
    /// Agent.
    pub agent: Option<String>,
    /// Tenant.
    pub tenant: Option<String>,
    /// Application.
    pub application: Option<String>,
    /// Batch.
    pub batch: Option<String>,
    /// A cancel was requested then.
    pub cancel_requested_at: Option<ServerTime>,
    /// Spent so far, all attempts; `None` where unknown.
    pub cost_usd: Option<Usd>,
    /// Pid of the session whose open transaction has locked or changed the row.
    pub locked_by_pid: Option<i32>,
    /// How long the row has been in its state, in seconds, where its times tell.
    pub in_state_s: Option<f64>,
}

/// Everything about one task, fetched on demand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskDetail {
    /// The row.
    pub task: Task,
    /// Its tries, oldest first.
    pub attempts: Vec<Attempt>,
    /// Payload, redacted and cut.
    pub payload: Option<Text>,
    /// Result, redacted and cut.
    pub result: Option<Text>,
    /// The worker's own confidence.
    pub confidence: Option<f64>,
    /// The whole last error, redacted and cut.
    pub error: Option<Text>,
    /// Batch progress by state, where it is in one.
    pub batch: Vec<(State, u64)>,
    /// Further native columns worth showing: name, value.
    pub more: Vec<(String, String)>,
}

/// One try of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Number, from 1.
    pub attempt: Option<i64>,
    /// Who worked.
    pub worker: Option<String>,
    /// Claimed.
    pub claimed_at: Option<ServerTime>,
    /// Started.
    pub started_at: Option<ServerTime>,
    /// Finished.
    pub finished_at: Option<ServerTime>,
    /// The system's own word.
    pub outcome: Option<String>,
    /// First line.
    pub error: Option<String>,
    /// Run id of the worker's own tracing.
    pub run_id: Option<String>,
    /// Trace id.
    pub trace_id: Option<String>,
    /// Input tokens.
    pub input_tokens: Option<u64>,
    /// Output tokens.
    pub output_tokens: Option<u64>,
    /// Spent.
    pub cost_usd: Option<Usd>,
}

/// A text that may be cut.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Text {
    /// What was fetched.
    pub text: String,
    /// Bytes of the whole on the server.
    pub bytes: u64,
}
