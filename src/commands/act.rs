//! `jobtop requeue`, `cancel`, `release`, …: the same preview, guards and report as on the screen.

use super::{Exit, config, reach, runtime};
use crate::action::facts::{self, REASON_ABOVE};
use crate::action::{Asker, CHUNK, Choice, Plan, Preview, Progress, Verb, drive};
use crate::cli::{self, Look};
use crate::config::Config;
use crate::connect::session::Purpose;
use crate::connect::{Session, Target};
use crate::feed::round::Round;
use crate::once::{self, Refused};
use crate::out::{done, print, say};
use crate::probe::server::STANDBY;
use crate::probe::tasks::{Filter, TaskKey};
use crate::probe::{Snapshot, State};
use crate::text::thousands;
use anyhow::{Context, Result};
use serde_json::json;
use std::io::{BufRead, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Carries out one of the verbs.
pub fn act(verb: Verb, args: &cli::Act) -> Result<Exit> {
    let config = Arc::new(or_exit!(config(
        args.config.as_deref(),
        &Look::default(),
        true
    )));
    if let Some(url) = args.ids.iter().find(|id| id.contains("://")) {
        let start = url.split("://").next().unwrap_or_default();
        return Ok(Exit::Usage(format!(
            "{start}://… is no id: give the database with -d"
        )));
    }
    let which = [&args.kind, &args.state, &args.error];
    let which = which.iter().any(|o| o.is_some()) || args.older_than.is_some();
    if which && !args.ids.is_empty() {
        return Ok(Exit::Usage(
            "ids name the tasks already: leave them out, or --kind, --state, --older-than and --error".into(),
        ));
    }
    let target = or_exit!(reach::target(&args.reach, None, args.config.as_deref()));
    let filter = or_exit!(filter(verb, args));
    let narrow = args.state.is_some() || args.older_than.is_some() || !filter.terms.is_empty();
    if args.ids.is_empty() && !narrow && verb != Verb::Release {
        return Ok(Exit::Usage(format!(
            "{} what? Give ids, or --queue, --kind, --state, --older-than or --error",
            verb.name()
        )));
    }
    runtime(1)?.block_on(async { carry_out(verb, args, filter, &target, config).await })
}

fn filter(verb: Verb, args: &cli::Act) -> Result<Filter, Exit> {
    // a neutral state, else the system's own word for one
    let state = State::ALL
        .iter()
        .find(|s| Some(s.name()) == args.state.as_deref());
    let native = args.state.as_deref().filter(|_| state.is_none());
    let filter = Filter {
        states: match (state, native) {
            (Some(state), _) => vec![*state],
            (None, Some(_)) => Vec::new(),
            (None, None) => verb.takes().to_vec(),
        },
        older_s: args.older_than,
        stuck: verb == Verb::Release,
        limit: args.limit,
        ..Filter::default()
    };
    Ok(filter
        .with("native_state", native)
        .with("queue", args.queue.as_deref())
        .with("kind", args.kind.as_deref())
        .containing("last_error", args.error.as_deref()))
}

async fn carry_out(
    verb: Verb,
    args: &cli::Act,
    filter: Filter,
    target: &Target,
    config: Arc<Config>,
) -> Result<Exit> {
    let session = once::open(target).await?;
    let mut round = Round::new(target.clone(), config)?;
    round.connected();
    round.run_database(&session).await?;
    round.run_queues(&session).await?;
    let snapshot = round.assemble();
    if snapshot.server.in_recovery {
        session.close().await;
        let text = format!("{} is off: {STANDBY}", verb.infinitive());
        return Ok(Exit::Error(text));
    }
    let (system, schema) = or_exit!(home(&round, &snapshot, args));
    let choice = match args.ids.is_empty() {
        false => {
            let queue = args.queue.clone().unwrap_or_default();
            let key = |id: &String| TaskKey {
                system: system.clone(),
                schema: schema.clone(),
                queue: queue.clone(),
                id: id.clone(),
            };
            Choice::These(args.ids.iter().map(key).collect())
        }
        true => Choice::Matching {
            system,
            schema,
            filter: Box::new(filter),
        },
    };
    let by_id = matches!(choice, Choice::These(_));
    let asker: Asker = or_exit!(round.asker(verb, choice).map_err(Exit::Error));
    let preview = asker.read(&session).await?;
    if !args.json {
        let place = format!("{} on {}", snapshot.server.database, snapshot.server.host);
        let mut text = String::new();
        if preview.eligible > 0 {
            text = format!("{}\n", facts::title(&preview));
            for line in facts::lines(&preview, Some(&snapshot), &place) {
                text.push_str(&format!("  {}\n", crate::text::clean(&line)));
            }
        }
        print(&text)?;
    }
    if preview.eligible == 0 {
        session.close().await;
        return nothing(verb, args, &preview, by_id);
    }
    if args.dry_run {
        session.close().await;
        if args.json {
            let ids: Vec<&str> = preview.targets.iter().map(|t| t.key.id.as_str()).collect();
            let whole = json!({"preview": preview, "ids": ids, "dry_run": true});
            print(&(serde_json::to_string_pretty(&whole)? + "\n"))?;
        }
        return Ok(Exit::Fine);
    }
    let reason = or_exit!(confirm(args, &preview, target.local));
    let left_out = preview.left_out.clone();
    let plan = Plan::new(verb, preview.targets, reason);
    let mut run = match round.prepare(plan) {
        Ok(run) => run,
        Err(outcome) => return Ok(Exit::Error(outcome.summary().1)),
    };
    // where no slot is free for a second session, the first one does it
    let opened = Session::open(target, Purpose::Write, "jobtop write").await;
    let (session, spare) = match opened {
        Ok(writer) => (writer, Some(session)),
        Err(fault) if fault.no_slot() => (session, None),
        Err(fault) => return Err(Refused::new(&target.place(), fault).into()),
    };
    if let Some(spare) = spare {
        spare.close().await;
    }
    let stop = run.stop();
    let interrupted = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let shown = std::io::stderr().is_terminal() && !args.json;
    let many = shown && preview.eligible > CHUNK as u64;
    drive(&mut run, &session, target, |p| {
        if many {
            progress(&p);
        }
    })
    .await;
    interrupted.abort();
    session.close().await;
    let outcome = run.outcome();
    if many && outcome.not_reached() > 0 {
        say("");
    }
    let (_, summary) = outcome.summary();
    if args.json {
        let whole = json!({
            "verb": outcome.verb,
            "action_id": outcome.action_id,
            "asked": outcome.asked,
            "changed": outcome.changed(),
            "skipped": outcome.skipped(),
            "unknown": outcome.unknown,
            "not_reached": outcome.not_reached(),
            "stopped": outcome.stopped,
            "left_out": left_out,
            "fates": outcome.fates,
        });
        let text = serde_json::to_string_pretty(&whole)? + "\n";
        print(&text).with_context(|| summary.clone())?;
    } else {
        let mut text = format!("{summary}\n");
        for fate in outcome.fates.iter().filter(|f| !f.done()).take(20) {
            let line = format!("  {}: {}", fate.key.id, fate.words());
            text.push_str(&(crate::text::clean(&line) + "\n"));
        }
        done(&text)?;
    }
    // who names ids means all of them
    let named = by_id && !left_out.is_empty();
    Ok(match outcome.changed() == outcome.asked && !named {
        true => Exit::Fine,
        false if args.json => Exit::Error(summary),
        false => Exit::Error("not all of them: see above".into()),
    })
}

/// The system that is meant: named, or the only one.
fn home(round: &Round, snapshot: &Snapshot, args: &cli::Act) -> Result<(String, String), Exit> {
    let systems = round.systems();
    let named = |s: &&(String, String)| args.system.as_ref().is_none_or(|name| s.0 == *name);
    let found: Vec<&(String, String)> = systems.iter().filter(named).collect();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] if systems.is_empty() => Err(Exit::Error(snapshot.no_system().unwrap_or_default())),
        [] => {
            let names: Vec<&str> = systems.iter().map(|s| s.0.as_str()).collect();
            Err(Exit::Usage(format!(
                "this database has no queue system of that name, only {}",
                names.join(", ")
            )))
        }
        _ => {
            let names: Vec<&str> = systems.iter().map(|s| s.0.as_str()).collect();
            Err(Exit::Usage(format!(
                "this database holds several queue systems: give --system, one of {}",
                names.join(", ")
            )))
        }
    }
}

