//! Who did what: one row per action, written in the action's own transaction.

use crate::connect::{Fault, Session};
use crate::journal::{host, person};
use std::borrow::Cow;
use tokio_postgres::types::Type;

/// One row of the journal.
pub(super) struct Entry<'a> {
    /// Names the action.
    pub id: &'a str,
    /// `requeue`, `terminate`, ….
    pub action: Cow<'a, str>,
    /// What it was done to, and what became of each.
    pub outcomes: Vec<(&'a str, &'a str)>,
    /// How many of them were changed.
    pub changed: usize,
    /// Why, in the operator's words.
    pub reason: Option<&'a str>,
    /// The statement.
    pub sql: &'a str,
}

const COLUMNS: &str =
    "action_id, who, from_host, action, ids, asked, changed, skipped, outcomes, reason, sql";

/// A statement that can be planned where a row could be inserted into `table` (already quoted).
pub fn trial(table: &str) -> String {
    let nothing = COLUMNS.split(", ").map(|_| "NULL");
    let nothing = nothing.collect::<Vec<_>>().join(", ");
    format!("INSERT INTO {table} ({COLUMNS}) VALUES ({nothing})")
}

/// Why there can be none.
pub fn refused(fault: Fault) -> Fault {
    match fault.is("42703") {
        // a column that a later migration adds
        true => Fault {
            message: format!(
                "run jobtop migrate, the queue is older than this jobtop: {}",
                fault.message
            ),
            ..fault
        },
        false => fault,
    }
}

/// Inserts the journal row into `table` (already quoted).
pub(super) async fn write(db: &Session, table: &str, entry: &Entry<'_>) -> Result<(), Fault> {
    let sql = format!(
        "INSERT INTO {table} ({COLUMNS}) \
         VALUES ($1, $2, $3, $4, $5, $6::int4, $7::int4, $8::int4, $9::text::jsonb, $10, $11)"
    );
    let ids: Vec<&str> = entry.outcomes.iter().map(|(id, _)| *id).collect();
    let asked = ids.len() as i32;
    let changed = entry.changed as i32;
    let outcomes: serde_json::Map<String, serde_json::Value> = entry
        .outcomes
        .iter()
        .map(|(id, outcome)| (id.to_string(), (*outcome).into()))
        .collect();
    let outcomes = serde_json::Value::Object(outcomes).to_string();
    let written = db
        .write(
            &sql,
            &[
                (&entry.id, Type::TEXT),
                (&person(), Type::TEXT),
                (&host(), Type::TEXT),
                (&entry.action, Type::TEXT),
                (&ids, Type::TEXT_ARRAY),
                (&asked, Type::INT4),
                (&changed, Type::INT4),
                (&(asked - changed), Type::INT4),
                (&outcomes, Type::TEXT),
                (&entry.reason, Type::TEXT),
                (&entry.sql, Type::TEXT),
            ],
        )
        .await;
    written.map(|_| ()).map_err(refused)
}
