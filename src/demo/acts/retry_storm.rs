//! Every try of one kind of task fails, costs money all the same, and is tried again a few seconds later.
//!
//! By hand: cancel or park the batch's tasks.

use super::Stage;
use crate::connect::Fault;

/// Kinds that come so rarely that a storm is most of what there is, one a round, and how they fail.
const KINDS: [(&str, &str, &str); 3] = [
    (
        "parse_scan",
        "acme",
        "TimeoutError: read timed out after 30 s",
    ),
    (
        "fetch_sitemap",
        "globex",
        "SSLError: certificate of sitemap host has expired",
    ),
    (
        "embed_image",
        "initech",
        "OverloadedError: no GPU free, try again",
    ),
];

pub async fn play(stage: &Stage) -> Result<(), Fault> {
    let (kind, tenant, error) = KINDS[stage.round % KINDS.len()];
    stage.world().order(|orders| {
        orders.failing = Some((kind.to_owned(), error.to_owned()));
    });
    let batch = stage.bring_stubborn(kind, tenant, 16, 25).await?;
    let clock = stage.clock(28.0);
    while clock.tick().await && stage.live(&batch).await? > 0 {}
    // What had been held back comes now, and succeeds: more than has failed.
    stage.world().order(|orders| orders.failing = None);
    let failures = format!(
        "SELECT count(*)::int8 AS n FROM {0}.task_attempts a JOIN {0}.tasks t ON t.id = a.task_id \
          WHERE a.finished_at > now() - interval '10 min' AND a.outcome = 'failed' AND t.kind = '{kind}'",
        stage.s
    );
    let n = stage.count(&failures).await?.min(400) + 20;
    stage.bring(kind, tenant, n).await?;
    Ok(())
}
