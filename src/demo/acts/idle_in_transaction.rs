//! A worker of a new release claims inside a transaction, counts the batch's progress in it, and then calls its model
//! before it commits. Other workers that finish tasks of the batch queue behind its progress row, and customers who
//! move their tasks up queue behind the tasks.
//!
//! By hand: end the session that is idle in transaction.

use tokio::task::JoinSet;
use tokio_postgres::types::Type;

use super::Stage;
use crate::connect::{Cells, Fault};
use crate::demo::agents::LEASE_S;
use crate::demo::link::Link;

pub async fn play(stage: &Stage) -> Result<(), Fault> {
    let name = format!("agent-{}", stage.world().next_worker());
    let agent = stage.open(&stage.logins.agents, &name).await?;
    let batch = stage.bring("parse_contract", "globex", 30).await?;
    let claimed = claim(stage, &agent, &name, &batch).await?;

    let mut customers = JoinSet::new();
    // Two want the same task: the second one waits for the first one's place in the queue.
    for (n, id) in claimed.iter().chain(claimed.first()).take(3).enumerate() {
        let customer = stage
            .open(&stage.logins.api, &format!("api-web-{}", n + 4))
            .await?;
        let (id, sql) = (
            *id,
            format!(
                "UPDATE {}.tasks SET priority = priority + 1 WHERE id = $1",
                stage.s
            ),
        );
        customers.spawn(async move { customer.rows(&sql, &[(&id, Type::INT8)]).await.map(|_| ()) });
    }
    let clock = stage.clock(30.0);
    while !agent.ended() && clock.tick().await {}
    drop(agent);
    // Nothing holds them any more.
    while let Some(customer) = customers.join_next().await {
        if let Ok(Err(fault)) = customer {
            stage.world().fault("api-web", &fault);
        }
    }
    Ok(())
}

/// BEGIN and three claims; the tasks' ids.
async fn claim(stage: &Stage, agent: &Link, name: &str, batch: &str) -> Result<Vec<i64>, Fault> {
    let sql = format!(
        "SELECT id::int8 FROM {}.claim('parser', $1, 3, make_interval(secs => $2), '2d07e11')",
        stage.s
    );
    agent.run("BEGIN").await?;
    let rows = agent
        .rows(&sql, &[(&name, Type::TEXT), (&LEASE_S, Type::FLOAT8)])
        .await?;
    if stage.shop.progress {
        agent
            .rows(
                "UPDATE public.batch_progress SET changed_at = clock_timestamp() WHERE batch_id = $1",
                &[(&batch, Type::TEXT)],
            )
            .await?;
    }
    rows.iter()
        .map(|row| Ok(row.int("id")?.unwrap_or(0)))
        .collect()
}
