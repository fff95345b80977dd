//! Whether changes can be pushed: channels, triggers, and what became of a notification sent to ourselves.

use super::Seen;
use super::page::{Level, Part};
use crate::connect::{Cells, Fault, Session};
use crate::feed::push::Sent;
use tokio_postgres::types::Type;

const TRIGGERS: &str = "SELECT t.tgrelid::int8 AS oid, t.tgname::text AS name, t.tgrelid::regclass::text AS relation, \
        (t.tgenabled IN ('O', 'A'))::bool AS enabled \
    FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid \
    WHERE NOT t.tgisinternal AND t.tgrelid::int8 = ANY ($1::int8[]) AND p.prosrc ~* 'notify' ORDER BY 3, 2";

/// Channels, triggers, the notification's fate, and how full the server's queue of them is.
pub async fn part(db: &Session, seen: &Seen<'_>, sent: &Sent) -> Result<Part, Fault> {
    let mut part = Part::new("PUSH (polling is the truth; a notification only brings it forward)");
    let mut pushed = false;
    for instance in seen.instances {
        let home = super::home(instance);
        let channels = instance.channels(db).await?;
        if channels.is_empty() {
            part.say(Level::Ok, "channels", format!("{home}: none, it is polled"));
            continue;
        }
        part.say(
            Level::Ok,
            "channels",
            format!("{home}: {}", channels.join(", ")),
        );
        let oids: Vec<i64> = instance.relations.iter().map(|r| r.oid.into()).collect();
        let rows = db.query(TRIGGERS, &[(&oids, Type::INT8_ARRAY)]).await?;
        let mut names = Vec::new();
        for row in &rows {
            let (name, relation) = (row.word("name")?, row.word("relation")?);
            if row.flag("enabled")?.unwrap_or(false) {
                names.push(name);
                continue;
            }
            let name = crate::queue::template::ident(&name);
            let run = format!("ALTER TABLE {relation} ENABLE TRIGGER {name};");
            let text = format!("{home}: {name} is disabled");
            part.advise(Level::Note, "trigger", text, vec![run]);
        }
        if !names.is_empty() {
            pushed = true;
            part.say(
                Level::Ok,
                "trigger",
                format!("{home}: {}", names.join(", ")),
            );
        } else if rows.is_empty() {
            // the system that brings its roles brings its trigger
            let made_by = instance.profile.grants.made_by.iter();
            let run = made_by.map(|by| format!("{by} --with-notify --schema {}", instance.schema));
            let text = format!("{home}: none announces changes, it is polled");
            part.advise(Level::Note, "trigger", text, run.collect());
        }
    }
    arrival(&mut part, sent, pushed && !seen.facts.shared);
    fullness(&mut part, seen);
    Ok(part)
}

/// What becomes of it is a matter of its own where something is pushed, and CONNECTION does not name the pooler already.
fn arrival(part: &mut Part, sent: &Sent, grave: bool) {
    match sent {
        Sent::Received => {
            let text = "a notification from a second session arrived";
            part.say(Level::Ok, "self-test", text);
        }
        Sent::Lost | Sent::Shared => {
            let level = if grave {
                Level::NeedsDoing
            } else {
                Level::Note
            };
            let what = match sent {
                Sent::Shared => {
                    "not made: a pooler shares sessions between clients, and a LISTEN would stay with the next one"
                }
                _ => {
                    "LISTEN was accepted, and a notification from a second session did not arrive within 2 s: a pooler in transaction mode?"
                }
            };
            let text = format!(
                "{what}. Changes show at the next poll only; connect to the server itself to have them at once"
            );
            part.say(level, "self-test", text);
        }
        Sent::Untried(why) => part.say(Level::Note, "self-test", format!("not made: {why}")),
    }
}

fn fullness(part: &mut Part, seen: &Seen<'_>) {
    let m = &seen.snapshot.maintenance;
    let Some(usage) = m.notify_queue else {
        return part.say(Level::Note, "queue", "how full it is was not told");
    };
    let full = format!(
        "the server's queue of notifications is {:.0} % full",
        usage * 100.0
    );
    match usage > seen.config.thresholds.notify_queue {
        false => part.say(Level::Ok, "queue", full),
        true => {
            let (run, who) = match &m.notify_blame {
                Some((pid, app, why)) => (
                    vec![format!("SELECT pg_terminate_backend({pid});")],
                    format!("{app} (pid {pid}) {why}"),
                ),
                None => (Vec::new(), "who does not read is not known".into()),
            };
            let text = format!("{full}: {who}; when it is full, commits that notify fail");
            part.advise(Level::NeedsDoing, "queue", text, run);
        }
    }
}
