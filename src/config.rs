//! Settings: flags over environment over the configuration file over defaults, in one struct.
//!
//! The file is TOML; an unknown key is an error that names it. `jobtop config` prints the effective settings in
//! the same format, so its output is a valid file.

use crate::files;
use crate::log::Level;
use crate::text::clean;
use crate::ui::clean::cut;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Columns of what is wrong with a file: it may repeat a value.
const WHY: usize = 1_000;

/// All settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Seconds between refreshes, 0.5 to 60.
    pub interval: f64,
    /// How far back stages, cost and flow look, in minutes, 10 to 1440.
    pub window_minutes: u32,
    /// Allow requeue and cancel. Without it the database session is read-only.
    pub allow_writes: bool,
    /// Tasks a second that an action on many changes at most, 1 to 10,000.
    pub rows_per_second: f64,
    /// Share of one core of the server that jobtop may use, 0 to 1: above it the interval stretches.
    pub max_server_share: f64,
    /// A command that prints the password, run for each connection with PGHOST, PGPORT, PGUSER and PGDATABASE in its
    /// environment.
    pub password_command: Option<String>,
    /// Seconds that it may take, 0.1 to 60.
    pub password_command_timeout: f64,
    /// `auto`, `16`, `256`, `true` or `none`.
    pub color: String,
    /// Draw with ASCII only.
    pub ascii: bool,
    /// Mouse reporting: scroll and click, instead of the terminal's own selection.
    pub mouse: bool,
    /// Keys of JSON objects (and words before `=` or `:`) whose values are never shown. Case-insensitive
    /// substrings.
    pub redact: Vec<String>,
    /// Where pictures, snapshots and reports are written; the current directory by default.
    pub output_dir: Option<PathBuf>,
    /// Where what was done is recorded; by default `jobtop/journal.jsonl` in the user's state directory
    /// (`$XDG_STATE_HOME`, `~/.local/state`, `~/Library/Application Support` on macOS).
    pub journal_file: Option<PathBuf>,
    /// A file to which is appended what jobtop and the server say to each other; none by default.
    pub log: Option<PathBuf>,
    /// How much of it: `error`, `info`, `debug` or `trace`.
    pub log_level: Level,
    /// Directories with further queue profiles (`*.toml`).
    pub profiles: Vec<PathBuf>,
    /// Values for the settings that profiles declare, by system: `[settings.workflow_jobs] time_zone = "UTC"`.
    pub settings: BTreeMap<String, BTreeMap<String, String>>,
    /// Named shares of `max_connections`, first match wins.
    pub budgets: Vec<BudgetRule>,
    /// When findings fire.
    pub thresholds: Thresholds,
}

/// A named share of `max_connections`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetRule {
    /// Shown on screen.
    pub name: String,
    /// Sessions it may hold.
    pub limit: u32,
    /// Patterns for application_name, `*` stands for anything.
    #[serde(default)]
    pub applications: Vec<String>,
    /// Patterns for role names, `*` stands for anything.
    #[serde(default)]
    pub roles: Vec<String>,
}

impl BudgetRule {
    /// Does a session of this application and role count against the budget?
    pub fn matches(&self, application: &str, role: &str) -> bool {
        self.applications.iter().any(|p| glob(p, application))
            || self.roles.iter().any(|p| glob(p, role))
    }
}

/// `*` matches any run of characters; everything else is literal.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(first) = parts.next() else {
        return false;
    };
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

