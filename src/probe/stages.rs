//! Time spent per stage. Finished attempts are summed in SQL into 10-second buckets of log-scale bins, which
//! are re-read and replaced; percentiles come from merged bins.

use serde::{Deserialize, Serialize};

/// The stages of a task's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageName {
    /// Eligible to claimed.
    Wait,
    /// Claimed to started.
    Start,
    /// Started to finished.
    Run,
    /// Created to finished.
    Total,
}

/// One stage of one queue (or of one kind within it), over the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Profile.
    pub system: String,
    /// Schema.
    pub schema: String,
    /// Queue.
    pub queue: String,
    /// Kind, or `None` for the whole queue.
    pub kind: Option<String>,
    /// Which stage.
    pub stage: StageName,
    /// Samples.
    pub n: u64,
    /// Median, in seconds.
    pub p50_s: Option<f64>,
    /// 95th percentile, in seconds.
    pub p95_s: Option<f64>,
    /// Largest, in seconds.
    pub max_s: Option<f64>,
    /// Median of the last ten minutes, in seconds, for the trend.
    pub recent_p50_s: Option<f64>,
    /// Why there is no figure: never 0, never negative.
    pub unknown: Option<String>,
}
