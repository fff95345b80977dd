//! The reference queue, on a real Postgres: what each function promises, limits and ownership while many race, roles, the gated
//! notification, what a claim and a refresh read, and the runner that installs it.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod adjust;
#[path = "../common/mod.rs"]
mod common;
mod functions;
mod limits;
mod migrate;
mod notify;
mod operators;
mod plans;
mod roles;
mod stress;
mod usage;

use jobtop::migrate::{NotifyChange, apply};
use tokio_postgres::{Client, Config, Error, SimpleQueryMessage};

/// The schema of most tests.
const SCHEMA: &str = "agent_queue";

/// A database of its own with the queue in it, and how to reach it.
async fn queue(hint: &str) -> (Client, Config) {
    let (_, config) = common::database(hint);
    let mut client = common::connect(&config).await;
    apply(&mut client, SCHEMA, NotifyChange::Keep)
        .await
        .expect("the queue is installed");
    (session(&config).await, config)
}

/// One more client whose unqualified names are the queue's.
async fn session(config: &Config) -> Client {
    let client = common::connect(config).await;
    client
        .batch_execute(&format!("SET search_path = {SCHEMA}"))
        .await
        .expect("a search_path");
    client
}

/// The rows of a statement, each column as text and NULL as `-`.
async fn try_rows(client: &Client, sql: &str) -> Result<Vec<Vec<String>>, Error> {
    let messages = client.simple_query(sql).await?;
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(
            (0..row.len())
                .map(|i| row.get(i).unwrap_or("-").to_owned())
                .collect(),
        ),
        _ => None,
    });
    Ok(rows.collect())
}

/// The same, of a statement that must succeed.
async fn rows(client: &Client, sql: &str) -> Vec<Vec<String>> {
    try_rows(client, sql)
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e:?}"))
}

/// The rows of a statement, one line each, columns separated by `|`.
async fn lines(client: &Client, sql: &str) -> Vec<String> {
    rows(client, sql)
        .await
        .iter()
        .map(|row| row.join("|"))
        .collect()
}

/// The only value of a statement.
async fn one(client: &Client, sql: &str) -> String {
    let rows = rows(client, sql).await;
    assert_eq!(rows.len(), 1, "{sql}");
    rows[0].join("|")
}

/// The only value of a statement, a number.
async fn number(client: &Client, sql: &str) -> i64 {
    one(client, sql)
        .await
        .parse()
        .unwrap_or_else(|e| panic!("{sql}: {e}"))
}

/// Runs a statement for its effect.
async fn run(client: &Client, sql: &str) {
    rows(client, sql).await;
}

/// The SQLSTATE with which a statement is refused.
async fn refusal(client: &Client, sql: &str) -> String {
    let error = try_rows(client, sql)
        .await
        .expect_err(&format!("must be refused: {sql}"));
    error.code().expect("a SQLSTATE").code().to_owned()
}

/// Claims one task and returns its id and token.
async fn claim_one(client: &Client, queue: &str) -> (i64, i64) {
    let rows = rows(
        client,
        &format!("SELECT id, lease_token FROM claim('{queue}', 'w')"),
    )
    .await;
    assert_eq!(rows.len(), 1, "nothing to claim in {queue}");
    (rows[0][0].parse().unwrap(), rows[0][1].parse().unwrap())
}