/// When findings fire. Times in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thresholds {
    /// A finding clears only after its trigger was gone this long.
    pub clear_after: f64,
    /// Idle in transaction for this long, and in somebody's way.
    pub idle_in_transaction: f64,
    /// Pins xmin for this long while idle in transaction.
    pub idle_pins_xmin: f64,
    /// A relation lock on a queue table waited for, or the table had in ACCESS EXCLUSIVE mode, for this long.
    pub table_lock: f64,
    /// A worker's session absent for this long.
    pub owner_gone: f64,
    /// A lease expired for longer than whoever reclaims them takes.
    pub reclaim_interval: f64,
    /// No claim for this long while work is due (or 5 x the usual wait, if longer).
    pub stalled: f64,
    /// No arrival for this long (and 3 x the longest gap).
    pub inflow_stopped: f64,
    /// Lost attempts of one task, on at least two workers.
    pub poison_attempts: u32,
    /// Attempts in ten minutes below which `failing` stays silent.
    pub failing_attempts: u32,
    /// Share of attempts that fail, 0 to 1.
    pub failing_share: f64,
    /// Dollars an hour below which `cost-runaway` stays silent.
    pub cost_floor: f64,
    /// Burn rate against usual.
    pub cost_factor: f64,
    /// A spender that spent little for this long runs away no more (10 to 120 s).
    pub cost_still: f64,
    /// Snapshot held for this long while dead rows pile up.
    pub xmin_held: f64,
    /// Dead rows from which on a held snapshot matters.
    pub dead_rows: u64,
    /// Share of usable connections, 0 to 1.
    pub connections: f64,
    /// Clock difference of a worker.
    pub clock_skew: f64,
    /// A cancel request unacknowledged for this long.
    pub cancel_unheard: f64,
    /// Notification queue usage that warns, 0 to 1.
    pub notify_queue: f64,
    /// Notification queue usage above which jobtop stops listening, 0 to 1.
    pub notify_unlisten: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            clear_after: 30.0,
            idle_in_transaction: 10.0,
            idle_pins_xmin: 60.0,
            table_lock: 5.0,
            owner_gone: 15.0,
            reclaim_interval: 30.0,
            stalled: 60.0,
            inflow_stopped: 300.0,
            poison_attempts: 3,
            failing_attempts: 20,
            failing_share: 0.5,
            cost_floor: 5.0,
            cost_factor: 5.0,
            cost_still: 120.0,
            xmin_held: 300.0,
            dead_rows: 10_000,
            connections: 0.9,
            clock_skew: 5.0,
            cancel_unheard: 60.0,
            notify_queue: 0.01,
            notify_unlisten: 0.25,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interval: 1.0,
            window_minutes: 60,
            allow_writes: false,
            rows_per_second: 500.0,
            max_server_share: 0.02,
            password_command: None,
            password_command_timeout: 10.0,
            color: "auto".into(),
            ascii: false,
            mouse: false,
            redact: [
                "password",
                "passwd",
                "secret",
                "token",
                "api_key",
                "apikey",
                "authorization",
                "credential",
                "private_key",
                "cookie",
            ]
            .map(String::from)
            .to_vec(),
            output_dir: None,
            journal_file: None,
            log: None,
            log_level: Level::default(),
            profiles: Vec::new(),
            settings: BTreeMap::new(),
            budgets: Vec::new(),
            thresholds: Thresholds::default(),
        }
    }
}

/// `$XDG_CONFIG_HOME/jobtop/config.toml`, or the same under `~/.config`.
pub fn default_path() -> Option<PathBuf> {
    user_directory("XDG_CONFIG_HOME", ".config").map(|d| d.join("jobtop/config.toml"))
}

/// A directory of the user: the one that the variable names, else the usual one in the home directory.
pub fn user_directory(variable: &str, under_home: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|d| !d.is_empty());
    let home = || set("HOME").map(|h| PathBuf::from(h).join(under_home));
    set(variable).map(PathBuf::from).or_else(home)
}

/// A number in a sentence; those of hundreds of digits by their power of ten.
fn short(number: f64) -> String {
    match number.abs() {
        0.0 | 1e-6..1e15 => number.to_string(),
        _ => format!("{number:e}"),
    }
}

impl Config {
    /// Reads the file given, which must exist, or else the default file, which need not.
    pub fn load(given: Option<&Path>) -> Result<Self> {
        let path = match given {
            Some(path) => path.to_path_buf(),
            None => match default_path().filter(|p| p.exists()) {
                Some(path) => path,
                None => return Ok(Self::default()),
            },
        };
        let text = files::text(&path)
            .with_context(|| format!("cannot read the configuration file {}", path.display()))?;
        Self::parse(&text)
            .with_context(|| format!("the configuration file {} is wrong", path.display()))
    }

