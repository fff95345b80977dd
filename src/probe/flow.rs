//! Arrivals, finished tasks and failed attempts by minute, backfilled at start, then kept up by deltas.

use super::{ServerTime, Usd};
use serde::{Deserialize, Serialize};

pub mod arrivals;
pub mod failing;
pub mod history;
pub mod percentiles;
pub mod read;
pub mod report;
pub mod slots;
pub mod tries;

pub use history::History;

/// One queue by minute, oldest first. The last minute is the running one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Profile.
    pub system: String,
    /// Schema.
    pub schema: String,
    /// Queue.
    pub queue: String,
    /// Start of the first minute.
    pub from: Option<ServerTime>,
    /// Tasks created, per minute.
    pub arrived: Option<Vec<u32>>,
    /// Tasks finished (succeeded, failed, cancelled), per minute.
    pub finished: Option<Vec<u32>>,
    /// Attempts that failed, per minute.
    pub failed_attempts: Option<Vec<u32>>,
    /// What is missing, and why.
    pub unknown: Option<String>,
}

/// Attempts of a kind or tenant: the last ten minutes against the fifty before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attempts {
    /// Profile.
    pub system: String,
    /// Schema.
    pub schema: String,
    /// Queue (empty for a tenant).
    pub queue: String,
    /// `kind` or `tenant`.
    pub by: String,
    /// Its name.
    pub name: String,
    /// Attempts that ended in the last 10 minutes.
    pub recent: u32,
    /// Of those, failed.
    pub recent_failed: u32,
    /// Attempts that ended in the 50 minutes before.
    pub before: u32,
    /// Of those, failed.
    pub before_failed: u32,
    /// Commonest error of the last 10 minutes, first line, with ids and numbers taken out.
    pub error: Option<String>,
    /// How many failed attempts had it.
    pub error_n: u32,
    /// Spent on the failed attempts of the last 10 minutes.
    pub lost: Option<Usd>,
    /// Attempts per task in the last 10 minutes.
    pub tries_per_task: Option<f64>,
    /// Start of the ten-second bucket since which at least half failed.
    pub failing_since: Option<ServerTime>,
}
