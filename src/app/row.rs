//! What a cursor, a mark or a finding points at: a row by identity, never by position, since rows move.

use crate::probe::tasks::TaskKey;
use serde::{Deserialize, Serialize};

/// The identity of a row in any pane.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowId {
    /// A task.
    Task(TaskKey),
    /// A session by pid and by its start in microseconds since 1970 (a pid is reused).
    Session {
        /// Backend pid.
        pid: i32,
        /// backend_start.
        started_us: i64,
    },
    /// Idle sessions alike in role and application.
    Idle {
        /// application_name.
        application: String,
        /// Role.
        user: String,
        /// Client address.
        client: String,
    },
    /// A connection budget.
    Budget(String),
    /// Something active sessions wait for.
    Wait {
        /// wait_event_type.
        kind: String,
        /// wait_event.
        event: String,
    },
    /// A queue, or one kind within it.
    Queue {
        /// Profile.
        system: String,
        /// Schema.
        schema: String,
        /// Queue.
        queue: String,
        /// Kind, for rows about one.
        kind: Option<String>,
    },
    /// A worker.
    Worker {
        /// Profile.
        system: String,
        /// Schema.
        schema: String,
        /// Its name in the task rows.
        worker: String,
    },
    /// An agent, tenant, application or model.
    Spender {
        /// `agent`, `tenant`, `application` or `model`.
        by: String,
        /// Its name.
        name: String,
    },
    /// Failed tasks alike in kind and error.
    Failures {
        /// Profile.
        system: String,
        /// Schema.
        schema: String,
        /// Kind.
        kind: Option<String>,
        /// What the errors have in common, redacted.
        error: String,
    },
    /// A table of a queue.
    Table(String),
    /// A finding, by rule and a number among those of the rule.
    Finding {
        /// Rule.
        rule: String,
        /// Number.
        n: usize,
    },
    /// A line of the log.
    Log(u64),
}

impl RowId {
    /// Profile and schema of the queue system that a row belongs to, where it says so.
    pub fn home(&self) -> Option<(&str, &str)> {
        match self {
            RowId::Task(key) => Some((&key.system, &key.schema)),
            RowId::Queue { system, schema, .. }
            | RowId::Worker { system, schema, .. }
            | RowId::Failures { system, schema, .. } => Some((system, schema)),
            _ => None,
        }
    }

    /// What a person would call the row: an id, a pid, a name.
    pub fn short(&self) -> String {
        match self {
            RowId::Task(key) => key.id.clone(),
            RowId::Session { pid, .. } => pid.to_string(),
            RowId::Idle { application, .. } => application.clone(),
            RowId::Budget(name) | RowId::Table(name) => name.clone(),
            RowId::Wait { kind, event } => format!("{kind}:{event}"),
            RowId::Queue { queue, kind, .. } => kind.clone().unwrap_or_else(|| queue.clone()),
            RowId::Worker { worker, .. } => worker.clone(),
            RowId::Spender { name, .. } => name.clone(),
            RowId::Failures { error, .. } => error.clone(),
            RowId::Finding { rule, .. } => rule.clone(),
            RowId::Log(n) => n.to_string(),
        }
    }
}
