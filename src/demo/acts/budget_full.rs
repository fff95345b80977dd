//! Importers take every connection that their budget has, and all of them stream: none is idle.
//!
//! By hand: end one of the `batch-import-*` sessions.

use tokio::task::JoinSet;

use super::Stage;
use crate::connect::Fault;
use crate::demo::copy;
use crate::demo::settings::BATCH_LIMIT;

pub async fn play(stage: &Stage) -> Result<(), Fault> {
    stage.world().order(|orders| orders.copying = true);
    let mut importers = JoinSet::new();
    // Two are there anyway.
    for n in 3..=BATCH_LIMIT {
        let link = stage
            .open(&stage.logins.batch, &format!("batch-import-{n}"))
            .await?;
        let (shop, mut dice) = (stage.shop.clone(), stage.dice("import"));
        importers.spawn(async move { copy::stream(&shop.world, &link, &mut dice).await });
    }
    let all = importers.len();
    let clock = stage.clock(24.0);
    while importers.len() == all && clock.tick().await {
        while importers.try_join_next().is_some() {}
    }
    stage.world().order(|orders| orders.copying = false);
    importers.join_all().await;
    Ok(())
}
