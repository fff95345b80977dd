//! What the queue tests share: a database with a schema, a session as the sampler has it, one look at everything.

#![allow(dead_code, reason = "no test binary uses everything")]

use crate::common;
use jobtop::connect::{Cells, Session, Target, session::Purpose};
use jobtop::probe::{QueueProbes, ServerTime, Snapshot};

/// The reference queue, without its roles (those belong to the whole cluster).
pub fn agent_queue() -> String {
    let files = jobtop::migrate::FILES
        .iter()
        .filter(|f| !f.name.contains("roles"));
    let sql: Vec<&str> = files.map(|f| f.sql).collect();
    format!(
        "CREATE SCHEMA agent_queue; SET search_path = agent_queue, pg_temp;\n{}",
        sql.join("\n")
    )
}

/// A database with this schema, a client that may write, and a session as the sampler has it.
pub async fn open(
    hint: &str,
    sql: &str,
) -> (tokio_postgres::Client, Session, tokio_postgres::Config) {
    let (_, config) = common::database(hint);
    let client = common::connect(&config).await;
    client.batch_execute(sql).await.expect("the schema");
    let target = Target::new(config.clone()).expect("a target");
    let session = Session::open(&target, Purpose::Poll, "jobtop")
        .await
        .expect("a session");
    (client, session, config)
}

/// The server's clock.
pub async fn now(session: &Session) -> ServerTime {
    let rows = session
        .query("SELECT extract(epoch FROM now())::float8 AS now", &[])
        .await
        .expect("now");
    rows[0].time("now").expect("time").expect("not null")
}

/// One look at everything.
pub async fn everything(probes: &mut QueueProbes, session: &Session) -> Snapshot {
    let now = now(session).await;
    probes.queues(session, now).await.expect("queues");
    probes.finished(session, now).await.expect("finished");
    probes.leases(session, now).await.expect("leases");
    probes.cost(session, now).await.expect("cost");
    probes.tasks(session, now).await.expect("tasks");
    probes.failures(session, now).await.expect("failures");
    let mut snapshot = Snapshot {
        taken_at: Some(now),
        ..Snapshot::default()
    };
    probes.fill(&mut snapshot);
    snapshot
}
