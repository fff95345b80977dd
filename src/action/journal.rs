//! Who did what: one row per action, written in the action's own transaction.

use super::{Fate, Plan};
use crate::connect::{Fault, Session};
use crate::journal::{host, person};
use tokio_postgres::types::Type;

/// Inserts the journal row into `table` (already quoted).
pub(super) async fn write(
    db: &Session,
    table: &str,
    plan: &Plan,
    id: &str,
    statement: &str,
    fates: &[Fate],
) -> Result<(), Fault> {
    let sql = format!(
        "INSERT INTO {table} (action_id, who, from_host, action, ids, asked, changed, skipped, outcomes, reason, sql) \
         VALUES ($1, $2, $3, $4, $5, $6::int4, $7::int4, $8::int4, $9::text::jsonb, $10, $11)"
    );
    let ids: Vec<&str> = fates.iter().map(|f| f.key.id.as_str()).collect();
    let asked = ids.len() as i32;
    let changed = fates.iter().filter(|f| f.done()).count() as i32;
    let outcomes: serde_json::Map<String, serde_json::Value> = fates
        .iter()
        .map(|f| (f.key.id.clone(), f.outcome.clone().into()))
        .collect();
    let outcomes = serde_json::Value::Object(outcomes).to_string();
    db.write(
        &sql,
        &[
            (&id, Type::TEXT),
            (&person(), Type::TEXT),
            (&host(), Type::TEXT),
            (&plan.verb.name(), Type::TEXT),
            (&ids, Type::TEXT_ARRAY),
            (&asked, Type::INT4),
            (&changed, Type::INT4),
            (&(asked - changed), Type::INT4),
            (&outcomes, Type::TEXT),
            (&plan.reason, Type::TEXT),
            (&statement, Type::TEXT),
        ],
    )
    .await?;
    Ok(())
}
