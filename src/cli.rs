//! The command line. Its doc comments are `--help`.

mod act;
mod dev;
mod log;

pub use act::{Act, Priority, Requeue};
pub use dev::{Demo, Migrate, Seed, Work};
use log::LEVEL;
pub use log::Log;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// top for job queues that live in Postgres: the queue and the database under it on one screen
#[derive(Parser, Debug)]
#[command(
    version,
    override_usage = "jobtop [OPTIONS] [URL]\n       jobtop [--config FILE] COMMAND [OPTIONS]",
    subcommand_negates_reqs = true,
    disable_help_flag = true,
    after_help = "Exit codes: 0 fine, 1 error, 2 usage or no connection, 3 --check found something critical."
)]
pub struct Cli {
    /// What to do instead of watching
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How to watch
    #[command(flatten)]
    pub watch: Watch,
    /// Print help (-h names a host, as with psql; alone at the end it prints help too)
    #[arg(long, short = '?', action = ArgAction::HelpLong, global = true)]
    pub help: Option<bool>,
    /// `--log-level` was given, not only its variable
    #[arg(skip)]
    pub level_named: bool,
}

impl Cli {
    /// Reads a command line. Only `--config` may stand before a command: anything else there would be without effect,
    /// which is an error that tells the right order.
    pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let mut words: Vec<OsString> = words.into_iter().collect();
        if let Some(last) = words.last_mut().filter(|w| *w == "-h") {
            // a host would follow
            *last = "--help".into();
        }
        let matches = command.try_get_matches_from_mut(words)?;
        if let Some((name, _)) = matches.subcommand()
            && let Some(early) = early(&command, &matches)
        {
            let order = format!(
                "{early} stands before {name}: options of a command stand after it, see jobtop {name} --help"
            );
            return Err(command.error(ErrorKind::ArgumentConflict, order));
        }
        let of = matches.subcommand().map_or(&matches, |(_, own)| own);
        // some commands have no log
        let level_named = of.try_contains_id(LEVEL).is_ok()
            && of.value_source(LEVEL) == Some(ValueSource::CommandLine);
        Ok(Self {
            level_named,
            ..Self::from_arg_matches(&matches)?
        })
    }
}

/// What was given for watching, as it was named in the help.
fn early(command: &clap::Command, matches: &ArgMatches) -> Option<String> {
    let given = command.get_arguments().find(|a| {
        let id = a.get_id().as_str();
        !a.is_global_set() && matches.value_source(id) == Some(ValueSource::CommandLine)
    })?;
    Some(match given.get_long() {
        Some(long) => format!("--{long}"),
        None => given.get_id().as_str().to_uppercase(),
    })
}

/// Where to connect, as psql has it.
#[derive(Args, Debug, Clone, Default)]
pub struct Reach {
    /// Database; or a URL, key=value pairs, service=NAME, whose settings count more than the flags
    #[arg(
        help_heading = "Connection",
        short = 'd',
        long,
        value_name = "NAME",
        alias = "url"
    )]
    pub dbname: Option<String>,
    /// Host name, address or socket directory
    #[arg(help_heading = "Connection", short = 'h', long, value_name = "HOST")]
    pub host: Option<String>,
    /// Port
    #[arg(help_heading = "Connection", short = 'p', long, value_name = "PORT")]
    pub port: Option<String>,
    /// Role to log in as
    #[arg(help_heading = "Connection", short = 'U', long, value_name = "NAME")]
    pub username: Option<String>,
    /// Ask for the password at once; without it jobtop asks where the server does and none was found
    #[arg(
        help_heading = "Connection",
        short = 'W',
        long,
        conflicts_with = "no_password"
    )]
    pub password: bool,
    /// Never ask for a password
    #[arg(help_heading = "Connection", short = 'w', long)]
    pub no_password: bool,
    /// Run this for each connection: it prints the password, such as a token that soon expires
    #[arg(
        help_heading = "Connection",
        long,
        value_name = "COMMAND",
        env = "JOBTOP_PASSWORD_COMMAND",
        hide_env_values = true
    )]
    pub password_command: Option<String>,
}

