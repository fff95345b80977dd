//! A report has read the task table in a transaction that it leaves open. A migration wants the table for itself and
//! waits; from then on everybody else waits behind the migration.
//!
//! By hand: end the session of `report-2`, or the migration.

use tokio::time::sleep;

use super::Stage;
use crate::connect::Fault;
use crate::demo::link::seconds;

pub async fn play(stage: &Stage) -> Result<(), Fault> {
    let report = stage.open(&stage.logins.batch, "report-2").await?;
    report
        .run(&format!(
            "BEGIN; SELECT count(*) FROM {}.tasks WHERE created_at > now() - interval '10 min'",
            stage.s
        ))
        .await?;
    sleep(seconds(0.5)).await;
    let migrate = stage.open(&stage.logins.owner, "migrate").await?;
    // Takes the strongest lock and changes nothing.
    let sql = format!(
        "ALTER TABLE {}.tasks ALTER COLUMN payload SET DEFAULT '{{}}'",
        stage.s
    );
    let migration = tokio::spawn(async move { migrate.run(&sql).await });
    let clock = stage.clock(17.0);
    while !report.ended() && !migration.is_finished() && clock.tick().await {}
    drop(report);
    // Ended by hand is no fault.
    let _ = migration.await;
    Ok(())
}
