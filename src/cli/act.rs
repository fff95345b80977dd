//! Which tasks are changed, and how.

use super::{Log, Reach};
use clap::Args;
use std::path::PathBuf;

/// Which tasks, and how to go about it.
#[derive(Args, Debug, Clone, Default)]
pub struct Act {
    /// Ids of the tasks; without any, all that match the options below
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// Where
    #[command(flatten)]
    pub reach: Reach,
    /// Configuration file; by default jobtop/config.toml in the user's configuration directory
    #[arg(long, value_name = "FILE", env = "JOBTOP_CONFIG")]
    pub config: Option<PathBuf>,
    /// The log
    #[command(flatten)]
    pub log: Log,
    /// The queue system, where the database holds several (agent_queue, agent_jobs, ...)
    #[arg(long)]
    pub system: Option<String>,
    /// Only this queue
    #[arg(long)]
    pub queue: Option<String>,
    /// Only this kind
    #[arg(long)]
    pub kind: Option<String>,
    /// Only this state; else those that the action takes
    #[arg(long)]
    pub state: Option<String>,
    /// Only those in their state for longer than this: 90s, 10m, 2h, 1d
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub older_than: Option<f64>,
    /// Only those whose last error contains this, in whatever case
    #[arg(long, value_name = "TEXT")]
    pub error: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub limit: u32,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Why, for the journal; needed for more than 10 tasks
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `jobtop requeue`.
#[derive(Args, Debug)]
pub struct Requeue {
    /// With a full new set of tries
    #[arg(long)]
    pub fresh: bool,
    /// Which
    #[command(flatten)]
    pub act: Act,
}

/// Flags of `jobtop priority`.
#[derive(Args, Debug)]
pub struct Priority {
    /// The new priority; which end goes first is the queue's own rule
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub to: i32,
    /// Which
    #[command(flatten)]
    pub act: Act,
}

/// `90s`, `10m`, `2h`, `1d` in seconds.
fn seconds(text: &str) -> Result<f64, String> {
    let wrong = || format!("{text:?} is no time: give a number with s, m, h or d (10m)");
    let unit = match text.chars().last() {
        Some('s') => 1.0,
        Some('m') => 60.0,
        Some('h') => 3600.0,
        Some('d') => 86_400.0,
        _ => return Err(wrong()),
    };
    let number: f64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    match number.is_finite() && number >= 0.0 {
        true => Ok(number * unit),
        false => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times_have_units() {
        assert_eq!(seconds("10m"), Ok(600.0));
        assert_eq!(seconds("1.5h"), Ok(5400.0));
        for wrong in ["10", "m", "-1s", "infs", "", "1ü"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
