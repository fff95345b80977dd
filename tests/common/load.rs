//! Queues of any size, made by the server itself.

/// The schema of the reference queue, without its roles (those belong to the whole cluster).
pub fn agent_queue() -> String {
    let files = jobtop::migrate::FILES
        .iter()
        .filter(|f| !f.name.contains("roles"));
    let sql: Vec<&str> = files.map(|f| f.sql).collect();
    format!(
        "CREATE SCHEMA agent_queue; SET search_path = agent_queue, pg_temp;\n{}\nRESET search_path;",
        sql.join("\n")
    )
}

/// For the reference queue: finished tasks, four a second up to 400 s from now (so that time goes on without anybody
/// at work, whose own buffers would be counted too), every third with two tries, each try with a bill;
/// and 5,000 live ones in five queues: 1,000 running, 3,500 ready, 500 to be retried in an hour.
pub fn agent_queue_tasks(finished: u32) -> String {
    format!(
        "SET search_path = agent_queue, pg_temp; SET synchronous_commit = off;
         INSERT INTO tasks (queue, kind, agent, tenant, application, payload, status, created_at, run_after, claimed_at, started_at, finished_at, attempt, result)
         SELECT 'q' || i % 5, 'k' || i % 12, 'agent-' || i % 40, 'tenant-' || i % 500, 'app', jsonb_build_object('n', i, 'text', repeat('x', 100)),
                CASE WHEN i % 30 = 0 THEN 'failed' WHEN i % 77 = 0 THEN 'cancelled' ELSE 'completed' END,
                f - interval '90 s', f - interval '60 s', f - interval '20 s', f - interval '19 s', f, 1 + (i % 3 = 0)::int, '{{}}'
           FROM (SELECT i, now() + interval '400 s' - ({finished} - i) * interval '0.25 s' AS f FROM generate_series(1, {finished}) i) x;
         INSERT INTO task_attempts (task_id, attempt, lease_token, worker, eligible_at, claimed_at, started_at, finished_at, outcome, error)
         SELECT t.id, a, a, 'w' || t.id % 40, t.run_after, t.claimed_at, t.started_at, t.finished_at,
                CASE WHEN a < t.attempt THEN 'failed' WHEN t.status = 'completed' THEN 'completed' ELSE t.status END, CASE WHEN a < t.attempt THEN 'timeout' END
           FROM tasks t, generate_series(1, t.attempt) a ORDER BY t.id;
         INSERT INTO usage (call_id, task_id, attempt, queue, model, input_tokens, output_tokens, llm_cost, compute_cost, reported_at)
         SELECT 'c' || a.id, a.task_id, a.attempt, 'q', 'm', 1000, 100, 0.01, 0.001, a.finished_at FROM task_attempts a ORDER BY a.id;
         INSERT INTO tasks (queue, kind, agent, tenant, payload, status, priority, created_at, run_after, deferred, attempt, claimed_at, started_at, heartbeat_at, locked_by, lease_expires_at, lease_token)
         SELECT 'q' || i % 5, 'k' || i % 12, 'agent-' || i % 40, 'tenant-' || i % 500, jsonb_build_object('n', i, 'text', repeat('x', 100)),
                CASE WHEN i % 5 = 4 THEN 'processing' ELSE 'enqueued' END, i % 4, now() - interval '10 s' - i * interval '20 ms', now() + CASE WHEN i % 10 = 0 THEN interval '1 h' ELSE - interval '10 s' - i * interval '20 ms' END,
                i % 10 = 0, (i % 5 = 4 OR i % 20 = 0)::int, CASE WHEN i % 5 = 4 THEN now() - interval '9 s' END, CASE WHEN i % 5 = 4 THEN now() - interval '9 s' END,
                CASE WHEN i % 5 = 4 THEN now() END, CASE WHEN i % 5 = 4 THEN 'w' || i % 40 END, CASE WHEN i % 5 = 4 THEN now() + i * interval '1 s' END, (i % 5 = 4)::int
           FROM generate_series(1, 5000) i;
         INSERT INTO task_attempts (task_id, attempt, lease_token, worker, eligible_at, claimed_at, started_at)
         SELECT t.id, t.attempt, t.lease_token, t.locked_by, t.run_after, t.claimed_at, t.started_at FROM tasks t WHERE status = 'processing';
         RESET search_path"
    )
}

/// The two other queues of the demo's houses, with a few hundred tasks each.
pub const HOUSES: &str = "
CREATE TABLE public.agent_jobs (id bigserial PRIMARY KEY, payload jsonb, status text NOT NULL, priority int NOT NULL DEFAULT 0,
  run_after timestamptz NOT NULL DEFAULT now(), leased_until timestamptz, started_at timestamptz, finished_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(), attempt int NOT NULL DEFAULT 0, tenant text, failure_reason text);
CREATE INDEX agent_jobs_claim ON public.agent_jobs (priority DESC, created_at) WHERE status IN ('queued', 'running');
CREATE INDEX agent_jobs_created ON public.agent_jobs (created_at);
CREATE INDEX agent_jobs_finished ON public.agent_jobs (finished_at) WHERE finished_at IS NOT NULL;
INSERT INTO public.agent_jobs (payload, status, priority, leased_until, started_at, finished_at, created_at, attempt, tenant)
SELECT '{}', CASE WHEN i <= 20 THEN 'running' WHEN i <= 120 THEN 'queued' ELSE 'succeeded' END, i % 3, CASE WHEN i <= 20 THEN now() + interval '1 h' END,
       CASE WHEN i <= 20 THEN now() WHEN i > 120 THEN now() + interval '400 s' - i * interval '2 s' END, CASE WHEN i > 120 THEN now() + interval '401 s' - i * interval '2 s' END,
       CASE WHEN i > 120 THEN now() + interval '390 s' - i * interval '2 s' ELSE now() - i * interval '1 s' END, (i <= 20 OR i > 120)::int, 't' || i % 5 FROM generate_series(1, 1000) i;
CREATE TABLE public.workflow_jobs (id serial PRIMARY KEY, job_type text NOT NULL, payload jsonb, status text NOT NULL DEFAULT 'pending', claimed_at timestamp,
  run_after timestamp NOT NULL DEFAULT now(), last_error text, attempt_count int NOT NULL DEFAULT 0, max_attempts int NOT NULL DEFAULT 5, created_at timestamp NOT NULL DEFAULT now());
CREATE INDEX workflow_jobs_claim ON public.workflow_jobs (run_after) WHERE status = 'pending';
CREATE INDEX workflow_jobs_live ON public.workflow_jobs (status) WHERE status IN ('pending', 'running', 'failed');
CREATE INDEX workflow_jobs_created ON public.workflow_jobs (created_at);
INSERT INTO public.workflow_jobs (job_type, payload, status, claimed_at, created_at, attempt_count)
SELECT 'type-' || i % 4, '{}', CASE WHEN i <= 10 THEN 'running' WHEN i <= 60 THEN 'pending' ELSE 'succeeded' END, CASE WHEN i <= 10 OR i > 60 THEN now() - i * interval '0.5 s' END,
       now() - i * interval '3 s', (i <= 10 OR i > 60)::int FROM generate_series(1, 1000) i;";
