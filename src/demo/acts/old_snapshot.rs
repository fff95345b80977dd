//! A report reads page by page in one REPEATABLE READ transaction. Its snapshot stops vacuum while a scheduler lowers
//! the priority of a waiting batch again and again: each claim reads past all the dead index entries.
//!
//! By hand: end the session of `report-3`.

use tokio::time::{Instant, sleep};
use tokio_postgres::types::{ToSql, Type};

use super::Stage;
use crate::connect::Fault;
use crate::demo::link::{Line, seconds};

pub async fn play(stage: &Stage) -> Result<(), Fault> {
    let report = stage.open(&stage.logins.batch, "report-3").await?;
    let s = &stage.s;
    report
        .run(&format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; \
             DECLARE page CURSOR FOR SELECT id, payload FROM {s}.tasks ORDER BY id; FETCH 5 FROM page"
        ))
        .await?;
    // By itself it harms nobody: a monitor that has just started can still learn what claims usually read.
    let quiet = Instant::now() + seconds(11.0);
    while !report.ended() && Instant::now() < quiet {
        sleep(seconds(0.8)).await;
        if report.run("FETCH 5 FROM page").await.is_err() {
            return Ok(());
        }
    }
    // A queue without a limit: that these wait is not what is wrong.
    let batch = stage.bring("summarise_thread", "soylent", 240).await?;
    let scheduler = Line::new(&stage.logins.batch, "batch-fairness");
    let lower = format!(
        "UPDATE {s}.tasks SET priority = priority - 1 WHERE batch_id = $1 AND status = 'enqueued' AND NOT deferred"
    );
    let clock = stage.clock(30.0);
    while !report.ended() && clock.tick().await {
        let params = [(&batch as &(dyn ToSql + Sync), Type::TEXT)];
        let (page, lowered) = tokio::join!(
            report.run("FETCH 5 FROM page"),
            scheduler.rows(&lower, &params),
        );
        lowered?;
        if page.is_err() {
            break;
        }
        sleep(seconds(0.3)).await;
    }
    Ok(())
}