/// Where to connect, and where the settings are.
#[derive(Args, Debug, Clone, Default)]
pub struct Place {
    /// postgres://USER@HOST:PORT/DATABASE or key=value pairs; what is missing comes from the flags, the service file, the
    /// environment (PGHOST, PGSSLMODE, ...) and ~/.pgpass, as with psql
    #[arg(value_name = "URL", conflicts_with = "dbname")]
    pub url: Option<String>,
    /// How
    #[command(flatten)]
    pub reach: Reach,
    /// Configuration file; by default jobtop/config.toml in the user's configuration directory
    #[arg(long, value_name = "FILE", env = "JOBTOP_CONFIG", global = true)]
    pub config: Option<PathBuf>,
    /// The log
    #[command(flatten)]
    pub log: Log,
}

/// Flags of the screen.
#[derive(Args, Debug, Clone, Default)]
pub struct Look {
    /// Seconds between refreshes, 0.5 to 60
    #[arg(long, value_name = "SECONDS", env = "JOBTOP_INTERVAL")]
    pub interval: Option<f64>,
    /// Colours: auto, 16, 256, true or none
    #[arg(long, value_name = "HOW")]
    pub color: Option<String>,
    /// Draw with ASCII only
    #[arg(long)]
    pub ascii: bool,
    /// Let the mouse scroll (the terminal's own selection then needs Shift)
    #[arg(long)]
    pub mouse: bool,
}

/// Flags of watching.
#[derive(Args, Debug, Clone, Default)]
pub struct Watch {
    /// Where
    #[command(flatten)]
    pub place: Place,
    /// The screen
    #[command(flatten)]
    pub look: Look,
    /// Allow requeue and cancel; without it the database session is read-only
    #[arg(long)]
    pub allow_writes: bool,
    /// Print one snapshot as tables and exit
    #[arg(long)]
    pub once: bool,
    /// With --once: as JSON
    #[arg(long, requires = "once")]
    pub json: bool,
    /// Print what is wrong, and exit with 3 when a finding is critical
    ///
    /// Like --once it looks twice, a second apart, and on for 12 seconds at most where something is wrong that must last (a
    /// shortage of connections, say). Ages that the database knows count from the first look on. What is not certain by
    /// then is printed, and is not critical.
    #[arg(long)]
    pub check: bool,
}

/// What to do instead of watching.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Watch a private Postgres with simulated agents and an incident; nothing is left behind
    Demo(Demo),
    /// List tasks
    Tasks(Tasks),
    /// Show what was done with jobtop from here, newest last
    Journal(Journal),
    /// Say on one page what is found at a database and what needs doing: for newcomers and bug reports
    Doctor(Doctor),
    /// Print the SQL that creates and grants the roles monitor, operator and worker
    Grants(Grants),
    /// Install or upgrade the reference queue (schema agent_queue)
    Migrate(Migrate),
    /// Fill a dev database's reference queue with fixture data
    Seed(Seed),
    /// Run the simulated agents on a dev database's reference queue until stopped
    Work(Work),
    /// Make tasks claimable again: failed, cancelled, or running under an expired lease
    Requeue(Requeue),
    /// Call tasks off; workers of running ones are asked to stop
    Cancel(Act),
    /// Take running tasks from owners whose lease has expired (all of them, where none are named)
    Release(Act),
    /// Make waiting tasks due at once
    RunNow(Act),
    /// Change the priority of waiting tasks
    Priority(Priority),
    /// Put waiting tasks out of the workers' sight
    Park(Act),
    /// Put parked tasks back into their sight
    Unpark(Act),
    /// Print the effective settings as a configuration file
    Config(Watch),
}

