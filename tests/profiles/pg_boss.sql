CREATE SCHEMA pgboss;
CREATE TYPE pgboss.job_state AS ENUM ('created', 'retry', 'active', 'completed', 'cancelled', 'failed');
CREATE TABLE pgboss.queue (name text PRIMARY KEY);
CREATE TABLE pgboss.job (id uuid NOT NULL, name text NOT NULL, priority int NOT NULL DEFAULT 0, data jsonb, state pgboss.job_state NOT NULL DEFAULT 'created',
    retry_limit int NOT NULL DEFAULT 2, retry_count int NOT NULL DEFAULT 0, start_after timestamptz NOT NULL DEFAULT now(), expire_seconds int NOT NULL DEFAULT 900,
    created_on timestamptz NOT NULL DEFAULT now(), started_on timestamptz, completed_on timestamptz, keep_until timestamptz, output jsonb) PARTITION BY LIST (name);
CREATE TABLE pgboss.job_common PARTITION OF pgboss.job DEFAULT;
ALTER TABLE pgboss.job ADD PRIMARY KEY (name, id);
INSERT INTO pgboss.queue SELECT 'q' || to_char(i, 'FM000') FROM generate_series(1, 70) i;
-- the same id in two queues
INSERT INTO pgboss.job (id, name, state, started_on, completed_on, output) VALUES
    ('00000000-0000-0000-0000-000000000001', 'q001', 'failed', now() - interval '2 min', now() - interval '1 min', '{"message": "boom"}'),
    ('00000000-0000-0000-0000-000000000001', 'q002', 'failed', now() - interval '2 min', now() - interval '1 min', '{"message": "boom"}'),
    ('00000000-0000-0000-0000-000000000002', 'q001', 'active', now() - interval '20 min', NULL, NULL);
INSERT INTO pgboss.job (id, name) SELECT gen_random_uuid(), q.name FROM pgboss.queue q, generate_series(1, 2);
