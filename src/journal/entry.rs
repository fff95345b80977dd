//! One line of the journal.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the lines written here. Fields are added, never renamed: a reader takes any line that has those it knows.
pub const FORMAT: u32 = 1;

/// When a line was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before the transaction was sent.
    Begun,
    /// After its outcome was known, or known to be unknown.
    Ended,
}

/// One line: an action before it was sent, or after it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// [`FORMAT`].
    pub format: u32,
    /// When, by this machine's clock.
    pub at: DateTime<Utc>,
    /// Before or after.
    pub phase: Phase,
    /// Names the action; both phases and the queue's own journal carry the same.
    pub action_id: String,
    /// What was done: `requeue`, `cancel`.
    pub action: String,
    /// The person at the keyboard, see [`person`](super::person).
    pub who: String,
    /// The database role.
    pub db_user: String,
    /// This machine's name.
    pub host: Option<String>,
    /// Its address as the server sees it; none over a socket.
    pub client_addr: Option<String>,
    /// `host:port`, or the socket.
    pub server: String,
    /// Database.
    pub database: String,
    /// Queue system.
    pub system: String,
    /// Schema that it lives in.
    pub schema: String,
    /// Why, in the operator's words.
    pub reason: Option<String>,
    /// The exact statement.
    pub sql: Option<String>,
    /// How many the whole action asks for, in all its transactions; none in lines of an older jobtop.
    pub of: Option<u64>,
    /// The ids asked for.
    #[serde(default)]
    pub ids: Vec<String>,
    /// How many were asked for; none in `begun`, as are the next three.
    pub asked: Option<u64>,
    /// How many were changed (or, for a running task, asked to stop).
    pub changed: Option<u64>,
    /// How many were not.
    pub skipped: Option<u64>,
    /// How many of them may or may not have been changed; none in lines of an older jobtop.
    pub unknown: Option<u64>,
    /// What became of each id.
    #[serde(default)]
    pub outcomes: BTreeMap<String, String>,
    /// Why nothing was done, or is not known to be done, in one sentence.
    pub error: Option<String>,
}
