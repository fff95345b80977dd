//! `workflow_jobs`: times without a zone, no lease, no finished time. Workers claim only `pending`: a job that failed
//! with tries left stays `failed` until somebody asks for it again.

use std::sync::Arc;

use tokio::time::sleep;
use tokio_postgres::types::Type;

use crate::connect::{Cells, Fault, Param, Target};
use crate::demo::dice::Dice;
use crate::demo::link::{Line, Link, seconds};
use crate::demo::world::World;

const TABLE: &str = "
CREATE TABLE public.workflow_jobs (
    id            serial PRIMARY KEY,
    job_type      text NOT NULL,
    payload       jsonb,
    status        text NOT NULL DEFAULT 'pending',
    claimed_at    timestamp,
    run_after     timestamp DEFAULT now(),
    last_error    text,
    attempt_count integer DEFAULT 0,
    max_attempts  integer DEFAULT 5,
    created_at    timestamp DEFAULT now()
);
CREATE INDEX workflow_jobs_claim ON public.workflow_jobs (run_after) WHERE status = 'pending';
CREATE INDEX workflow_jobs_live ON public.workflow_jobs (status) WHERE status IN ('pending', 'running', 'failed');
CREATE INDEX workflow_jobs_created ON public.workflow_jobs (created_at)";

/// Two hours of history: one job every 40 s; the failed ones have no tries left.
const HISTORY: &str = "
INSERT INTO public.workflow_jobs (job_type, payload, status, claimed_at, run_after, last_error, attempt_count, created_at)
SELECT (ARRAY['onboard_customer', 'sync_crm', 'render_report'])[1 + h % 3], jsonb_build_object('customer', 100 + h % 800),
       CASE WHEN h % 41 = 0 THEN 'failed' ELSE 'succeeded' END, at + wait, at,
       CASE WHEN h % 41 = 0 THEN 'StepFailed: crm answered 500' END, CASE WHEN h % 41 = 0 THEN 5 ELSE 1 END, at
  FROM (SELECT n, abs(hashint8extended(n, $1 + 1) % 1000000)::int AS h FROM generate_series(1, 178) AS n) AS r,
       LATERAL (SELECT (now() - n * interval '40 s' - h % 9000 * interval '1 ms')::timestamp AS at,
                       (0.2 + h % 900 / 1000.0) * interval '1 s' AS wait) AS t
 ORDER BY n DESC";

const CLAIM: &str = "
UPDATE public.workflow_jobs j
   SET status = 'running', claimed_at = now(), attempt_count = attempt_count + 1
 WHERE id = (SELECT id FROM public.workflow_jobs
              WHERE status = 'pending' AND run_after <= now() ORDER BY run_after LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id::int8";

const DONE: &str = "UPDATE public.workflow_jobs SET status = 'succeeded' WHERE id = $1::int4 AND status = 'running'";

/// Due again in half an hour, should somebody ask for it then.
const FAILED: &str = "
UPDATE public.workflow_jobs SET status = 'failed', last_error = $2, run_after = now() + interval '30 min' * attempt_count
 WHERE id = $1::int4 AND status = 'running'";

const ENQUEUE: &str = "INSERT INTO public.workflow_jobs (job_type, payload) VALUES ($1, jsonb_build_object('customer', $2))";

/// The table with its history.
pub async fn create(db: &Link, seed: u64) -> Result<(), Fault> {
    let there = db
        .rows(
            "SELECT to_regclass('public.workflow_jobs')::text AS there",
            &[],
        )
        .await?;
    if there.first().is_some_and(|r| r.text("there") != Ok(None)) {
        return Ok(());
    }
    db.run(TABLE).await?;
    db.rows(HISTORY, &[(&(seed as i64), Type::INT8)]).await?;
    db.run("ANALYZE public.workflow_jobs").await
}

/// Somebody starts a workflow now and then.
pub async fn enqueue(world: Arc<World>, target: Target) {
    let line = Line::new(&target, "api-workflows");
    let mut dice = Dice::branch(world.seed, "api-workflows");
    loop {
        sleep(seconds(dice.between(4.0, 12.0))).await;
        let job = *dice.pick(&["onboard_customer", "sync_crm", "render_report"]);
        let customer = dice.whole(100, 900);
        let params: [Param<'_>; 2] = [(&job, Type::TEXT), (&customer, Type::INT8)];
        if let Err(fault) = line.rows(ENQUEUE, &params).await {
            world.fault("api-workflows", &fault);
        }
    }
}

/// One worker.
pub async fn work(world: Arc<World>, target: Target, number: usize) {
    let name = format!("flow-{number}");
    let line = Line::new(&target, name.clone());
    let mut dice = Dice::branch(world.seed, &name);
    loop {
        match job(&world, &line, &mut dice).await {
            Ok(true) => {}
            Ok(false) => sleep(seconds(dice.between(1.2, 2.4))).await,
            Err(fault) => {
                world.fault(&name, &fault);
                sleep(seconds(1.0)).await;
            }
        }
    }
}

async fn job(world: &World, line: &Line, dice: &mut Dice) -> Result<bool, Fault> {
    let rows = line.rows(CLAIM, &[]).await?;
    let Some(row) = rows.first() else {
        return Ok(false);
    };
    let id = row.int("id")?.unwrap_or(0);
    world.did("workflow_jobs claimed", 1);
    sleep(seconds(dice.about(3.4, 0.5).min(30.0))).await;
    if dice.chance(0.03) {
        let error = "StepFailed: crm answered 500";
        line.rows(FAILED, &[(&id, Type::INT8), (&error, Type::TEXT)])
            .await?;
    } else {
        line.rows(DONE, &[(&id, Type::INT8)]).await?;
        world.did("workflow_jobs done", 1);
    }
    Ok(true)
}
