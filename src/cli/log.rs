//! The flags of the log, and which command has them.

use super::{Act, Cli, Command};
use crate::config::Config;
use crate::log::Level;
use clap::Args;
use std::path::{Path, PathBuf};

/// How clap calls `--log-level`.
pub(super) const LEVEL: &str = "log_level";

/// What is written about the conversation with the server.
#[derive(Args, Debug, Clone, Default)]
pub struct Log {
    /// Append what jobtop and the server say to each other, for a bug report: no secrets, no values of parameters, nothing of
    /// what tasks carry
    #[arg(long, value_name = "FILE", env = "JOBTOP_LOG")]
    pub log: Option<PathBuf>,
    /// How much of it; info by default
    #[arg(
        long,
        value_enum,
        value_name = "LEVEL",
        env = "JOBTOP_LOG_LEVEL",
        ignore_case = true
    )]
    pub log_level: Option<Level>,
}

impl Log {
    /// What was given counts more than the file.
    pub fn over(&self, config: &mut Config) {
        config.log = self.log.clone().or(config.log.take());
        config.log_level = self.log_level.unwrap_or(config.log_level);
    }
}

impl Cli {
    /// What was given about the log and the configuration file, where the command talks to a server, and its name.
    pub fn log(&self) -> Option<(&Log, Option<&Path>, &'static str)> {
        let place = match &self.command {
            None => (&self.watch.place, "watch"),
            Some(Command::Tasks(a)) => (&a.place, "tasks"),
            Some(Command::Doctor(a)) => (&a.place, "doctor"),
            Some(Command::Grants(a)) => (&a.place, "grants"),
            Some(Command::Migrate(a)) => (&a.place, "migrate"),
            Some(Command::Seed(a)) => (&a.place, "seed"),
            Some(Command::Work(a)) => (&a.place, "work"),
            Some(Command::Demo(a)) => return Some((&a.log, a.config.as_deref(), "demo")),
            Some(Command::Journal(_) | Command::Config(_)) => return None,
            Some(command) => {
                let (act, name) = command.act()?;
                return Some((&act.log, act.config.as_deref(), name));
            }
        };
        let (place, name) = place;
        Some((&place.log, place.config.as_deref(), name))
    }
}

impl Command {
    /// Where it is an action on tasks: on which, and its name.
    fn act(&self) -> Option<(&Act, &'static str)> {
        Some(match self {
            Command::Requeue(a) => (&a.act, "requeue"),
            Command::Priority(a) => (&a.act, "priority"),
            Command::Cancel(a) => (a, "cancel"),
            Command::Release(a) => (a, "release"),
            Command::RunNow(a) => (a, "run-now"),
            Command::Park(a) => (a, "park"),
            Command::Unpark(a) => (a, "unpark"),
            _ => return None,
        })
    }
}
