//! What each command does, and how it ends.

/// Turns an early exit into the result that commands return.
macro_rules! or_exit {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(exit) => return Ok(exit),
        }
    };
}

mod act;
mod demo;
mod doctor;
mod grants;
mod journal;
mod reach;

use crate::action::Verb;
use crate::cli::{Cli, Command, Look, Migrate, Place, Tasks, Watch};
use crate::config::Config;
use crate::connect::session::Purpose;
use crate::connect::{Session, Target};
use crate::log::{self, Begun};
use crate::once::{self, Refused};
use crate::out::{self, print, tell};
use crate::probe::State;
use crate::probe::tasks::Filter;
use crate::queue::check::Wrong;
use crate::run::{self, Ended};
use crate::term;
use crate::ui::plain;
use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

/// How the program ends.
#[derive(Debug)]
pub enum Exit {
    /// 0.
    Fine,
    /// 1.
    Error(String),
    /// 2: usage, or no connection.
    Usage(String),
    /// 3: `--check` found something critical.
    Critical,
    /// 128 and its number, after a signal.
    Signal(Signal),
    /// 129, after the terminal went: nobody can read anything.
    HangUp,
}

impl Exit {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Exit::Fine => 0,
            Exit::Error(_) => 1,
            Exit::Usage(_) => 2,
            Exit::Critical => 3,
            Exit::Signal(signal) => 128 + *signal as u8,
            Exit::HangUp => 129,
        }
    }

    /// What to say on stderr.
    pub fn sentence(&self) -> Option<String> {
        match self {
            Exit::Error(text) | Exit::Usage(text) => Some(crate::text::clean(text)),
            Exit::Signal(signal) => Some(format!("stopped by {signal}")),
            Exit::Fine | Exit::Critical | Exit::HangUp => None,
        }
    }

    fn of(ended: Ended) -> Self {
        match ended {
            Ended::Quit => Exit::Fine,
            Ended::Refused(why) => Exit::Usage(why),
            Ended::Signal(signal) => Exit::Signal(signal),
            Ended::HangUp => Exit::HangUp,
        }
    }
}

/// Runs a command to its end.
pub fn run(cli: Cli) -> Exit {
    term::install_panic_hook();
    let log = match log(&cli) {
        Ok(log) => log,
        Err(exit) => return exit,
    };
    let exit = carry_out(cli);
    if let Some(trouble) = log.and_then(|log| log.end(exit.code())) {
        tell(&trouble);
    }
    exit
}

/// What the command line is answered with: help or the version, else what is wrong with it.
pub fn answer(answer: &clap::Error) -> Exit {
    if answer.use_stderr() {
        answer.exit();
    }
    match out::all(|_| answer.print()) {
        Ok(()) => Exit::Fine,
        Err(error) => Exit::Error(format!("{error:#}")),
    }
}

/// Opens the log that is asked for, before anything else is done.
fn log(cli: &Cli) -> Result<Option<Begun>, Exit> {
    let Some((given, file, command)) = cli.log() else {
        return Ok(None);
    };
    let usage = |e: anyhow::Error| Exit::Usage(format!("{e:#}"));
    let mut config = Config::load(file).map_err(usage)?;
    given.over(&mut config);
    if cli.level_named && config.log.is_none() {
        return Err(Exit::Usage(
            "--log-level says how much is logged, and there is no log: add --log FILE, or leave it out"
                .into(),
        ));
    }
    log::begin(&config, command).map_err(usage)
}

