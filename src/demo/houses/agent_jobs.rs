//! `agent_jobs`: a lease in the row, no worker column. Claimed by priority, then age; a job whose lease has run out
//! may be claimed again; a failed try goes back to `queued` until there have been enough.

use std::sync::Arc;

use tokio::time::sleep;
use tokio_postgres::types::Type;

use crate::connect::{Cells, Fault, Target};
use crate::demo::dice::Dice;
use crate::demo::link::{Line, Link, seconds};
use crate::demo::world::World;

const TABLE: &str = "
CREATE TABLE public.agent_jobs (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant         text,
    payload        jsonb NOT NULL,
    status         text NOT NULL DEFAULT 'queued',
    priority       integer NOT NULL DEFAULT 0,
    run_after      timestamptz NOT NULL DEFAULT now(),
    leased_until   timestamptz,
    started_at     timestamptz,
    finished_at    timestamptz,
    created_at     timestamptz NOT NULL DEFAULT now(),
    attempt        integer NOT NULL DEFAULT 0,
    max_attempts   integer NOT NULL DEFAULT 5,
    failure_reason text
);
CREATE INDEX agent_jobs_claim ON public.agent_jobs (priority DESC, created_at) WHERE status IN ('queued', 'running');
CREATE INDEX agent_jobs_created ON public.agent_jobs (created_at);
CREATE INDEX agent_jobs_finished ON public.agent_jobs (finished_at) WHERE finished_at IS NOT NULL";

/// Two hours of history: one job every 20 s, of which few fail.
const HISTORY: &str = "
INSERT INTO public.agent_jobs (tenant, payload, status, priority, run_after, started_at, finished_at, created_at, attempt,
                               failure_reason)
SELECT (ARRAY['acme', 'globex', 'initech', 'soylent'])[1 + h % 4],
       jsonb_build_object('prompt', 'classify ticket ' || n, 'ticket', n),
       CASE WHEN h % 53 = 0 THEN 'failed' ELSE 'succeeded' END, (h / 7) % 3 * 5, at, at + wait, at + wait + run, at,
       CASE WHEN h % 53 = 0 THEN 5 ELSE 1 + (h % 17 = 0)::int END,
       CASE WHEN h % 53 = 0 THEN 'max attempts: ToolError: calendar refused' END
  FROM (SELECT n, abs(hashint8extended(n, $1) % 1000000)::int AS h FROM generate_series(1, 355) AS n) AS r,
       LATERAL (SELECT clock_timestamp() - n * interval '20 s' - h % 9000 * interval '1 ms' AS at,
                       (0.2 + h % 700 / 1000.0) * interval '1 s' AS wait,
                       (1.5 + h % 4100 / 1000.0) * interval '1 s' AS run) AS t
 ORDER BY n DESC";

const CLAIM: &str = "
UPDATE public.agent_jobs j
   SET status = 'running', started_at = now(), leased_until = now() + interval '30 s', attempt = attempt + 1
 WHERE id = (SELECT id FROM public.agent_jobs
              WHERE status = 'queued' AND run_after <= now() OR status = 'running' AND leased_until < now()
              ORDER BY priority DESC, created_at LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id::int8, attempt::int8";

const DONE: &str = "
UPDATE public.agent_jobs SET status = 'succeeded', finished_at = now(), leased_until = NULL, failure_reason = NULL
 WHERE id = $1 AND status = 'running' AND attempt = $2::int4";

const FAILED: &str = "
UPDATE public.agent_jobs
   SET status = CASE WHEN attempt >= max_attempts THEN 'failed' ELSE 'queued' END,
       finished_at = CASE WHEN attempt >= max_attempts THEN now() END,
       run_after = now() + interval '4 s' * attempt, leased_until = NULL, failure_reason = $3
 WHERE id = $1 AND status = 'running' AND attempt = $2::int4";

const ENQUEUE: &str = "
INSERT INTO public.agent_jobs (tenant, payload, priority)
VALUES ($1, jsonb_build_object('prompt', 'classify ticket ' || $2, 'ticket', $2), $3::int4)";

/// The table with its history.
pub async fn create(db: &Link, seed: u64) -> Result<(), Fault> {
    let there = db
        .rows(
            "SELECT to_regclass('public.agent_jobs')::text AS there",
            &[],
        )
        .await?;
    if there.first().is_some_and(|r| r.text("there") != Ok(None)) {
        return Ok(());
    }
    db.run(TABLE).await?;
    db.rows(HISTORY, &[(&(seed as i64), Type::INT8)]).await?;
    db.run("ANALYZE public.agent_jobs").await
}

/// Somebody asks for a job every few seconds.
pub async fn enqueue(world: Arc<World>, target: Target) {
    let line = Line::new(&target, "api-tickets");
    let mut dice = Dice::branch(world.seed, "api-tickets");
    loop {
        sleep(seconds(dice.between(2.0, 6.0))).await;
        let tenant = *dice.pick(&["acme", "globex", "initech", "soylent"]);
        let (ticket, priority) = (dice.whole(1000, 99_999), dice.whole(0, 2) * 5);
        let params: [crate::connect::Param<'_>; 3] = [
            (&tenant, Type::TEXT),
            (&ticket, Type::INT8),
            (&priority, Type::INT8),
        ];
        if let Err(fault) = line.rows(ENQUEUE, &params).await {
            world.fault("api-tickets", &fault);
        }
    }
}

/// One worker.
pub async fn work(world: Arc<World>, target: Target, number: usize) {
    let name = format!("jobs-{number}");
    let line = Line::new(&target, name.clone());
    let mut dice = Dice::branch(world.seed, &name);
    loop {
        match job(&world, &line, &mut dice).await {
            Ok(true) => {}
            Ok(false) => sleep(seconds(dice.between(0.9, 1.8))).await,
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
    let (id, attempt) = (
        row.int("id")?.unwrap_or(0),
        row.int("attempt")?.unwrap_or(0),
    );
    world.did("agent_jobs claimed", 1);
    sleep(seconds(dice.about(2.6, 0.5).min(20.0))).await;
    let (id, attempt): (crate::connect::Param<'_>, crate::connect::Param<'_>) =
        ((&id, Type::INT8), (&attempt, Type::INT8));
    if dice.chance(0.04) {
        let reason = "ToolError: calendar refused";
        line.rows(FAILED, &[id, attempt, (&reason, Type::TEXT)])
            .await?;
    } else {
        line.rows(DONE, &[id, attempt]).await?;
        world.did("agent_jobs done", 1);
    }
    Ok(true)
}
