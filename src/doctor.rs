//! `jobtop doctor`: one page for a bug report or a newcomer. What was found, what needs doing, and the statement that
//! does it. It reads only: one session, and a second one for the moment of a notification to itself.

mod clocks;
mod columns;
mod connection;
mod cost;
mod facts;
mod indexes;
pub mod page;
mod plan;
mod push;
mod queues;
mod rights;
mod slots;
mod transactions;

use crate::config::Config;
use crate::connect::session::Purpose;
use crate::connect::{Fault, Session, Target};
use crate::feed::push::{Sent, test};
use crate::feed::round::Round;
use crate::log;
use crate::once::Refused;
use crate::probe::Snapshot;
use crate::queue::{Catalogue, Half, Instance, profiles};
use facts::Facts;
use page::{Level, Page, Part};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How our sessions are called.
const NAME: &str = "jobtop doctor";

/// Refreshes that are made: claims between the first and the last tell the clocks of workers.
const LOOKS: usize = 4;

/// Between two of them.
const APART: Duration = Duration::from_millis(700);

/// What the parts of the page are made of.
struct Seen<'a> {
    target: &'a Target,
    config: &'a Config,
    facts: &'a Facts,
    snapshot: &'a Snapshot,
    instances: &'a [Instance],
    half: &'a [Half],
}

/// Looks at everything, which takes a few seconds.
///
/// # Errors
/// [`Refused`] where there is no connection, or it is lost meanwhile; a profile of the user's that is wrong.
pub async fn examine(target: &Target, config: &Arc<Config>) -> anyhow::Result<Page> {
    let refused = |fault: Fault| Refused::new(&target.place(), fault);
    let session = match Session::open(target, Purpose::Poll, NAME).await {
        Ok(session) => session,
        Err(fault) => return Err(refused(fault).into()),
    };
    let page = look(&session, target, config).await;
    session.close().await;
    // a session that is lost on the way is no connection
    page.map_err(|error| match error.downcast::<Fault>() {
        Ok(fault) => refused(fault).into(),
        Err(error) => error,
    })
}

async fn look(db: &Session, target: &Target, config: &Arc<Config>) -> anyhow::Result<Page> {
    // first, while nothing else is listened to
    let sent = test(db, target, NAME).await?;
    let facts = Facts::read(db).await?;
    let snapshot = refreshes(db, target, config, &sent).await?;
    let profiles = profiles(&config.profiles)?;
    let catalogue = Catalogue::read(db, &profiles).await?;
    let instances = catalogue.systems(db, &profiles, &config.settings).await?;
    let half = catalogue.half_there(&profiles, &instances);
    let seen = Seen {
        target,
        config,
        facts: &facts,
        snapshot: &snapshot,
        instances: &instances,
        half: &half,
    };
    let parts = vec![
        connection::part(&seen),
        settled("RIGHTS", rights::part(db, &seen).await)?,
        queues::part(&seen),
        settled("INDEXES", indexes::part(db, &seen).await)?,
        settled("PUSH", push::part(db, &seen, &sent).await)?,
        clocks::part(&seen),
        slots::part(&seen),
        settled("TRANSACTIONS", transactions::part(db, &seen).await)?,
        cost::part(&seen),
    ];
    let parts = match snapshot.server.in_recovery {
        true => parts.into_iter().map(Part::on_a_standby).collect(),
        false => parts,
    };
    let at = snapshot.taken_at.map_or(String::new(), |t| t.to_string());
    Ok(Page::new(
        place(&snapshot.server.database, target),
        at,
        parts,
    ))
}

/// A few refreshes as the screen makes them; the cheapest one's cost is the usual one, since the first read history.
async fn refreshes(
    db: &Session,
    target: &Target,
    config: &Arc<Config>,
    sent: &Sent,
) -> anyhow::Result<Arc<Snapshot>> {
    let mut round = Round::new(target.clone(), config.clone())?;
    round.connected();
    round.pushed(sent.clone());
    let mut least = (u32::MAX, u64::MAX);
    for n in 0..LOOKS {
        if n > 0 {
            tokio::time::sleep(APART).await;
        }
        db.take_cost();
        let begun = Instant::now();
        round.run_database(db).await?;
        round.run_queues(db).await?;
        let (statements, us) = db.take_cost();
        log::refreshed(begun, (statements, us), APART);
        if us < least.1 {
            least = (statements, us);
        }
    }
    round.snapshot.own.statements_per_refresh = least.0;
    round.snapshot.own.server_ms_per_refresh = least.1 as f64 / 1000.0;
    if round.snapshot.server.push == "listen" {
        db.execute("UNLISTEN *").await?;
    }
    Ok(round.assemble())
}

/// A part that could not be looked at is a line that says so.
fn settled(title: &str, part: Result<Part, Fault>) -> Result<Part, Fault> {
    match part {
        Err(fault) if fault.closed => Err(fault),
        Err(fault) => {
            let mut part = Part::new(title);
            part.say(Level::Note, "not seen", fault.to_string());
            Ok(part)
        }
        part => part,
    }
}

fn place(database: &str, target: &Target) -> String {
    format!("{database} @ {}", target.host)
}

/// A system by its name, with its schema where that differs.
fn home(instance: &Instance) -> String {
    match instance.schema == instance.system {
        true => instance.system.clone(),
        false => format!("{} in {}", instance.system, instance.schema),
    }
}
