-- Three queues as teams write them, with what is found in the wild: NULLs, an unknown state, skewed clocks, a huge payload.
CREATE TABLE agent_jobs (
    id bigserial PRIMARY KEY, tenant text, payload jsonb NOT NULL, status text NOT NULL DEFAULT 'queued', priority int NOT NULL DEFAULT 0,
    run_after timestamptz NOT NULL DEFAULT now(), leased_until timestamptz, started_at timestamptz, finished_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(), attempt int NOT NULL DEFAULT 0, max_attempts int NOT NULL DEFAULT 5, failure_reason text);
CREATE INDEX agent_jobs_claim ON agent_jobs (priority DESC, created_at) WHERE status = 'queued';
INSERT INTO agent_jobs (tenant, payload, status, run_after, leased_until, started_at, finished_at, created_at, attempt, failure_reason) VALUES
    ('a', '{"n": 1}', 'queued', now() - interval '5 min', NULL, NULL, NULL, now() - interval '5 min', 0, NULL),
    ('a', '{"n": 2}', 'queued', now() + interval '1 h', NULL, NULL, NULL, now(), 0, NULL),
    ('a', '{"n": 3}', 'queued', now() + interval '1 min', NULL, NULL, NULL, now(), 2, 'timeout'),
    ('b', '{"n": 4}', 'running', now() - interval '9 min', now() + interval '2 min', now() - interval '1 min', NULL, now() - interval '9 min', 1, NULL),
    ('b', '{"n": 5}', 'running', now() - interval '90 min', now() - interval '60 min', now() - interval '80 min', NULL, now() - interval '90 min', 2, NULL),
    ('b', '{"n": 6}', 'running', now() - interval '9 min', NULL, now() - interval '8 min', NULL, now() - interval '9 min', 1, NULL),
    ('a', '{"n": 7}', 'succeeded', now() - interval '4 min', NULL, now() - interval '3 min', now() - interval '2 min', now() - interval '4 min', 1, NULL),
    ('a', '{"n": 8}', 'failed', now() - interval '4 min', NULL, now() - interval '3 min', now() - interval '170 s', now() - interval '4 min', 5, 'max attempts'),
    ('a', '{"n": 9}', 'dead_letter', now() - interval '4 min', NULL, now() - interval '3 min', now() - interval '150 s', now() - interval '4 min', 6, 'password=hunter2'),
    (NULL, '{"n": 10}', 'succeeded', now() + interval '1 h', NULL, now() - interval '2 min', now() - interval '1 min', now() + interval '3 s', 1, NULL),
    (NULL, '{"n": 11}', 'queued', '-infinity', NULL, NULL, NULL, '-infinity', 0, NULL),
    ('c', jsonb_build_object('api_key', 'sk-1', 'blob', repeat('x', 3000000)), 'queued', now(), NULL, NULL, NULL, now(), 0, NULL);

-- Its sessions write local times of the zone that the test sets.
CREATE TABLE workflow_jobs (
    id serial PRIMARY KEY, job_type text NOT NULL, payload jsonb, status text NOT NULL DEFAULT 'pending', claimed_at timestamp,
    run_after timestamp DEFAULT now(), last_error text, attempt_count int DEFAULT 0, max_attempts int DEFAULT 5, created_at timestamp DEFAULT now());
INSERT INTO workflow_jobs (job_type, payload, status, claimed_at, run_after, last_error, attempt_count, created_at) VALUES
    ('plan', '{}', 'pending', NULL, localtimestamp - interval '10 s', NULL, 0, localtimestamp - interval '10 s'),
    ('plan', '{}', 'pending', NULL, localtimestamp + interval '1 h', NULL, 0, localtimestamp),
    ('llm', '{}', 'running', localtimestamp - interval '1 min', localtimestamp - interval '80 s', NULL, 1, localtimestamp - interval '90 s'),
    ('llm', '{}', 'running', localtimestamp - interval '2 days', localtimestamp - interval '2 days', NULL, 1, localtimestamp - interval '2 days'),
    ('llm', '{}', 'failed', localtimestamp - interval '5 s', localtimestamp + interval '10 s', '429', 1, localtimestamp - interval '1 min'),
    ('llm', '{}', 'failed', localtimestamp - interval '1 h', localtimestamp - interval '50 min', '503', 2, localtimestamp - interval '2 h'),
    ('llm', '{}', 'failed', localtimestamp - interval '1 h', localtimestamp - interval '1 h', '500', 5, localtimestamp - interval '2 h'),
    ('tool', '{}', 'succeeded', localtimestamp - interval '10 min', localtimestamp - interval '11 min', NULL, 1, localtimestamp - interval '11 min'),
    ('tool', '{}', 'weird', NULL, NULL, NULL, NULL, NULL),
    ('tool', '{}', 'running', NULL, NULL, NULL, NULL, NULL);

CREATE TABLE tasks (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), kind text, status text NOT NULL DEFAULT 'enqueued', priority int NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(), started_at timestamptz, completed_at timestamptz, locked_by text,
    lease_expires_at timestamptz, result jsonb, confidence numeric);
CREATE TABLE task_attempts (
    id bigserial PRIMARY KEY, task_id uuid NOT NULL REFERENCES tasks, attempt int NOT NULL, job_run_id text, trace_id text,
    started_at timestamptz, finished_at timestamptz, error text, input_tokens bigint, output_tokens bigint,
    llm_cost_usd numeric(12, 6), compute_cost_usd numeric(12, 6));
CREATE INDEX ON task_attempts (task_id);
INSERT INTO tasks (kind, status, locked_by, lease_expires_at, created_at, started_at, completed_at, confidence, result) VALUES
    ('r', 'enqueued', NULL, NULL, now(), NULL, NULL, NULL, NULL),
    ('r', 'processing', 'w1', now() + interval '1 min', now() - interval '1 min', now() - interval '10 s', NULL, NULL, NULL),
    ('r', 'processing', 'w0', now() - interval '1 h', now() - interval '3 h', now() - interval '2 h', NULL, NULL, NULL),
    ('r', 'completed', NULL, NULL, now() - interval '6 min', now() - interval '5 min', now() - interval '4 min', 0.91, '{"ok": true}'),
    ('r', 'failed', NULL, NULL, now() - interval '6 min', now() - interval '5 min', now() - interval '3 min', NULL, NULL),
    ('r', 'cancelled', NULL, NULL, now(), NULL, NULL, NULL, NULL);
INSERT INTO task_attempts (task_id, attempt, job_run_id, trace_id, started_at, finished_at, error, input_tokens, output_tokens, llm_cost_usd, compute_cost_usd)
SELECT t.id, g, 'run-' || g, md5(t.id::text || g), t.started_at + (g - 1) * interval '10 s',
       CASE WHEN t.status IN ('completed', 'failed') THEN t.started_at + (g - 1) * interval '10 s' + interval '5 s' END,
       CASE WHEN t.status = 'failed' OR t.status = 'completed' AND g = 1 THEN 'timeout after ' || g || ' s' END,
       1000 * g, 200 * g, 0.0123 * g, 0.0004
  FROM tasks t, generate_series(1, CASE t.status WHEN 'failed' THEN 3 WHEN 'completed' THEN 2 ELSE 1 END) g WHERE t.started_at IS NOT NULL;
