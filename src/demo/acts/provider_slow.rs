//! The model provider is slow. Postgres has nothing to do with it and nothing to do.
//!
//! By hand: nothing to be done here, it is outside.

use super::Stage;
use crate::connect::Fault;

pub async fn play(stage: &Stage) -> Result<(), Fault> {
    stage.world().order(|orders| orders.slowdown = 15.0);
    stage.bring("parse_contract", "acme", 12).await?;
    let clock = stage.clock(34.0);
    while clock.tick().await {}
    Ok(())
}
