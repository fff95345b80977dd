//! Nothing arrives in a queue that never rests. An empty queue looks like a healthy one.
//!
//! By hand: enqueue something into `crawler`.

use super::Stage;
use crate::connect::Fault;

pub async fn play(stage: &Stage) -> Result<(), Fault> {
    let queue = "crawler";
    stage.world().order(|orders| {
        orders.muted.insert(queue.to_owned());
    });
    let newest = format!(
        "SELECT coalesce(max(id), 0)::int8 AS n FROM {}.tasks WHERE queue = '{queue}' AND created_at > now() - interval '1 h'",
        stage.s
    );
    let clock = stage.clock(55.0);
    clock.tick().await;
    let last = stage.count(&newest).await?;
    while clock.tick().await && stage.count(&newest).await? == last {}
    Ok(())
}
