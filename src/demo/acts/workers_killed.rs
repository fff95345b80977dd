//! Five workers are killed in the middle of their work, and whoever reclaims expired leases is down as well.
//!
//! By hand: once the leases have expired, requeue the tasks or call `reclaim()`.

use tokio::time::sleep;

use super::Stage;
use crate::connect::Fault;
use crate::demo::agents::LEASE_S;
use crate::demo::link::seconds;

/// The places that die: nearly all of those that parse.
const DEAD: [usize; 5] = [0, 1, 2, 3, 4];

pub async fn play(stage: &Stage) -> Result<(), Fault> {
    stage.world().order(|orders| orders.reclaimer_off = true);
    stage.bring("parse_contract", "initech", 18).await?;
    // Until they are at it.
    sleep(seconds(1.8)).await;
    stage.world().order(|orders| orders.dead = DEAD.into());
    let expired = format!(
        "SELECT count(*)::int8 AS n FROM {}.tasks WHERE status = 'processing' AND lease_expires_at < clock_timestamp()",
        stage.s
    );
    let clock = stage.clock(LEASE_S + 22.0);
    let mut seen = false;
    while clock.tick().await {
        let n = stage.count(&expired).await?;
        if seen && n == 0 {
            break;
        }
        seen |= n > 0;
    }
    Ok(())
}
