//! Spend: tokens and money by agent, tenant, application, task and attempt.

use super::{Snapshot, Usd};
use serde::{Deserialize, Serialize};

pub mod ledger;
pub mod read;
pub mod total;

pub use ledger::Ledger;

/// Spend over the window, summed over every queue that records it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Length of the window, in seconds.
    pub window_s: f64,
    /// Model and compute cost.
    pub usd: Usd,
    /// Model cost.
    pub model_usd: Usd,
    /// Compute cost.
    pub compute_usd: Usd,
    /// Burn rate: the last ten minutes, per hour.
    pub usd_per_hour: Usd,
    /// The same over the rest of the window; `None` below 50 records.
    pub usual_usd_per_hour: Option<Usd>,
    /// Spent on attempts that failed or were superseded.
    pub usd_failed_attempts: Usd,
    /// Spent so far by tasks that run now.
    pub usd_running: Usd,
    /// Input tokens.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Tokens without a price: not $0.
    pub unpriced_tokens: u64,
    /// By agent, most expensive first.
    pub by_agent: Vec<Spender>,
    /// By tenant.
    pub by_tenant: Vec<Spender>,
    /// By application.
    pub by_application: Vec<Spender>,
    /// By model.
    pub by_model: Vec<Spender>,
    /// The most expensive tasks.
    pub top_tasks: Vec<TopTask>,
    /// Systems that record no cost, and why.
    pub notes: Vec<String>,
}

/// An agent, tenant, application or model, and what it spent over the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spender {
    /// Its name; `(none)` where the rows have none.
    pub name: String,
    /// Spent over the window.
    pub usd: Usd,
    /// Of that, on failed or superseded attempts.
    pub usd_failed_attempts: Usd,
    /// Input tokens.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Tokens without a price.
    pub unpriced_tokens: u64,
    /// Burn rate: the last ten minutes, per hour.
    pub usd_per_hour: Usd,
    /// The same over the rest of the window; `None` below 50 records.
    pub usual_usd_per_hour: Option<Usd>,
    /// Burn rate of the moment: the last `cost_still` seconds, per hour; `None` until so much is known.
    #[serde(default)]
    pub usd_per_hour_now: Option<Usd>,
    /// Attempts per task over the last ten minutes. Counted for tenants of whose attempts two of five fail; `None` for
    /// others, and for agents, applications and models, by which attempts are not counted.
    pub tries_per_task: Option<f64>,
}

/// One of the most expensive tasks of the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TopTask {
    /// Profile.
    pub system: String,
    /// Schema.
    pub schema: String,
    /// Queue, where the task is still there.
    #[serde(default)]
    pub queue: Option<String>,
    /// Task id, as text.
    pub task: String,
    /// Kind.
    pub kind: Option<String>,
    /// Spent over the window.
    pub usd: Usd,
    /// Attempts that spent it.
    pub attempts: u32,
}

/// Tries a task, which are counted with the attempts, for the tenants that spend.
pub fn tries(snapshot: &mut Snapshot) {
    let tenants = snapshot.cost.iter_mut().flat_map(|c| &mut c.by_tenant);
    for tenant in tenants {
        let mut of = snapshot.attempts.iter();
        let found = of.find(|a| a.by == "tenant" && a.name == tenant.name);
        tenant.tries_per_task = found.and_then(|a| a.tries_per_task);
    }
}
