//! The log that `--log FILE` asks for: what jobtop and the server say to each other, one event a line, for a bug report.
//! Events go through `tracing`; without a log each place that has something to tell looks at one number in memory, and
//! does no more. What is written holds no secret and nothing of what tasks carry: see `words` and `line`.

mod file;
mod line;
mod talk;
mod words;

pub use talk::Talk;
pub use words::told;

use crate::config::Config;
use crate::feed::pace::Pace;
use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use file::File;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tracing::{Span, Subscriber, debug, error_span, info};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{fmt, registry};

/// The log of this process, where there is one.
static LOG: OnceLock<Arc<File>> = OnceLock::new();

/// How much is written; each level has what those before it have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// What failed.
    Error,
    /// The life of connections, degradations, writes.
    #[default]
    Info,
    /// Each statement and each refresh, in figures.
    Debug,
    /// The text of each statement once, and the types of its parameters.
    Trace,
}

impl Level {
    fn filter(self) -> LevelFilter {
        match self {
            Level::Error => LevelFilter::ERROR,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
            Level::Trace => LevelFilter::TRACE,
        }
    }
}

/// What is left to do when the program ends.
pub struct Begun(Arc<File>);

/// Opens the log that the settings ask for, if any. `command` is the command's name; what else stood on the command line
/// is not written.
///
/// # Errors
/// The file cannot be written: one sentence with the next step.
pub fn begin(config: &Config, command: &str) -> Result<Option<Begun>> {
    let Some(path) = config.log.clone() else {
        return Ok(None);
    };
    let log = open(path)?;
    let subscriber = subscriber(config.log_level, &config.redact, log.clone());
    tracing::subscriber::set_global_default(subscriber).context("there is a log already")?;
    info!(
        version = env!("CARGO_PKG_VERSION"),
        command,
        level = %config.log_level.filter(),
        "jobtop begins"
    );
    Ok(Some(Begun(LOG.get_or_init(|| log).clone())))
}

fn open(path: PathBuf) -> Result<Arc<File>> {
    let shown = path.display().to_string();
    let help = "name another file with --log, or leave it out";
    File::open(path).map_err(|e| anyhow!("the log {shown} cannot be written: {e:#}: {help}"))
}

fn subscriber(
    level: Level,
    redact: &[String],
    file: Arc<File>,
) -> impl Subscriber + Send + Sync + use<> {
    let line = line::Line::new(redact);
    let layer = fmt::layer()
        .event_format(line.clone())
        .fmt_fields(line)
        .log_internal_errors(false)
        .with_writer(file);
    // libraries have their own ideas of what may be written
    let ours = Targets::new().with_target(env!("CARGO_CRATE_NAME"), level.filter());
    registry().with(layer).with(ours)
}

impl Begun {
    /// Writes what is left, and waits for the disk no longer than a shell may be kept waiting. What nobody has been told
    /// of the log's own trouble is returned.
    pub fn end(self, code: u8) -> Option<String> {
        info!(code, "jobtop ends");
        self.0.end()
    }
}

/// What the person at the screen should know of the log: told once.
pub fn trouble() -> Option<String> {
    LOG.get().and_then(|log| log.trouble())
}

/// Around a probe: its statements tell its name.
pub fn probe(name: &'static str) -> Span {
    error_span!("probe", probe = name)
}

/// Around a write action: its statements tell its id.
pub fn action(id: &str) -> Span {
    error_span!("action", action = id)
}

/// What a refresh took: statements, their time on the server, and how long until the next may begin.
pub fn refreshed(begun: Instant, (statements, server_us): (u32, u64), interval: Duration) {
    debug!(
        statements,
        ms = begun.elapsed().as_secs_f64() * 1e3,
        server_us,
        interval_s = interval.as_secs_f64(),
        "refresh"
    );
}

/// Tells when refreshes begin to come less often than wanted, and when that is over.
pub fn paced(pace: &Pace, now: Instant, stretched: &mut bool) {
    let (wanted, interval) = (pace.wanted(), pace.interval());
    if *stretched == (interval > wanted) {
        return;
    }
    *stretched = !*stretched;
    let (wanted_s, interval_s) = (wanted.as_secs_f64(), interval.as_secs_f64());
    let percent = pace.share(now) * 100.0;
    match *stretched {
        true => info!(
            wanted_s,
            interval_s, percent, "refreshes come less often: the server's share is used up"
        ),
        false => info!(interval_s, percent, "refreshes come as often as wanted"),
    }
}

#[cfg(test)]
mod tests;
