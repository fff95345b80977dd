//! Why a private Postgres could not be had: one sentence each, with the next step.

use std::path::PathBuf;

/// Why there is no private Postgres.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory that was asked for holds no usable server.
    #[error("{} is no Postgres server directory: {reason}; name the directory that holds initdb and postgres", dir.display())]
    Bindir {
        /// The directory as it was given.
        dir: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No server on this machine, and none could be (or was to be) fetched.
    #[error("no Postgres server of version 13 or later is on this machine; {0}")]
    NotFound(String),
    /// Server binaries could not be fetched.
    #[error("no Postgres server is on this machine and none could be fetched: {reason}; {advice}")]
    Fetch {
        /// What went wrong, without a final full stop.
        reason: String,
        /// The command that would help.
        advice: String,
    },
    /// The supervisor process could not be run.
    #[error("{} could not be run to look after the private Postgres: {reason}", program.display())]
    Supervisor {
        /// The program that was to be the supervisor.
        program: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// The server refused to be set up, started or restarted.
    #[error("the private Postgres did not start: {0}")]
    Server(String),
}
