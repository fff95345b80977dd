//! Three agents of a small tenant were told to go on until they are done, and carry an ever larger context along.
//!
//! By hand: cancel the three tasks; their workers hear of it at the next heartbeat.

use serde_json::json;

use super::Stage;
use crate::connect::Fault;
use crate::demo::catalog;
use crate::demo::link::Line;
use crate::demo::office;

/// Small tenants, one a round.
const TENANTS: [&str; 3] = ["hooli", "vandelay", "soylent"];

pub async fn play(stage: &Stage) -> Result<(), Fault> {
    let tenant = TENANTS[stage.round % TENANTS.len()];
    let batch = format!("deep-research-{tenant}-{}", stage.world().next_call());
    let mut dice = stage.dice("cost-runaway");
    let kind = catalog::kind("research_topic");
    let tasks: Vec<_> = (0..3)
        .map(|n| {
            let mut task = office::order(kind, tenant, Some(&batch), &mut dice);
            task["priority"] = json!(20);
            task["payload"] =
                json!({"topic": format!("everything about #{n}"), "max_steps": 20, "context": 14});
            task
        })
        .collect();
    let line = Line::new(&stage.logins.api, "api-web-4");
    let tasks = serde_json::Value::Array(tasks).to_string();
    stage.shop.calls.enqueue_many(&line, &tasks).await?;
    drop(line);
    let clock = stage.clock(50.0);
    while clock.tick().await && stage.live(&batch).await? > 0 {}
    Ok(())
}
