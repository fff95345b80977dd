//! Which files a schema has: its table `migrations`.

use anyhow::{Context as _, bail};
use tokio_postgres::Transaction;
use tokio_postgres::types::Type;

use super::files::{FILES, Migration};
use super::name;

/// One applied file.
#[derive(Debug)]
pub struct Applied {
    version: i64,
    name: String,
    checksum: String,
}

/// Says which right is missing, and the GRANT that helps: Postgres itself would only say that no schema has been selected.
async fn check_rights(tx: &Transaction<'_>, schema: &str, exists: bool) -> anyhow::Result<()> {
    let here = name::literal(schema);
    let may = match exists {
        true => format!(
            "has_schema_privilege({here}, 'USAGE') AND has_schema_privilege({here}, 'CREATE')"
        ),
        false => "has_database_privilege(current_database(), 'CREATE')".into(),
    };
    if flag(tx, &format!("SELECT ({may})::text")).await? {
        return Ok(());
    }
    let names = "SELECT quote_ident(current_database()), quote_ident(current_user)";
    let rows = tx.query_typed(names, &[]).await;
    let rows = rows.map_err(|e| super::explain(&e, "the check of the schema"))?;
    let row = rows.first().context("the server returned no row")?;
    let (database, role): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let identifier = name::identifier(schema);
    if exists {
        bail!(
            "{role} may not create tables in schema {schema}: connect as its owner, or let that one run \
             GRANT USAGE, CREATE ON SCHEMA {identifier} TO {role}"
        );
    }
    bail!(
        "{role} may not create the schema {schema} in this database: let its owner run \
         GRANT CREATE ON DATABASE {database} TO {role}"
    );
}

/// Creates the schema and the ledger where they are missing. A schema that already has tables of our names, but no ledger, was made by
/// somebody else or with psql: it is left alone.
pub async fn create(tx: &Transaction<'_>, schema: &str) -> anyhow::Result<()> {
    let found = format!(
        "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = {})::text",
        name::literal(schema)
    );
    let exists = flag(tx, &found).await?;
    if !exists {
        check_rights(tx, schema, false).await?;
        // Not IF NOT EXISTS alone: that asks for the right to create even when there is nothing to create.
        tx.batch_execute(&format!(
            "CREATE SCHEMA IF NOT EXISTS {}",
            name::identifier(schema)
        ))
        .await
        .map_err(|e| super::explain(&e, "the schema"))?;
    }
    if flag(tx, "SELECT (to_regclass('migrations') IS NOT NULL)::text").await? {
        return Ok(());
    }
    check_rights(tx, schema, true).await?;
    if flag(tx, "SELECT (coalesce(to_regclass('tasks'), to_regclass('task_attempts'), to_regclass('limits')) IS NOT NULL)::text").await? {
        bail!(
            "the schema {schema} already has queue tables that jobtop migrate did not make (made with psql, or another queue); \
             choose another schema name, or keep upgrading it by hand"
        );
    }
    tx.batch_execute(
        "CREATE TABLE migrations (
             version bigint PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
             applied_at timestamptz NOT NULL DEFAULT clock_timestamp(), applied_by text NOT NULL DEFAULT session_user)",
    )
    .await
    .map_err(|e| super::explain(&e, "the table of migrations"))?;
    Ok(())
}

/// What has been applied, in order.
pub async fn read(tx: &Transaction<'_>) -> anyhow::Result<Vec<Applied>> {
    let rows = tx
        .query_typed(
            "SELECT version::int8, name::text, checksum::text FROM migrations ORDER BY version",
            &[],
        )
        .await
        .context("cannot read the table of migrations")?;
    rows.iter()
        .map(|row| {
            Ok(Applied {
                version: row.try_get(0)?,
                name: row.try_get(1)?,
                checksum: row.try_get(2)?,
            })
        })
        .collect()
}

/// Stops where a newer program has been at work: this one cannot know what it would break.
pub fn refuse_unknown(applied: &[Applied], schema: &str) -> anyhow::Result<()> {
    let newest = FILES.last().map_or(0, |file| file.version);
    match applied.iter().find(|known| known.version > newest) {
        Some(known) => bail!(
            "the schema {schema} has {} from a newer jobtop than this one (which knows {newest}); upgrade jobtop first",
            known.name
        ),
        None => Ok(()),
    }
}

/// Whether `file` is there. An error if another text was applied under its number.
pub fn is_applied(applied: &[Applied], file: &Migration, schema: &str) -> anyhow::Result<bool> {
    let Some(known) = applied.iter().find(|known| known.version == file.version) else {
        return Ok(false);
    };
    if known.checksum != file.checksum() {
        bail!(
            "{} in schema {schema} is not the one this jobtop has: it was changed after it was applied; \
             use the jobtop that applied it, or another schema",
            known.name
        );
    }
    Ok(true)
}

/// Notes that `file` has been applied, in the transaction that did it.
pub async fn record(tx: &Transaction<'_>, file: &Migration) -> anyhow::Result<()> {
    tx.query_typed(
        "INSERT INTO migrations (version, name, checksum) VALUES ($1, $2, $3)",
        &[
            (&file.version, Type::INT8),
            (&file.name, Type::TEXT),
            (&file.checksum(), Type::TEXT),
        ],
    )
    .await
    .with_context(|| format!("cannot note that {} was applied", file.name))?;
    Ok(())
}

/// One boolean, selected as text.
pub async fn flag(tx: &Transaction<'_>, sql: &str) -> anyhow::Result<bool> {
    let rows = tx
        .query_typed(sql, &[])
        .await
        .map_err(|e| super::explain(&e, "the check of the schema"))?;
    let text: Option<String> = rows
        .first()
        .map(|row| row.try_get(0))
        .transpose()?
        .flatten();
    Ok(text.as_deref() == Some("true"))
}
