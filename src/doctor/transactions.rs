//! What stops vacuum: prepared transactions that nobody finished, and whoever holds the oldest snapshot.

use super::Seen;
use super::page::{Level, Part};
use crate::connect::{Cells, Fault, Session};
use crate::queue::template::literal;
use crate::ui::fmt;

/// Prepared transactions listed at most.
const PREPARED: &str = "SELECT x.gid::text AS gid, x.database::text AS db, (x.database = current_database())::bool AS here, \
        extract(epoch FROM clock_timestamp() - x.prepared)::float8 AS held_s, age(x.transaction)::int8 AS age \
    FROM pg_prepared_xacts x ORDER BY x.prepared LIMIT 5";

/// What stops vacuum.
pub async fn part(db: &Session, seen: &Seen<'_>) -> Result<Part, Fault> {
    let mut part = Part::new("TRANSACTIONS");
    let long = seen.config.thresholds.xmin_held;
    let rows = db.query(PREPARED, &[]).await?;
    for row in &rows {
        let (gid, held) = (row.word("gid")?, row.float("held_s")?.unwrap_or(0.0));
        let place = match row.flag("here")?.unwrap_or(false) {
            true => "this database".to_string(),
            false => format!("database {}", row.word("db")?),
        };
        let text = format!(
            "{gid} in {place} for {}, {} back: it holds its locks and xmin until it is finished",
            fmt::duration(held.max(0.0)),
            fmt::plural(row.count("age")?, "transaction", "transactions")
        );
        let level = if held >= long {
            Level::NeedsDoing
        } else {
            Level::Note
        };
        let run = vec![format!(
            "ROLLBACK PREPARED {};  -- or COMMIT PREPARED, whatever its owner says",
            literal(&gid)
        )];
        part.advise(level, "prepared", text, run);
    }
    if rows.is_empty() {
        part.say(Level::Ok, "prepared", "none");
    }
    match &seen.snapshot.maintenance.xmin_holder {
        Some(h) if h.kind != "prepared transaction" => {
            let held = h.held_s.unwrap_or(0.0);
            let age = match h.held_s {
                Some(s) => format!(" for {}", fmt::duration(s)),
                None => String::new(),
            };
            let text = format!(
                "held by {}{age}, {}",
                h.who(),
                fmt::plural(h.age_xids.max(0) as u64, "transaction", "transactions")
            );
            let level = if held >= long {
                Level::NeedsDoing
            } else {
                Level::Ok
            };
            part.say(level, "xmin", text);
        }
        Some(_) => {}
        None => part.say(Level::Ok, "xmin", "held by nobody"),
    }
    Ok(part)
}
