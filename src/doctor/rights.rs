//! What our role may see and do. What an action needs is not guessed: the server is asked to plan its statement, and
//! refuses where a right is missing.

use super::page::{Level, Part};
use super::{Seen, plan};
use crate::action::{Verb, journal};
use crate::connect::{Cells, Fault, Session};
use crate::queue::action::{self, ActionSql, values};
use crate::queue::template::ident;
use crate::queue::{Instance, action_sql, grants};
use crate::sql;
use crate::ui::fmt::plural;
use tokio_postgres::types::Type;

/// No row where there is no such role.
const SEES_ALL: &str = "SELECT pg_has_role(r.oid, 'pg_read_all_stats', 'usage') AS sees_all FROM pg_roles r WHERE r.rolname = $1";

/// What our role may see and do.
pub async fn part(db: &Session, seen: &Seen<'_>) -> Result<Part, Fault> {
    let mut part = Part::new("RIGHTS");
    let me = ident(&seen.facts.me);
    let grant = |role: &str| vec![format!("GRANT {role} TO {me};")];
    match seen.facts.superuser {
        true => part.say(
            Level::Note,
            "role",
            format!(
                "{} is a superuser: jobtop needs none, `jobtop grants` prints roles for it",
                sql::name(&seen.facts.me)
            ),
        ),
        false => part.say(
            Level::Ok,
            "role",
            format!("{}, no superuser", sql::name(&seen.facts.me)),
        ),
    }
    let (server, c) = (&seen.snapshot.server, &seen.snapshot.connections);
    match server.sees_all {
        true => part.say(Level::Ok, "sessions", "sees those of all roles"),
        false => {
            let shown = c.used.saturating_sub(c.hidden);
            let mut text = format!(
                "sees {shown} of {}: the others' states and waits are hidden",
                c.used
            );
            let mut run = grant("pg_monitor");
            if let Some(role) = comes_with(db, seen.instances).await? {
                text += &format!("; {role}, below, brings pg_monitor");
                run.clear();
            }
            part.advise(Level::NeedsDoing, "sessions", text, run);
        }
    }
    match seen.facts.signals {
        true => part.say(Level::Ok, "^K", "may end sessions of other roles"),
        false => {
            let text = "may end sessions of its own roles only";
            part.advise(Level::Note, "^K", text, grant("pg_signal_backend"));
        }
    }
    match seen.facts.reserve {
        None => part.say(Level::Ok, "full server", "waits for a slot like everybody"),
        Some(true) => part.say(
            Level::Ok,
            "full server",
            "may take one of reserved_connections",
        ),
        Some(false) => {
            let text = "waits for a slot like everybody; may take none of reserved_connections";
            let run = grant("pg_use_reserved_connections");
            part.advise(Level::Note, "full server", text, run);
        }
    }
    for instance in seen.instances {
        let closed = tables(&mut part, instance, seen)?;
        actions(&mut part, db, instance, seen, &closed).await?;
    }
    Ok(part)
}

/// The role that is advised for its tables, where it sees the sessions of all roles too: one grant does for both.
async fn comes_with(db: &Session, instances: &[Instance]) -> Result<Option<String>, Fault> {
    let closed = |i: &&Instance| !i.closed().is_empty();
    for role in instances.iter().filter(closed).filter_map(grants::reader) {
        let rows = db.query(SEES_ALL, &[(&role, Type::TEXT)]).await?;
        let sees = rows.first().map(|row| row.flag("sees_all")).transpose()?;
        if sees.flatten() == Some(true) {
            return Ok(Some(sql::name(&role)));
        }
    }
    Ok(None)
}

/// Which tables cannot be read. What fails for want of them is said here, and nowhere else.
fn tables<'a>(
    part: &mut Part,
    instance: &'a Instance,
    seen: &Seen<'_>,
) -> Result<Vec<&'a str>, Fault> {
    let all = &instance.relations;
    let closed = instance.closed();
    let home = super::home(instance);
    if closed.is_empty() {
        let text = format!(
            "{home}: may read {}",
            plural(all.len() as u64, "table", "tables")
        );
        part.say(Level::Ok, "tables", text);
    } else {
        let run = grants::to_monitor(instance, &seen.facts.me)?;
        let probes = seen.snapshot.probes.iter().filter(|p| {
            let error = p.error.as_deref();
            error.is_some_and(|e| instance.lacks(e, &closed))
        });
        let probes: Vec<&str> = probes.map(|p| p.name.as_str()).collect();
        let mut text = format!("{home}: cannot read {}", closed.join(", "));
        if !probes.is_empty() {
            text += &format!(", so it has no {}", probes.join(", "));
        }
        part.advise(Level::NeedsDoing, "tables", text, ended(run));
    }
    let hidden: Vec<&str> = all
        .iter()
        .filter(|r| r.hides_rows)
        .map(|r| r.name.as_str())
        .collect();
    if !hidden.is_empty() {
        let text = format!(
            "{home}: row-level security may hide rows of {}",
            hidden.join(", ")
        );
        part.say(Level::Note, "rows", text);
    }
    Ok(closed)
}

async fn actions(
    part: &mut Part,
    db: &Session,
    instance: &Instance,
    seen: &Seen<'_>,
    closed: &[&str],
) -> Result<(), Fault> {
    let home = super::home(instance);
    if seen.snapshot.server.in_recovery {
        part.say(Level::Note, "actions", format!("{home}: none on a standby"));
        return Ok(());
    }
    let queue = instance.branches.first().and_then(|b| b.get("q"));
    let queue = queue.map_or("", String::as_str);
    let (mut may, mut not, mut why) = (Vec::new(), Vec::new(), None);
    for verb in Verb::ALL {
        let ActionSql::Run { sql, settings, .. } = action_sql(instance, verb, queue)? else {
            continue;
        };
        let mut all = values(verb, &[], None);
        all.extend(settings);
        match plan::explain(db, &sql, &all, true).await {
            Ok(_) => may.push(verb.name()),
            Err(fault) if fault.closed => return Err(fault),
            Err(fault) => {
                not.push(verb.name());
                why = why.or(Some(fault));
            }
        }
    }
    // each action leaves a row there, or is not done
    if let (Some(table), false) = (action::journal(instance)?, may.is_empty()) {
        match plan::explain(db, &journal::trial(&table), &instance.values, true).await {
            Ok(_) => {}
            Err(fault) if fault.closed => return Err(fault),
            Err(fault) => {
                not.append(&mut may);
                why = Some(journal::refused(fault));
            }
        }
    }
    if !may.is_empty() {
        part.say(
            Level::Ok,
            "actions",
            format!("{home}: may {}", may.join(", ")),
        );
    }
    let Some(why) = why else { return Ok(()) };
    let cause = why.to_string();
    if !closed.is_empty() && instance.lacks(&instance.blame(why.clone()).to_string(), closed) {
        let text = format!(
            "{home}: whether it may {} is seen once it reads",
            not.join(", ")
        );
        part.say(Level::Note, "actions", text);
        return Ok(());
    }
    let level = match seen.config.allow_writes {
        true => Level::NeedsDoing,
        false => Level::Note,
    };
    let run = match why.is("42501") {
        true => grants::to_operate(instance, &seen.facts.me)?,
        false => Vec::new(),
    };
    let text = format!("{home}: may not {}: {cause}", not.join(", "));
    part.advise(level, "actions", text, ended(run));
    Ok(())
}

fn ended(statements: Vec<String>) -> Vec<String> {
    statements.into_iter().map(|s| s + ";").collect()
}
