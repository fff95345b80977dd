//! The demo, and what fills a development database.

use super::{Log, Look, Place};
use clap::Args;
use std::path::PathBuf;

/// Flags of `jobtop demo`.
#[derive(Args, Debug)]
pub struct Demo {
    /// calm, incident, or one act of it by name
    #[arg(long, default_value = "incident", value_name = "NAME")]
    pub scenario: String,
    /// List the scenarios and exit
    #[arg(long)]
    pub list: bool,
    /// The demo may always be written to
    #[arg(long, hide = true)]
    pub allow_writes: bool,
    /// Fixture data are the same for the same number
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Directory with initdb and postgres; found by itself where possible
    #[arg(long, value_name = "DIR", env = "JOBTOP_PG_BINDIR")]
    pub pg_bindir: Option<PathBuf>,
    /// Run without a screen and print where to connect, until stopped
    #[arg(long)]
    pub headless: bool,
    /// Configuration file for the screen
    #[arg(long, value_name = "FILE", env = "JOBTOP_CONFIG")]
    pub config: Option<PathBuf>,
    /// The log
    #[command(flatten)]
    pub log: Log,
    /// The screen
    #[command(flatten)]
    pub look: Look,
}

/// Flags of `jobtop migrate`.
#[derive(Args, Debug)]
pub struct Migrate {
    /// Where
    #[command(flatten)]
    pub place: Place,
    /// Schema of the reference queue
    #[arg(long, default_value = "agent_queue", value_name = "NAME")]
    pub schema: String,
    /// Install the optional trigger that announces changes (jobtop then refreshes sooner)
    #[arg(long, conflicts_with = "remove_notify")]
    pub with_notify: bool,
    /// Remove that trigger
    #[arg(long)]
    pub remove_notify: bool,
}

/// Flags of `jobtop seed`.
#[derive(Args, Debug)]
pub struct Seed {
    /// Where
    #[command(flatten)]
    pub place: Place,
    /// Schema of the reference queue
    #[arg(long, default_value = "agent_queue", value_name = "NAME")]
    pub schema: String,
    /// Fixture data are the same for the same number
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Even if the queue has tasks already
    #[arg(long)]
    pub force: bool,
}

/// Flags of `jobtop work`.
#[derive(Args, Debug)]
pub struct Work {
    /// Where
    #[command(flatten)]
    pub place: Place,
    /// Schema of the reference queue
    #[arg(long, default_value = "agent_queue", value_name = "NAME")]
    pub schema: String,
    /// Chance is the same for the same number
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Simulated agents
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub agents: u32,
}