    /// Parses and checks a configuration file.
    pub fn parse(text: &str) -> Result<Self> {
        let config: Self = toml::from_str(text).map_err(|e| {
            let at = e.span().and_then(|s| text.get(..s.start)).unwrap_or("");
            let line = at.matches('\n').count() + 1;
            let why = clean(&cut(e.message(), WHY));
            anyhow::anyhow!("line {line}: {why}")
        })?;
        config.check()?;
        Ok(config)
    }

    /// Refuses values that no part of the program could use, with one sentence.
    pub fn check(&self) -> Result<()> {
        anyhow::ensure!(
            (0.5..=60.0).contains(&self.interval),
            "interval is {}: give 0.5 to 60 seconds",
            short(self.interval)
        );
        anyhow::ensure!(
            (10..=1440).contains(&self.window_minutes),
            "window_minutes is {}: give 10 to 1440",
            self.window_minutes
        );
        anyhow::ensure!(
            (1.0..=10_000.0).contains(&self.rows_per_second),
            "rows_per_second is {}: give 1 to 10000",
            short(self.rows_per_second)
        );
        anyhow::ensure!(
            self.max_server_share > 0.0 && self.max_server_share <= 1.0,
            "max_server_share is {}: give a share above 0, at most 1",
            short(self.max_server_share)
        );
        anyhow::ensure!(
            (0.1..=60.0).contains(&self.password_command_timeout),
            "password_command_timeout is {}: give 0.1 to 60 seconds",
            short(self.password_command_timeout)
        );
        anyhow::ensure!(
            ["auto", "16", "256", "true", "none"].contains(&self.color.as_str()),
            "color is {:?}: give auto, 16, 256, true or none",
            self.color
        );
        for (at, budget) in self.budgets.iter().enumerate() {
            anyhow::ensure!(
                !budget.name.trim().is_empty(),
                "budget {} has no name",
                at + 1
            );
            anyhow::ensure!(
                !(budget.applications.is_empty() && budget.roles.is_empty()),
                "budget {:?} matches nothing: give it applications or roles",
                budget.name
            );
        }
        Ok(())
    }

    /// The effective settings, as a valid configuration file.
    pub fn to_toml(&self) -> Result<String> {
        Ok(toml::to_string_pretty(self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_read_back() {
        let mut config = Config::default();
        config.budgets.push(BudgetRule {
            name: "agents".into(),
            limit: 40,
            applications: vec!["agent-*".into()],
            roles: vec![],
        });
        let text = config.to_toml().expect("toml");
        assert_eq!(Config::parse(&text).expect("parses"), config);
    }

    #[test]
    fn an_unknown_key_is_named() {
        for text in ["intervall = 2", "[thresholds]\nstaled = 3"] {
            let error = format!("{:#}", Config::parse(text).expect_err("refused"));
            assert!(
                error.contains("intervall") || error.contains("staled"),
                "{error}"
            );
        }
        let error = |text: &str| format!("{:#}", Config::parse(text).expect_err(text));
        assert_eq!(
            error("interval = 0.1"),
            "interval is 0.1: give 0.5 to 60 seconds"
        );
        assert_eq!(
            error("interval = 1e300"),
            "interval is 1e300: give 0.5 to 60 seconds"
        );
        let share = error("max_server_share = -1e-300");
        assert!(
            share.starts_with("max_server_share is -1e-300: "),
            "{share}"
        );
        let line = error("color = \"16\"\ninterval = \"x\"");
        assert_eq!(line, "line 2: invalid type: string \"x\", expected f64");
        let long = error(&format!("interval = \"{}\"", "x".repeat(5_000)));
        assert!(long.len() < 2 * WHY, "{long}");
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, text, hit) in [
            ("agent-*", "agent-7", true),
            ("agent-*", "my-agent-7", false),
            ("*", "", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "abc", true),
            ("a*bc*c", "abc", false),
            ("psql", "psql", true),
            ("psql", "psql2", false),
            ("*api", "web-api", true),
        ] {
            assert_eq!(glob(pattern, text), hit, "{pattern} {text}");
        }
    }
}
