//! Fixture data: a day of a busy queue, so that every pane has something to say from the first moment. The same
//! seed gives the same rows, as far from now.
//!
//! `plan` decides in Rust what has happened; `insert` writes it in a few large statements.

mod insert;
mod plan;
mod trouble;

use anyhow::{Context, bail};
use tokio_postgres::types::Type;

use super::calls::quoted;
use super::link::Link;
use crate::connect::{Cells, Fault};

/// What the fixture data should be like.
#[derive(Clone, Debug)]
pub struct SeedOptions {
    /// What chance depends on.
    pub seed: u64,
    /// Add to a queue that has tasks.
    pub force: bool,
    /// Leave tasks behind that run, and leases that have expired: for a queue that nobody works on. Where workers
    /// are about to start it only looks like a crash.
    pub running: bool,
    /// Minutes of full traffic up to now.
    pub busy_minutes: f64,
    /// Hours of thin traffic before.
    pub quiet_hours: f64,
}

impl Default for SeedOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            force: false,
            running: true,
            busy_minutes: 75.0,
            quiet_hours: 24.5,
        }
    }
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeedReport {
    /// Rows of `tasks`.
    pub tasks: usize,
    /// Rows of `task_attempts`.
    pub attempts: usize,
    /// Rows of `usage`.
    pub usage: usize,
    /// Rows of `operator_actions`.
    pub actions: usize,
}

/// Writes fixture data into the reference queue of `schema`, in one transaction. The role must own its tables.
///
/// # Errors
/// A queue that has tasks is refused unless forced; so is a schema without the reference queue.
pub async fn seed(db: &Link, schema: &str, options: &SeedOptions) -> anyhow::Result<SeedReport> {
    let s = quoted(schema);
    let there = db
        .rows(
            "SELECT to_regclass($1)::text AS tasks, to_regclass($2)::text AS slots",
            &[
                (&format!("{s}.tasks"), Type::TEXT),
                (&format!("{s}.slots"), Type::TEXT),
            ],
        )
        .await
        .context("cannot look for the reference queue")?;
    let exists = there.first().is_some_and(|r| {
        matches!(
            (r.text("tasks"), r.text("slots")),
            (Ok(Some(_)), Ok(Some(_)))
        )
    });
    if !exists {
        bail!("there is no reference queue in schema {schema}: run jobtop migrate first");
    }
    db.run("BEGIN").await?;
    let result = write(db, &s, schema, options).await;
    if result.is_err() {
        let _ = db.run("ROLLBACK").await;
        return result;
    }
    db.run("COMMIT").await?;
    // Without statistics the first plans would be those of an empty queue. Only the columns that are looked for:
    // autovacuum does the rest.
    for columns in [
        "tasks (id, queue, kind, agent, tenant, batch_id, status, priority, created_at, run_after, deferred, \
                finished_at, lease_expires_at)",
        "task_attempts (task_id, attempt, worker, outcome, finished_at)",
        "usage (task_id, queue, model, reported_at)",
        "slots",
    ] {
        db.run(&format!("ANALYZE {s}.{columns}")).await?;
    }
    result
}

async fn write(
    db: &Link,
    s: &str,
    schema: &str,
    options: &SeedOptions,
) -> anyhow::Result<SeedReport> {
    db.run(&format!(
        "SET LOCAL lock_timeout = '3s'; LOCK TABLE {s}.tasks IN SHARE ROW EXCLUSIVE MODE"
    ))
    .await
    .map_err(|fault| refused(&fault, schema))?;
    let rows = db
        .rows(
            &format!(
                "SELECT (EXISTS (SELECT FROM {s}.tasks))::bool AS used, \
                        (extract(epoch FROM clock_timestamp()) * 1e6)::int8 AS now, \
                        nextval(pg_get_serial_sequence($1, 'id'))::int8 AS id"
            ),
            &[(&format!("{s}.tasks"), Type::TEXT)],
        )
        .await
        .map_err(|fault| refused(&fault, schema))?;
    let row = rows.first().context("the server returned no row")?;
    if row.flag("used")?.unwrap_or(false) && !options.force {
        bail!("the queue in schema {schema} has tasks: use --force to add fixture data to them");
    }
    let first_id = row.int("id")?.unwrap_or(1);
    let now = row.int("now")?.context("the server has no clock")?;
    let plan = plan::Plan::new(options, first_id);
    insert::write(db, s, now, &plan)
        .await
        .map_err(|fault| refused(&fault, schema))?;
    Ok(SeedReport {
        tasks: plan.tasks.len(),
        attempts: plan.attempts.len(),
        usage: plan.usage.len(),
        actions: plan.actions.len(),
    })
}

fn refused(fault: &Fault, schema: &str) -> anyhow::Error {
    if fault.is("42501") {
        return anyhow::anyhow!(
            "this role may not write the tables of schema {schema}: connect as their owner"
        );
    }
    if fault.is("55P03") {
        return anyhow::anyhow!(
            "the queue in schema {schema} is in use: stop its workers or try again"
        );
    }
    anyhow::anyhow!("fixture data was not written: {fault}")
}
