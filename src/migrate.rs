//! Installs and upgrades the reference queue: the SQL of `migrations/`, which is compiled in, one file a transaction.
//!
//! The files never name their schema. They are run with `search_path` set to it, and their functions keep that path, so that any
//! schema name works and the same files work in psql. What has been applied is written into the schema's own table `migrations`, with a
//! checksum: a file that was changed after it was applied is refused instead of half repaired.

mod files;
mod ledger;
mod name;

use anyhow::{Context as _, bail};
use tokio_postgres::{Client, IsolationLevel, Transaction};

pub use files::{FILES, Migration};

/// What to do about the optional trigger that announces changes on the channel `<schema>_tasks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NotifyChange {
    /// Leave it as it is.
    #[default]
    Keep,
    /// Install it, or replace it by this version's.
    Install,
    /// Remove it if it is there.
    Remove,
}

/// What [`apply`] found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The schema, as the user named it.
    pub schema: String,
    /// Files applied by this call, in order.
    pub applied: Vec<String>,
    /// Files that were there already.
    pub already: Vec<String>,
    /// Whether the optional trigger is installed now.
    pub notify: bool,
    /// What works less well than it could, each a sentence with the next step.
    pub warnings: Vec<String>,
}

/// Brings `schema` to this version's reference queue and creates it where it is missing. May be called again and by several at once;
/// a second call changes nothing.
///
/// Needs a connection whose role may create the schema and, the first time in a cluster, its three roles. Each file is one
/// transaction that gives up after 3 s of waiting for a lock, so that an upgrade never makes workers queue behind it.
///
/// # Errors
/// Each is one sentence: a server before 13, a right that is missing and how to get it, a name that cannot be a schema, tables there that are not ours, a file that was changed
/// after it was applied, a schema that a newer jobtop has upgraded, or what Postgres said.
pub async fn apply(
    client: &mut Client,
    schema: &str,
    notify: NotifyChange,
) -> anyhow::Result<Report> {
    name::check(schema)?;
    check_server(client).await?;
    let mut report = Report {
        schema: schema.to_owned(),
        ..Report::default()
    };

    let tx = begin(client, schema).await?;
    ledger::create(&tx, schema).await?;
    tx.commit()
        .await
        .context("cannot create the schema and its table of migrations")?;

    for file in FILES {
        let tx = begin(client, schema).await?;
        // Read under the lock: somebody else may have applied it since.
        let known = ledger::read(&tx).await?;
        ledger::refuse_unknown(&known, schema)?;
        if ledger::is_applied(&known, file, schema)? {
            report.already.push(file.name.to_owned());
            continue;
        }
        tx.batch_execute(file.sql)
            .await
            .map_err(|e| explain(&e, file.name))?;
        ledger::record(&tx, file).await?;
        tx.commit().await.map_err(|e| explain(&e, file.name))?;
        report.applied.push(file.name.to_owned());
    }

    let optional = match notify {
        NotifyChange::Keep => None,
        NotifyChange::Install => Some(("optional_notify.sql", files::NOTIFY)),
        NotifyChange::Remove => Some(("optional_notify_remove.sql", files::NOTIFY_REMOVE)),
    };
    if let Some((file, sql)) = optional {
        let tx = begin(client, schema).await?;
        tx.batch_execute(sql).await.map_err(|e| explain(&e, file))?;
        tx.commit().await.map_err(|e| explain(&e, file))?;
    }

    let tx = begin(client, schema).await?;
    report.notify =
        ledger::flag(&tx, "SELECT (to_regclass('notify_gate') IS NOT NULL)::text").await?;
    report.warnings = warnings(&tx, schema).await?;
    Ok(report)
}

async fn check_server(client: &Client) -> anyhow::Result<()> {
    let rows = client
        .query_typed(
            "SELECT current_setting('server_version_num')::int8, current_setting('server_version')",
            &[],
        )
        .await
        .context("cannot ask the server for its version")?;
    let row = rows.first().context("the server did not say its version")?;
    let (number, version): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
    if number < 130_000 {
        bail!("the reference queue needs Postgres 13 or later, this server is {version}");
    }
    Ok(())
}

/// One transaction, alone among all that migrate this schema, with the search_path that the files require.
async fn begin<'a>(client: &'a mut Client, schema: &str) -> anyhow::Result<Transaction<'a>> {
    // Said in full: the session may be one that reads only by default.
    let tx = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .read_only(false)
        .start()
        .await
        .map_err(|e| explain(&e, "the start of a migration"))?;
    let lock = format!("jobtop migrate {schema}");
    tx.batch_execute(&format!(
        "SET LOCAL lock_timeout = '30s'; \
         SELECT pg_advisory_xact_lock(hashtextextended({}, 0)); \
         SET LOCAL lock_timeout = '3s'; SET LOCAL statement_timeout = '10min'; \
         SET LOCAL search_path = {}, pg_temp",
        name::literal(&lock),
        name::identifier(schema),
    ))
    .await
    .map_err(|e| explain(&e, "the start of a migration"))?;
    Ok(tx)
}

/// A database error as one sentence with the next step where there is one.
fn explain(error: &tokio_postgres::Error, file: &str) -> anyhow::Error {
    let Some(db) = error.as_db_error() else {
        return anyhow::anyhow!("{file} was not applied: {error}");
    };
    match db.code().code() {
        "55P03" => anyhow::anyhow!(
            "{file} was not applied: the tables are in use by a long transaction (or another migration runs); end it and run jobtop migrate again"
        ),
        "25006" => anyhow::anyhow!(
            "{file} was not applied: this connection is read-only (a standby?); connect to the primary"
        ),
        code => anyhow::anyhow!("{file} was not applied: {} ({code})", db.message()),
    }
}

/// Things that the roles file tolerates, since an administrator may have to do them.
async fn warnings(tx: &Transaction<'_>, schema: &str) -> anyhow::Result<Vec<String>> {
    let monitor = name::identifier(&format!("{schema}_monitor"));
    let operator = name::identifier(&format!("{schema}_operator"));
    let mut warnings = Vec::new();
    let member = |of: &str, role: &str| {
        format!(
            "SELECT pg_has_role({}::regrole, {}::regrole, 'MEMBER')::text",
            name::literal(role),
            name::literal(of)
        )
    };
    if !ledger::flag(tx, &member("pg_monitor", &monitor)).await? {
        warnings.push(format!(
            "sessions of other roles stay hidden from {monitor}: let an administrator run GRANT pg_monitor TO {monitor}"
        ));
    }
    if !ledger::flag(tx, &member(&monitor, &operator)).await? {
        warnings.push(format!("{operator} cannot read the queue: let an administrator run GRANT {monitor} TO {operator}"));
    }
    Ok(warnings)
}
