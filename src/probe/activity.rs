//! Sessions: who is connected, in what state, waiting for what, behind whom. Reads `pg_stat_activity` only, so
//! it works while every task table is locked.

use super::ServerTime;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Connection occupancy. `used`, `hidden` and budgets are cluster-wide, `states` are this database's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connections {
    /// `max_connections`.
    pub max: u32,
    /// Slots no ordinary role gets: superuser_reserved_connections + reserved_connections (16+).
    pub reserved: u32,
    /// Client backends of the whole cluster.
    pub used: u32,
    /// Sessions whose state we may not see.
    pub hidden: u32,
    /// Client sessions of this database by state.
    pub states: BTreeMap<String, u32>,
    /// Used against limit, in configured order; the last one is `unbudgeted`, without limit.
    pub budgets: Vec<Budget>,
    /// Age of the oldest open transaction of this database, in seconds.
    pub oldest_transaction_s: Option<f64>,
    /// New sessions a second in this database (14+), over the last few refreshes.
    pub logins_per_s: Option<f64>,
    /// Deadlocks since we connected.
    pub deadlocks: Option<u64>,
}

/// A named share of `max_connections`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// From the configuration.
    pub name: String,
    /// Sessions it may hold; `None` for the rest that no budget names.
    pub limit: Option<u32>,
    /// Sessions it holds, cluster-wide.
    pub used: u32,
    /// Of those in this database: running a statement.
    pub active: u32,
    /// Idle.
    pub idle: u32,
    /// Idle in transaction, aborted or not.
    pub idle_in_transaction: u32,
    /// Oldest open transaction, in seconds.
    pub oldest_transaction_s: Option<f64>,
}

/// Active sessions that wait for the same thing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// `Lock`, `IO`, `LWLock`, …; `CPU` where an active session waits for nothing.
    #[serde(rename = "type")]
    pub kind: String,
    /// `transactionid`, `WALWrite`, …; empty for CPU.
    pub event: String,
    /// How many.
    pub sessions: u32,
}

/// A session that waits for a lock, and whom for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Blocked {
    /// Who waits.
    pub pid: i32,
    /// pg_blocking_pids: holders, and those ahead in the queue.
    pub blocked_by: Vec<i32>,
    /// For how long, in seconds.
    pub waiting_s: f64,
    /// `relation`, `transactionid`, `tuple`, …
    pub lock_type: String,
    /// The relation waited for, schema-qualified, where the lock is on one.
    pub relation: Option<String>,
    /// `AccessExclusiveLock`, …
    pub mode: Option<String>,
}

/// One client session; `pid` is `None` for a group of idle ones alike in role, application and client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Backend pid.
    pub pid: Option<i32>,
    /// When the backend started: with the pid it names the session (a pid is reused).
    pub backend_start: Option<ServerTime>,
    /// How many sessions this row stands for (1 unless idle).
    pub count: u32,
    /// application_name.
    pub application: String,
    /// Role.
    pub user: String,
    /// Database.
    pub database: String,
    /// Client address; `None` on a socket.
    pub client: Option<String>,
    /// `active`, `idle`, `idle in transaction`, …; `None` where privileges hide it.
    pub state: Option<String>,
    /// wait_event_type.
    pub wait_type: Option<String>,
    /// wait_event.
    pub wait_event: Option<String>,
    /// Age of the transaction, in seconds.
    pub xact_s: Option<f64>,
    /// Age of the running statement, in seconds.
    pub query_s: Option<f64>,
    /// Time in the present state, in seconds.
    pub state_s: Option<f64>,
    /// Holds a snapshot or transaction id that vacuum must respect; its age in transactions.
    pub xmin_age: Option<i64>,
    /// Name of the budget it counts against.
    pub budget: String,
    /// Live tasks whose rows its open transaction has locked or changed ("at least").
    pub task_rows: u32,
    /// First words of the statement (`UPDATE tasks`), never its values.
    pub verb: Option<String>,
    /// This is jobtop's own session.
    pub own: bool,
}

impl Session {
    /// Idle in transaction, aborted or not.
    pub fn idle_in_transaction(&self) -> bool {
        self.state
            .as_deref()
            .is_some_and(|s| s.starts_with("idle in transaction"))
    }
}
