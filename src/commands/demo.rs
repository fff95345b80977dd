//! `jobtop demo`, `jobtop seed`, `jobtop work`: a queue with life in it.

use super::{Exit, can_draw, config, runtime, target};
use crate::cli::{Demo as Args, Seed, Work};
use crate::connect::Target;
use crate::demo::link::Link;
use crate::demo::seed::{SeedOptions, seed as write_seed};
use crate::demo::{Demo, DemoOptions, Scenario, crew, roles, scenario, settings};
use crate::once::Refused;
use crate::out::{done, print, say};
use crate::run;
use crate::term::signals::{Asked, Signals};
use anyhow::Result;
use std::sync::Arc;

pub(super) fn demo(args: &Args) -> Result<Exit> {
    if args.list {
        let line = |(name, about): (&str, &str)| format!("{name:<20} {about}\n");
        print(&scenario::names().into_iter().map(line).collect::<String>())?;
        return Ok(Exit::Fine);
    }
    let scenario: Scenario = or_exit!(args.scenario.parse().map_err(Exit::Usage));
    let mut config = or_exit!(config(args.config.as_deref(), &args.look, true));
    settings::apply(&mut config);
    if !args.headless {
        or_exit!(can_draw());
    }
    let options = DemoOptions {
        scenario,
        seed: args.seed,
        bindir: args.pg_bindir.clone(),
        ..DemoOptions::default()
    };
    // one thread more than for watching: the clients of the demo must not hold up the screen
    let runtime = runtime(2)?;
    runtime.block_on(async {
        let demo = Demo::start(options, Box::new(say)).await?;
        let target = demo.target(roles::ONCALL);
        // what is tried here goes with it
        config.journal_file = config
            .journal_file
            .take()
            .or_else(|| Some(demo.root().join("journal.jsonl")));
        let exit = if args.headless {
            headless(&target).await
        } else {
            run::monitor(target, Arc::new(config), None)
                .await
                .map(Exit::of)
        };
        demo.stop().await;
        exit
    })
}

async fn headless(target: &Target) -> Result<Exit> {
    let config = &target.config;
    print(&format!(
        "the demo runs; watch it with: jobtop 'host={} port={} user={} dbname={}' --allow-writes\n",
        target.host,
        config.get_ports().first().copied().unwrap_or(5432),
        config.get_user().unwrap_or_default(),
        config.get_dbname().unwrap_or_default(),
    ))?;
    Ok(stopped().await)
}

/// Waits for a signal that ends the program.
async fn stopped() -> Exit {
    let Ok(mut signals) = Signals::listen() else {
        return Exit::Error("signals cannot be listened to".into());
    };
    loop {
        match signals.next().await {
            Asked::End(signal) => return Exit::Signal(signal),
            Asked::HangUp => return Exit::HangUp,
            Asked::Stop => {}
        }
    }
}

pub(super) fn seed(args: &Seed) -> Result<Exit> {
    let target = or_exit!(target(&args.place));
    let options = SeedOptions {
        seed: args.seed,
        force: args.force,
        ..SeedOptions::default()
    };
    let report = runtime(1)?.block_on(async {
        let opened = Link::open(&target, "jobtop seed").await;
        let link = opened.map_err(|fault| Refused::new(&target.place(), fault))?;
        write_seed(&link, &args.schema, &options).await
    })?;
    done(&format!(
        "{} tasks, {} attempts, {} usage records, {} operator actions\n",
        report.tasks, report.attempts, report.usage, report.actions
    ))?;
    Ok(Exit::Fine)
}

pub(super) fn work(args: &Work) -> Result<Exit> {
    let target = or_exit!(target(&args.place));
    let deeds = runtime(1)?.block_on(async {
        // asked for only once the agents may work
        let until = async {
            let line = format!(
                "{} agents work on {} until Ctrl-C\n",
                args.agents, args.schema
            );
            // nobody may be there to read it
            let _ = print(&line);
            stopped().await;
        };
        let agents = args.agents as usize;
        crew::work(&target, &args.schema, agents, args.seed, until).await
    })?;
    let counts: Vec<String> = deeds
        .counts
        .iter()
        .map(|(what, n)| format!("{n} {what}"))
        .collect();
    done(&format!("{}\n", counts.join(", ")))?;
    // being stopped is how this command ends
    Ok(match deeds.last_fault {
        Some(fault) => Exit::Error(format!(
            "{} statements were refused, the last: {fault}",
            deeds.faults
        )),
        None => Exit::Fine,
    })
}
