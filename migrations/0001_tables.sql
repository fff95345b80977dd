-- The reference queue, part 1: tables and indexes. For Postgres 13 and later.
--
-- `jobtop migrate` applies these files. By hand, the same with psql (any schema name will do; the roles take their names from it):
--
--     psql -1 -v ON_ERROR_STOP=1 -c 'CREATE SCHEMA agent_queue' -c 'SET search_path = agent_queue, pg_temp' \
--          -f 0001_tables.sql -f 0002_functions.sql -f 0003_claim.sql -f 0004_operate.sql -f 0005_roles.sql
--
-- Nothing below names the schema. The functions keep the search_path they were made with (SET search_path FROM CURRENT), therefore it
-- must be exactly one schema followed by pg_temp: with pg_temp last nobody can put a temporary table in front of ours.

DO $$
BEGIN
    IF current_schema() IS NULL OR current_schema() LIKE 'pg\_%'
       OR current_setting('search_path') !~* '^\s*("([^"]|"")+"|[a-z_][a-z0-9_$]*)\s*,\s*pg_temp\s*$' THEN
        RAISE EXCEPTION 'search_path is %: first CREATE SCHEMA agent_queue; SET search_path = agent_queue, pg_temp;',
            current_setting('search_path');
    END IF;
END $$;

-- One row per unit of work. Everything about *the current or last try* is here, so that a worker touches one row; the history of all
-- tries is in task_attempts.
CREATE TABLE tasks (
    id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue               text NOT NULL CHECK (queue <> ''),
    kind                text NOT NULL CHECK (kind <> ''),
    agent               text,
    tenant              text,
    application         text,
    batch_id            text,
    payload             jsonb NOT NULL DEFAULT '{}',
    status              text NOT NULL DEFAULT 'enqueued'
                        CHECK (status IN ('enqueued', 'processing', 'completed', 'failed', 'cancelled', 'parked')),
    priority            integer NOT NULL DEFAULT 0,                 -- higher first
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    run_after           timestamptz NOT NULL DEFAULT clock_timestamp(), -- not before; a retry's back-off is written here
    deferred            boolean NOT NULL DEFAULT false,             -- enqueued but not yet due: kept out of the claim index
    claimed_at          timestamptz,
    started_at          timestamptz,
    finished_at         timestamptz,                                -- completed, failed or cancelled; never set while it may still run
    heartbeat_at        timestamptz,
    locked_by           text,                                       -- the worker that holds the lease
    worker_version      text,
    lease_expires_at    timestamptz,
    lease_token         bigint NOT NULL DEFAULT 0,                  -- rises whenever ownership changes; see 0002_functions.sql
    attempt             integer NOT NULL DEFAULT 0,                 -- tries so far
    max_attempts        integer NOT NULL DEFAULT 5 CHECK (max_attempts >= 1),
    last_error          text,
    result              jsonb,
    confidence          numeric,
    idempotency_key     text,
    cancel_requested_at timestamptz,
    cancel_requested_by text,
    cancel_reason       text,
    CONSTRAINT tasks_processing_has_an_owner
        CHECK (status <> 'processing' OR (locked_by IS NOT NULL AND lease_expires_at IS NOT NULL AND claimed_at IS NOT NULL)),
    CONSTRAINT tasks_finished_has_a_time
        CHECK ((status IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL))
) WITH (
    -- Each task is updated several times within seconds. Room on the page keeps `started` a heap-only update, and vacuum must come
    -- after one per cent of dead rows, unthrottled: the cost of a claim depends on dead index entries, not on the size of the table.
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.02
);

-- What a claim reads, in the order in which it takes: due tasks only. 100,000 retries that wait for their time cost it nothing, since
-- they are `deferred`; claim itself moves those that came due over here, a bounded batch at a time.
CREATE INDEX tasks_claim ON tasks (queue, priority DESC, created_at, id) WHERE status = 'enqueued' AND NOT deferred;
-- The same for workers that take some kinds only: they must not read past a backlog of the others.
-- With run_after, a monitor reads depth and age of every kind from it alone.
CREATE INDEX tasks_claim_kind ON tasks (queue, kind, priority DESC, created_at, id) INCLUDE (run_after)
    WHERE status = 'enqueued' AND NOT deferred;