fn carry_out(cli: Cli) -> Exit {
    let result = match cli.command {
        None => watch(&cli.watch),
        Some(Command::Demo(args)) => demo::demo(&args),
        Some(Command::Seed(args)) => demo::seed(&args),
        Some(Command::Work(args)) => demo::work(&args),
        Some(Command::Tasks(args)) => tasks(&args),
        Some(Command::Journal(args)) => journal::journal(&args),
        Some(Command::Doctor(args)) => doctor::doctor(&args),
        Some(Command::Grants(args)) => grants::grants(&args),
        Some(Command::Migrate(args)) => migrate(&args),
        Some(Command::Requeue(args)) => match args.fresh {
            true => act::act(Verb::RequeueFresh, &args.act),
            false => act::act(Verb::Requeue, &args.act),
        },
        Some(Command::Cancel(args)) => act::act(Verb::Cancel, &args),
        Some(Command::Release(args)) => act::act(Verb::Release, &args),
        Some(Command::RunNow(args)) => act::act(Verb::RunNow, &args),
        Some(Command::Priority(args)) => act::act(Verb::Priority(args.to.into()), &args.act),
        Some(Command::Park(args)) => act::act(Verb::Park, &args),
        Some(Command::Unpark(args)) => act::act(Verb::Unpark, &args),
        Some(Command::Config(args)) => print_config(&args),
    };
    match result {
        Ok(exit) => exit,
        Err(error) if error.is::<Refused>() || error.is::<Wrong>() => {
            Exit::Usage(format!("{error:#}"))
        }
        Err(error) => Exit::Error(format!("{error:#}")),
    }
}

/// One thread for keys and drawing, one for the feed: a slow query must not hold up a key.
pub fn runtime(threads: usize) -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads).enable_all();
    builder.build().context("cannot start the runtime")
}

/// The effective settings.
pub fn config(file: Option<&Path>, look: &Look, allow_writes: bool) -> Result<Config, Exit> {
    let usage = |e: anyhow::Error| Exit::Usage(format!("{e:#}"));
    let mut config = Config::load(file).map_err(usage)?;
    if let Some(interval) = look.interval {
        config.interval = interval;
    }
    if let Some(color) = &look.color {
        config.color.clone_from(color);
    }
    config.ascii |= look.ascii;
    config.mouse |= look.mouse;
    config.allow_writes |= allow_writes;
    config.check().map_err(usage)?;
    Ok(config)
}

fn target(place: &Place) -> Result<Target, Exit> {
    if let Some(word) = place.url.as_deref().filter(|u| !looks_like_a_place(u)) {
        return Err(Exit::Usage(format!(
            "{word:?} is neither a command nor a URL: give postgres://USER@HOST/DATABASE, or -d {word} for the database of that \
             name"
        )));
    }
    reach::target(&place.reach, place.url.as_deref(), place.config.as_deref())
}

/// A URL or key=value pairs. A bare word is more likely a command with a slip in it than a database.
fn looks_like_a_place(word: &str) -> bool {
    word.is_empty() || word.contains(['=', '/'])
}

fn watch(args: &Watch) -> Result<Exit> {
    let file = args.place.config.as_deref();
    let config = Arc::new(or_exit!(config(file, &args.look, args.allow_writes)));
    let target = or_exit!(target(&args.place));
    if args.once || args.check {
        return once(args, &target, &config);
    }
    or_exit!(can_draw());
    let ended = runtime(1)?.block_on(screen(&target, &config))?;
    Ok(Exit::of(ended))
}

/// The screen. Where a person may have to be asked for a password, the first session is made before it.
async fn screen(target: &Target, config: &Arc<Config>) -> Result<Ended> {
    loop {
        let mut first = None;
        if target.may_ask() {
            first = match Session::open(target, Purpose::Poll, "jobtop").await {
                Ok(session) => Some(session),
                // the screen tells about it while it waits
                Err(fault) if fault.may_pass() => None,
                Err(fault) => {
                    let refused = Refused::new(&target.place(), fault);
                    return Ok(Ended::Refused(refused.to_string()));
                }
            };
        }
        let ended = run::monitor(target.clone(), config.clone(), first).await?;
        // a server that was starting did not ask before
        if !(target.hush(false) && matches!(ended, Ended::Refused(_))) {
            return Ok(ended);
        }
    }
}

