//! Failed tasks of the last day, grouped by kind and by what their errors have in common. Dear, so it is read only while
//! somebody looks.

use super::tasks::TaskKey;
use super::{Count, ServerTime, Usd};
use serde::{Deserialize, Serialize};

mod groups;
mod normal;
mod read;

pub use normal::{KEPT, NO_TEXT, normalised};
pub use read::poll;

/// Failed tasks read at most, the newest ones.
pub const ROWS: u64 = 5_000;
/// Groups shown at most, the largest ones.
pub const GROUPS: usize = 50;
/// The look back, in seconds.
pub const DAY: f64 = 86_400.0;

/// What failed in one queue system within a day.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Failures {
    /// Profile.
    pub system: String,
    /// Schema.
    pub schema: String,
    /// The server's clock when it was read.
    pub read_at: Option<ServerTime>,
    /// Failed tasks read; `None` where nothing is known.
    pub read: Option<Count>,
    /// From when on every failed task is counted, where there were more than could be read.
    pub complete_from: Option<ServerTime>,
    /// Groups found among them; no more than 50 are listed.
    pub found: u64,
    /// Groups, the largest first.
    pub groups: Vec<FailureGroup>,
    /// What the figures leave out.
    pub notes: Vec<String>,
    /// Why nothing is known; `None` where something is.
    pub unknown: Option<String>,
}

/// Failed tasks alike in kind and error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailureGroup {
    /// Kind.
    pub kind: Option<String>,
    /// What the errors have in common (see [`normalised`]), redacted.
    pub error: String,
    /// The same as the server has it, to select the tasks by `normalised(…) = ANY (…)`: one, or several that look alike
    /// once redacted. Never leaves the program.
    #[serde(skip)]
    pub exact: Vec<String>,
    /// Failed within an hour.
    pub last_1h: Count,
    /// Within three hours.
    pub last_3h: Count,
    /// Within a day.
    pub last_24h: Count,
    /// The first one within a day, as far as they were read.
    pub first_seen: Option<ServerTime>,
    /// The last one.
    pub last_seen: Option<ServerTime>,
    /// What the tasks read have spent, all attempts; `None` where that is not recorded.
    pub usd: Option<Usd>,
    /// Their queues, at most 8.
    pub queues: Vec<String>,
    /// The newest of them, at most 5.
    pub samples: Vec<Sample>,
}

/// A failed task of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Which task.
    #[serde(flatten)]
    pub key: TaskKey,
    /// When it failed.
    pub at: Option<ServerTime>,
    /// The first 200 characters of its error, redacted.
    pub error: Option<String>,
}