/// Flags of `jobtop tasks`.
#[derive(Args, Debug)]
pub struct Tasks {
    /// Where
    #[command(flatten)]
    pub place: Place,
    /// Only this state: ready, running, scheduled, retryable, succeeded, failed, cancelled or other
    #[arg(long)]
    pub state: Option<String>,
    /// Only this queue
    #[arg(long)]
    pub queue: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `jobtop journal`.
#[derive(Args, Debug)]
pub struct Journal {
    /// The last so many actions
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub last: usize,
    /// All actions
    #[arg(long, conflicts_with = "last")]
    pub all: bool,
    /// Only this action, such as requeue
    #[arg(long, value_name = "NAME")]
    pub action: Option<String>,
    /// Only actions on this task
    #[arg(long, value_name = "TASK")]
    pub id: Option<String>,
    /// Every entry as JSON, with statements and outcomes; the last of an action sums it up in `whole`
    #[arg(long)]
    pub json: bool,
    /// Configuration file; by default jobtop/config.toml in the user's configuration directory
    #[arg(long, value_name = "FILE", env = "JOBTOP_CONFIG")]
    pub config: Option<PathBuf>,
}

/// Flags of `jobtop doctor`.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 fine, 1 something needs doing, 2 usage or no connection.")]
pub struct Doctor {
    /// Where
    #[command(flatten)]
    pub place: Place,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `jobtop grants`.
#[derive(Args, Debug)]
pub struct Grants {
    /// Where
    #[command(flatten)]
    pub place: Place,
    /// Only this queue system
    #[arg(long, value_name = "NAME")]
    pub system: Option<String>,
    /// How role names begin; by default with the system's name (the reference queue has roles already)
    #[arg(long, value_name = "PREFIX")]
    pub role_prefix: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_url_is_not_a_command() {
        let cli =
            Cli::try_parse_from(["jobtop", "postgres://h/d", "--once", "--json"]).expect("parses");
        assert!(cli.command.is_none() && cli.watch.json);
        let cli = Cli::try_parse_from(["jobtop", "tasks", "postgres://h/d"]).expect("parses");
        assert!(matches!(cli.command, Some(Command::Tasks(_))));
        assert!(Cli::try_parse_from(["jobtop", "--json"]).is_err());
        let cli =
            Cli::try_parse_from(["jobtop", "-h", "h", "-p1", "-Uu", "-dd", "-w"]).expect("parses");
        let reach = cli.watch.place.reach;
        assert_eq!(reach.host.as_deref(), Some("h"));
        assert_eq!(reach.dbname.as_deref(), Some("d"));
        let cli = Cli::try_parse_from(["jobtop", "cancel", "7", "--url", "postgres://h/d"])
            .expect("parses");
        assert!(matches!(cli.command, Some(Command::Cancel(a)) if a.reach.dbname.is_some()));
    }

    fn read(words: &str) -> Result<Cli, clap::Error> {
        Cli::read(words.split(' ').map(OsString::from))
    }

    #[test]
    fn the_configuration_file_may_be_named_before_a_command() {
        let file = |words| match read(words).expect("parses").command {
            Some(Command::Tasks(t)) => t.place.config,
            Some(Command::Demo(d)) => d.config,
            Some(Command::Config(w)) => w.place.config,
            other => panic!("{other:?}"),
        };
        for words in [
            "jobtop --config f tasks",
            "jobtop tasks --config f",
            "jobtop --config e tasks --config f",
            "jobtop --config f tasks postgres://h/d --state failed",
            "jobtop --config f demo",
            "jobtop demo --config f",
            "jobtop --config f config",
        ] {
            assert_eq!(file(words), Some("f".into()), "{words}");
        }
    }

    #[test]
    fn anything_else_before_a_command_is_one_clear_sentence() {
        for (words, early) in [
            ("jobtop --once tasks", "--once"),
            ("jobtop --color none tasks", "--color"),
            ("jobtop postgres://h/d migrate", "URL"),
            ("jobtop --allow-writes config", "--allow-writes"),
        ] {
            let error = read(words).expect_err("refused");
            assert_eq!(error.exit_code(), 2);
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            let command = words.split(' ').next_back().unwrap_or_default();
            let order = format!(
                "error: {early} stands before {command}: options of a command stand after it, see jobtop {command} --help"
            );
            assert_eq!(first, order);
        }
        let cli = read("jobtop tasks postgres://h/d --state failed").expect("parses");
        assert!(matches!(cli.command, Some(Command::Tasks(_))));
    }
}