/// Is there a terminal that can draw?
pub fn can_draw() -> Result<(), Exit> {
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !terminal || std::env::var("TERM").is_ok_and(|t| t == "dumb") {
        return Err(Exit::Usage(
            "this terminal cannot draw: use --once for tables or --once --json".into(),
        ));
    }
    Ok(())
}

fn once(args: &Watch, target: &Target, config: &Arc<Config>) -> Result<Exit> {
    let (snapshot, report) = runtime(1)?.block_on(once::snapshot(target, config))?;
    let critical = once::critical(&report);
    let blind = once::blind(&snapshot);
    let text = if args.json {
        once::json(&snapshot, &report)? + "\n"
    } else if args.once {
        plain::tables(snapshot, report, config.clone(), &run::theme(config))
    } else {
        once::findings(&report)
    };
    print(&text)?;
    Ok(match blind {
        _ if !args.check => Exit::Fine,
        _ if critical => Exit::Critical,
        Some(why) => Exit::Error(format!("nothing was checked: {why}")),
        None => Exit::Fine,
    })
}

fn tasks(args: &Tasks) -> Result<Exit> {
    let file = args.place.config.as_deref();
    let config = Arc::new(or_exit!(config(file, &Look::default(), false)));
    let target = or_exit!(target(&args.place));
    let state = or_exit!(state(args.state.as_deref()));
    let filter = Filter {
        states: state.into_iter().collect(),
        limit: args.limit,
        ..Filter::default()
    };
    let filter = filter.with("queue", args.queue.as_deref());
    let snapshot = runtime(1)?.block_on(async { once::tasks(&target, &config, &filter).await })?;
    let text = if args.json {
        serde_json::to_string_pretty(&snapshot.tasks.rows)? + "\n"
    } else {
        plain::tasks(snapshot, config.clone(), &run::theme(&config))
    };
    print(&text)?;
    Ok(Exit::Fine)
}

/// A state by its neutral name.
fn state(name: Option<&str>) -> Result<Option<State>, Exit> {
    let Some(name) = name else { return Ok(None) };
    match State::ALL.iter().find(|s| s.name() == name) {
        Some(state) => Ok(Some(*state)),
        None => {
            let names = State::ALL.map(|s| s.name()).join(", ");
            Err(Exit::Usage(format!(
                "{name:?} is no state: give one of {names}"
            )))
        }
    }
}

fn migrate(args: &Migrate) -> Result<Exit> {
    use crate::migrate::{NotifyChange, apply};
    let target = or_exit!(target(&args.place));
    let change = match (args.with_notify, args.remove_notify) {
        (true, _) => NotifyChange::Install,
        (_, true) => NotifyChange::Remove,
        _ => NotifyChange::Keep,
    };
    let report = runtime(1)?.block_on(async {
        let mut client = plain_client(&target).await?;
        apply(&mut client, &args.schema, change).await
    })?;
    let mut text = String::new();
    for file in &report.applied {
        text.push_str(&format!("applied {file}\n"));
    }
    if report.applied.is_empty() {
        text.push_str("nothing to apply\n");
    }
    text.push_str(&format!(
        "schema {}: change trigger {}\n",
        report.schema,
        if report.notify {
            "installed"
        } else {
            "not installed"
        }
    ));
    for warning in &report.warnings {
        tell(warning);
    }
    out::done(&text)?;
    Ok(Exit::Fine)
}

/// A client with the server's own defaults, for work that is not monitoring.
async fn plain_client(target: &Target) -> Result<tokio_postgres::Client> {
    let opened = target.connect("jobtop", "").await;
    let opened = opened.map_err(|fault| Refused::new(&target.place(), fault))?;
    let (client, line) = (opened.client, opened.line);
    tokio::spawn(async move {
        // the client hears of a lost connection by itself
        let _ = line.await;
    });
    Ok(client)
}

fn print_config(args: &Watch) -> Result<Exit> {
    let file = args.place.config.as_deref();
    let mut config = or_exit!(config(file, &args.look, args.allow_writes));
    args.place.log.over(&mut config);
    print(&config.to_toml()?)?;
    Ok(Exit::Fine)
}
