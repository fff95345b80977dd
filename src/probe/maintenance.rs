//! What makes a queue slow from below: snapshots that stop vacuum, dead rows, reads per claim, the
//! notification queue.

use serde::{Deserialize, Serialize};

/// Vacuum, snapshots and the notification queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Maintenance {
    /// Whoever holds back the oldest row version that vacuum may remove.
    pub xmin_holder: Option<XminHolder>,
    /// The tables that queues live in.
    pub tables: Vec<Table>,
    /// pg_notification_queue_usage(), 0 to 1.
    pub notify_queue: Option<f64>,
    /// Whom to blame when the notification queue fills: pid, application, why.
    pub notify_blame: Option<(i32, String, String)>,
}

/// A session, replication slot, prepared transaction or standby that stops vacuum.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct XminHolder {
    /// `session`, `replication slot`, `prepared transaction` or `standby`.
    pub kind: String,
    /// application_name, slot name or transaction name.
    pub name: String,
    /// Backend pid, for sessions and standbys.
    pub pid: Option<i32>,
    /// How long it has been holding, in seconds, where it can be known.
    pub held_s: Option<f64>,
    /// Transactions since its xmin.
    pub age_xids: i64,
}

/// One table of a queue, from the statistics views.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Schema-qualified name.
    pub name: String,
    /// n_live_tup.
    pub live: u64,
    /// n_dead_tup.
    pub dead: u64,
    /// Index entries read per scan of the claim index over the last few refreshes; `None` until it was scanned.
    pub reads_per_claim: Option<f64>,
    /// The same soon after the last vacuum that we saw, or the smallest seen.
    pub reads_per_claim_usual: Option<f64>,
}