CREATE INDEX tasks_deferred ON tasks (queue, run_after) INCLUDE (attempt, id) WHERE status = 'enqueued' AND deferred;
-- Everything alive, in one small index: what a monitor counts at each refresh, whatever the number of finished tasks. Few distinct keys,
-- which a btree stores once each: 100,000 rows are about 100 pages. (A time in it, or INCLUDE, would make that ten times as many.)
-- Not due are those deferred whose run_after is still to come; tasks_deferred finds the few that came due and that no claim has moved yet.
CREATE INDEX tasks_live ON tasks (status, queue, agent, deferred, attempt) WHERE status IN ('enqueued', 'processing', 'parked');
CREATE INDEX tasks_lease ON tasks (lease_expires_at) WHERE status = 'processing';
-- Cancels that were asked for and that no worker has acknowledged.
CREATE INDEX tasks_cancel ON tasks (cancel_requested_at) WHERE status = 'processing' AND cancel_requested_at IS NOT NULL;
-- Plain btrees on time: BRIN reads half the table once updates have filled old pages.
CREATE INDEX tasks_created ON tasks (created_at);
CREATE INDEX tasks_finished ON tasks (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX tasks_failed ON tasks (finished_at) WHERE status = 'failed';
CREATE INDEX tasks_batch ON tasks (batch_id) WHERE batch_id IS NOT NULL;
-- A key belongs to its queue, and for as long as the task's row exists.
CREATE UNIQUE INDEX tasks_idempotency ON tasks (queue, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- One row per try. Retries and their cost are visible only here: a task that is tried again has no finished_at.
CREATE TABLE task_attempts (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id        bigint NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    attempt        integer NOT NULL,
    lease_token    bigint NOT NULL,
    worker         text NOT NULL,
    worker_version text,
    eligible_at    timestamptz NOT NULL,                            -- since when this try could have been claimed
    claimed_at     timestamptz NOT NULL,
    started_at     timestamptz,
    finished_at    timestamptz,
    outcome        text CHECK (outcome IN ('completed', 'failed', 'cancelled', 'lease expired')),
    error          text,
    job_run_id     text,
    trace_id       text,
    UNIQUE (task_id, attempt),                                      -- also the index for "all tries of a task"
    CONSTRAINT task_attempts_ends_with_an_outcome CHECK ((finished_at IS NULL) = (outcome IS NULL))
) WITH (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX task_attempts_finished ON task_attempts (finished_at) WHERE finished_at IS NOT NULL;

-- What was spent: one row per model call. No foreign key and no token check: a bill that comes late, twice, from a lost worker or for a
-- task that is gone is money all the same.
CREATE TABLE usage (
    call_id       text PRIMARY KEY,
    task_id       bigint NOT NULL,
    attempt       integer NOT NULL,
    queue         text,                                             -- of the task when it was reported; NULL: no such task
    model         text,
    input_tokens  bigint CHECK (input_tokens >= 0),                 -- NULL: not known
    output_tokens bigint CHECK (output_tokens >= 0),
    llm_cost      numeric CHECK (llm_cost >= 0 AND llm_cost < 1e12), -- USD; NULL: no price known, which is not 0
    compute_cost  numeric CHECK (compute_cost >= 0 AND compute_cost < 1e12),
    reported_at   timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE INDEX usage_reported ON usage (reported_at);
CREATE INDEX usage_task ON usage (task_id);
CREATE INDEX usage_queue ON usage (queue, reported_at);             -- what a token limit adds up

-- What a queue may do at once. No row, or NULL: no limit. Plain INSERT, UPDATE and DELETE are how limits change, also while it runs and
-- also below what runs now: running tasks stay, new ones wait until there is room. max_running = 0 stops a queue.
CREATE TABLE limits (
    queue             text PRIMARY KEY,
    max_running       integer CHECK (max_running BETWEEN 0 AND 100000),
    tokens_per_minute bigint CHECK (tokens_per_minute >= 0),
    tokens_per_task   bigint NOT NULL DEFAULT 1000 CHECK (tokens_per_task > 0), -- what one try is expected to spend
    note              text,
    CONSTRAINT limits_one_task_must_fit_into_a_minute
        CHECK (tokens_per_minute IS NULL OR tokens_per_minute = 0 OR tokens_per_task <= tokens_per_minute)
);

-- A limit of n is n rows here, and a running task holds one. Claims take free rows with SKIP LOCKED: exact however many claim at once,
-- and nobody waits for anybody (a counter, or a lock on the limits row, makes all wait for the slowest transaction).
CREATE TABLE slots (
    queue   text NOT NULL,
    slot    integer NOT NULL,
    task_id bigint,                                                 -- NULL: free
    PRIMARY KEY (queue, slot)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX slots_free ON slots (queue, slot) WHERE task_id IS NULL;
CREATE INDEX slots_task ON slots (task_id) WHERE task_id IS NOT NULL;

-- Only for queues with a token limit: what a try is expected to spend and has not reported yet.
CREATE TABLE token_reservations (
    task_id bigint NOT NULL,
    attempt integer NOT NULL,
    queue   text NOT NULL,
    tokens  bigint NOT NULL,                                        -- still expected
    calls   integer NOT NULL DEFAULT 0,                             -- reports so far
    until   timestamptz NOT NULL DEFAULT 'infinity',                -- infinity while the try runs
    PRIMARY KEY (task_id, attempt)
) WITH (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX token_reservations_queue ON token_reservations (queue, until);

-- What operators did. Append only: the operator role may insert the columns that have no default below, and nothing else; the server
-- itself says who was connected, from where and when. Written by the caller of requeue, cancel, park and unpark in the same transaction
-- (jobtop does), since only the caller knows the person, the host and the action's own id.
CREATE TABLE operator_actions (
    action_id        text PRIMARY KEY,                              -- made by the client: a repeat after a lost answer is noticed
    at               timestamptz NOT NULL DEFAULT clock_timestamp(),
    who              text NOT NULL,                                 -- the person, as the client knows it
    db_user          text NOT NULL DEFAULT session_user,
    from_host        text,                                          -- the client's own name for its machine
    client_addr      inet DEFAULT inet_client_addr(),               -- NULL: a local socket
    application_name text DEFAULT current_setting('application_name'),
    database         text NOT NULL DEFAULT current_database(),
    action           text NOT NULL,                                 -- requeue, cancel, park, unpark ...
    ids              text[] NOT NULL,                               -- what was asked for
    asked            integer NOT NULL,
    changed          integer NOT NULL,
    skipped          integer NOT NULL,
    outcomes         jsonb,                                         -- id -> outcome
    reason           text
);
CREATE INDEX operator_actions_at ON operator_actions (at);