fn nothing(verb: Verb, args: &cli::Act, preview: &Preview, by_id: bool) -> Result<Exit> {
    let why = preview.why_left_out();
    let neutral = |name: &String| State::ALL.iter().any(|s| s.name() == name);
    let why = match (why.is_empty(), args.state.as_ref().filter(|s| !neutral(s))) {
        (false, _) => why,
        (true, None) => "no task matches".to_string(),
        (true, Some(name)) => {
            let names = State::ALL.map(|s| s.name()).join(", ");
            format!("no task is {name:?} (neutral states are {names})")
        }
    };
    if args.json {
        print(&(serde_json::to_string_pretty(&json!({"preview": preview, "ids": []}))? + "\n"))?;
    }
    let text = format!("nothing to {}: {why}", verb.infinitive());
    if by_id {
        return Ok(Exit::Error(text));
    }
    if !args.json {
        print(&format!("{text}\n"))?;
    }
    Ok(Exit::Fine)
}

/// Asks a person on a terminal; the reason, where one is given or needed.
fn confirm(args: &cli::Act, preview: &Preview, local: bool) -> Result<Option<String>, Exit> {
    let n = preview.eligible;
    let mut reason = args.reason.clone().filter(|r| !r.trim().is_empty());
    let asks = !args.yes && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !args.yes && !asks {
        return Err(Exit::Usage(format!(
            "{} not done: without a terminal to ask on, give --yes (or --dry-run)",
            preview.verb.words(&facts::tasks(n))
        )));
    }
    if n > REASON_ABOVE && reason.is_none() {
        if !asks {
            return Err(Exit::Usage(format!(
                "give --reason: more than {REASON_ABOVE} tasks need one for the journal"
            )));
        }
        reason = Some(typed("why (for the journal): ")?).filter(|r| !r.is_empty());
        if reason.is_none() {
            return Err(Exit::Error("nothing was done".into()));
        }
    }
    if asks {
        let stops = preview.verb == Verb::Cancel && preview.running > 0;
        let many = n > 1 || stops || !local;
        let (question, wanted) = match many {
            true => (format!("type {n} to go on: "), n.to_string()),
            false => ("go on? y/N: ".to_string(), "y".to_string()),
        };
        if typed(&question)? != wanted {
            return Err(Exit::Error("nothing was done".into()));
        }
    }
    Ok(reason)
}

fn typed(question: &str) -> Result<String, Exit> {
    let read = || -> Result<String> {
        print(question)?;
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        Ok(line.trim().to_string())
    };
    read()
        .context("cannot ask")
        .map_err(|e| Exit::Error(format!("{e:#}")))
}

/// Over the line before.
fn progress(p: &Progress) {
    let end = if p.asked > p.done { "" } else { "\n" };
    let _ = write!(
        std::io::stderr(),
        "\r{} of {} done, {} changed, {:.0} a second; Ctrl-C stops after this chunk\x1b[K{end}",
        thousands(p.done),
        thousands(p.asked),
        thousands(p.changed),
        p.per_second
    );
}
