-- The reference queue, part 2: functions for producers and workers (claim is in part 3, reclaim and the operator's in part 4). Each is one short transaction and can be called from any language: SELECT * FROM claim(...).
--
-- THE WORKER'S CONTRACT
--
--  1. claim, commit, then work. Nothing that takes time (a model call, a browser, a request) happens between BEGIN and COMMIT: call
--     these functions in autocommit mode, one call a transaction, READ COMMITTED. Give the connection back while you wait.
--  2. Keep what claim returns: id, attempt and lease_token. The token is the proof of ownership. It rises at each claim and each time
--     the task is taken away (requeue, reclaim), so an old token never comes back.
--  3. `started` when work begins, `heartbeat` at least three times per lease length, and then exactly one of `complete`, `fail` or, when
--     the heartbeat said that a cancel was requested, `cancelled`.
--  4. Every one of them answers with a word. 'ok' ('retry scheduled', 'failed' and 'cancelled' for fail): it is done. Anything else:
--     nothing was changed.
--        'stale lease token'   somebody else owns the task now: stop, throw the result away
--        'not running'         it has ended already; after a lost answer this is how you learn that your first call went through
--        'no such task'
--     A lease that has expired but that nobody has reclaimed still belongs to the holder of the current token, who may heartbeat,
--     complete or fail: nobody else has it, and throwing good work away helps nobody. The row lock decides between it and a reclaim.
--  5. Effects outside this database must be idempotent by (task id, attempt): a task whose worker is lost runs again.
--  6. report_usage for every model call, under the provider's own call id, as often as you like and as late as it comes.
--  7. Someone calls reclaim() every few seconds: each worker between two claims, or a cron job. It is bounded and never waits.
--
-- LOCKS (why there are no deadlocks)
--
--  * claim, reclaim, requeue, cancel, park and unpark lock task rows with SKIP LOCKED: they never wait for a task.
--  * started, heartbeat, complete, fail and cancelled wait for one task row, while they hold nothing.
--  * Slot and reservation rows are freed by whoever holds the task's row, and taken by claim with SKIP LOCKED.
--  So no one who holds a lock that others want ever waits for a task, and there is no circle. This holds for one call a transaction; who
--  completes several tasks in one transaction must do so in id order.
--
-- Every function is SECURITY DEFINER with the search_path it was made with (the queue's schema, then pg_temp): roles may call it without
-- any right on the tables. enable_seqscan is off inside, because a plan made while the queue was empty would otherwise be kept, and read
-- the whole table, once the queue is not; jit is off, because a plan that must scan then counts as very dear, and compiling it takes
-- longer than a hundred claims. Functions whose names begin with _ are called by these only, and run under the same settings.
-- Parameters are written function.parameter where a column has the same name.

DO $$
BEGIN
    IF current_schema() IS NULL OR current_schema() LIKE 'pg\_%'
       OR current_setting('search_path') !~* '^\s*("([^"]|"")+"|[a-z_][a-z0-9_$]*)\s*,\s*pg_temp\s*$' THEN
        RAISE EXCEPTION 'search_path is %: first SET search_path = agent_queue, pg_temp;', current_setting('search_path');
    END IF;
END $$;

------------------------------------------------------------------------------------------------------------------------ enqueue

-- Adds a task and returns its id, or the id that is already there under this key (whatever has become of that task). Keys are per queue.
CREATE FUNCTION enqueue(
    queue text,
    kind text,
    payload jsonb DEFAULT '{}',
    priority integer DEFAULT 0,
    run_after timestamptz DEFAULT now(),
    max_attempts integer DEFAULT 5,
    agent text DEFAULT NULL,
    tenant text DEFAULT NULL,
    application text DEFAULT NULL,
    batch_id text DEFAULT NULL,
    idempotency_key text DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := clock_timestamp();
    due timestamptz := coalesce(enqueue.run_after, at);
    task bigint;
BEGIN
    LOOP
        INSERT INTO tasks (queue, kind, payload, priority, created_at, run_after, deferred, max_attempts, agent, tenant, application,
                           batch_id, idempotency_key)
        VALUES (enqueue.queue, enqueue.kind, coalesce(enqueue.payload, '{}'), coalesce(enqueue.priority, 0), at, due, due > at,
                coalesce(enqueue.max_attempts, 5), enqueue.agent, enqueue.tenant, enqueue.application, enqueue.batch_id,
                enqueue.idempotency_key)
        ON CONFLICT (queue, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
        RETURNING tasks.id INTO task;
        IF NOT FOUND THEN
            SELECT t.id INTO task FROM tasks t
             WHERE t.queue = enqueue.queue AND t.idempotency_key = enqueue.idempotency_key;
        END IF;
        -- Neither: the other row was deleted in between. Once more, then.
        EXIT WHEN task IS NOT NULL;
    END LOOP;
    RETURN task;
END $$;

-- Adds many tasks, given as an array of objects with the names of enqueue's parameters, and returns their ids in the order of the array.
-- All or nothing. A name that enqueue does not know is an error: a misspelt run_after must not run at once.
CREATE FUNCTION enqueue_many(tasks jsonb) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := clock_timestamp();
    ids regclass := pg_get_serial_sequence('tasks', 'id');
    new_ids bigint[];
    wrong text;
BEGIN
    IF jsonb_typeof(enqueue_many.tasks) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'enqueue_many takes a JSON array of objects, not %', coalesce(jsonb_typeof(enqueue_many.tasks), 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT k INTO wrong
      FROM jsonb_array_elements(enqueue_many.tasks) AS e (task), jsonb_object_keys(e.task) AS k
     WHERE k NOT IN ('queue', 'kind', 'payload', 'priority', 'run_after', 'max_attempts', 'agent', 'tenant', 'application', 'batch_id',
                     'idempotency_key')
     LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'enqueue_many does not know the name "%"', wrong USING ERRCODE = 'invalid_parameter_value';
    END IF;

    -- Ids are drawn in the order of the array, but rows are inserted in the order of their keys: two callers who insert the same keys in
    -- different orders would wait for each other.
    new_ids := ARRAY(SELECT nextval(ids) FROM jsonb_array_elements(enqueue_many.tasks));
    INSERT INTO tasks (id, queue, kind, payload, priority, created_at, run_after, deferred, max_attempts, agent, tenant, application,
                       batch_id, idempotency_key)
    OVERRIDING SYSTEM VALUE
    SELECT n.id, n.queue, n.kind, coalesce(n.payload, '{}'), coalesce(n.priority, 0), at, coalesce(n.run_after, at),
           coalesce(n.run_after > at, false), coalesce(n.max_attempts, 5), n.agent, n.tenant, n.application, n.batch_id,
           n.idempotency_key
      FROM ROWS FROM (
               jsonb_to_recordset(enqueue_many.tasks) AS (
                   queue text, kind text, payload jsonb, priority integer, run_after timestamptz, max_attempts integer, agent text,
                   tenant text, application text, batch_id text, idempotency_key text),
               unnest(new_ids)
           ) AS n (queue, kind, payload, priority, run_after, max_attempts, agent, tenant, application, batch_id, idempotency_key, id)
     ORDER BY n.queue, n.idempotency_key, n.id
    ON CONFLICT (queue, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;

    RETURN QUERY
    SELECT coalesce(t.id, n.id)
      FROM ROWS FROM (
               jsonb_to_recordset(enqueue_many.tasks) AS (queue text, idempotency_key text), unnest(new_ids)
           ) AS n (queue, idempotency_key, id)
      LEFT JOIN tasks t ON t.queue = n.queue AND t.idempotency_key = n.idempotency_key
     ORDER BY n.id;
END $$;

------------------------------------------------------------------------------------------------------------ the worker's own calls

-- Why a call with this token changed nothing.
CREATE FUNCTION _why_not(task_id bigint, lease_token bigint) RETURNS text LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    word text;
BEGIN
    SELECT CASE WHEN t.lease_token IS DISTINCT FROM _why_not.lease_token THEN 'stale lease token' ELSE 'not running' END
      INTO word FROM tasks t WHERE t.id = _why_not.task_id;
    RETURN coalesce(word, 'no such task');
END $$;

-- The try ends: its row, its slot and what it reserved. Only called by who holds the task's row lock.
CREATE FUNCTION _end_attempt(task_id bigint, attempt integer, outcome text, error text, at timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    UPDATE task_attempts a SET finished_at = _end_attempt.at, outcome = _end_attempt.outcome, error = _end_attempt.error
     WHERE a.task_id = _end_attempt.task_id AND a.attempt = _end_attempt.attempt AND a.finished_at IS NULL;
    UPDATE slots s SET task_id = NULL WHERE s.task_id = _end_attempt.task_id;
    -- A bill may still come: what was not reported stays reserved for a minute. Who has reported is taken at its word.
    UPDATE token_reservations r
       SET until = CASE WHEN r.calls > 0 THEN _end_attempt.at ELSE _end_attempt.at + interval '1 minute' END
     WHERE r.task_id = _end_attempt.task_id AND r.attempt = _end_attempt.attempt;
END $$;

-- Back into the queue, with nothing left of the try that ended.
CREATE FUNCTION _enqueue_again(task_id bigint, due timestamptz, at timestamptz, error text, taken_away boolean) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE tasks t
       SET status = 'enqueued', run_after = due, deferred = due > at, last_error = coalesce(error, t.last_error),
           lease_token = t.lease_token + taken_away::integer, locked_by = NULL, worker_version = NULL, lease_expires_at = NULL,
           claimed_at = NULL, started_at = NULL, heartbeat_at = NULL, finished_at = NULL,
           cancel_requested_at = NULL, cancel_requested_by = NULL, cancel_reason = NULL
     WHERE t.id = _enqueue_again.task_id;
END $$;

-- The task is over.
CREATE FUNCTION _finish(task_id bigint, status text, at timestamptz, error text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    UPDATE tasks t
       SET status = _finish.status, finished_at = at, last_error = coalesce(error, t.last_error), locked_by = NULL,
           lease_expires_at = NULL, deferred = false
     WHERE t.id = _finish.task_id;
END $$;

-- How long to wait after the n-th failed try: 5 s, 10 s, 20 s ... at most an hour, each a quarter more or less, so that tasks that failed
-- together do not come back together. Replace it as you like.
CREATE FUNCTION backoff(attempt integer) RETURNS interval LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    SELECT least(interval '1 hour', interval '5 s' * (2 ^ least(greatest($1, 1) - 1, 20))) * (0.75 + random() / 2)
$$;

-- Work begins. May be called again; the first time counts.
CREATE FUNCTION started(task_id bigint, lease_token bigint, job_run_id text DEFAULT NULL, trace_id text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := clock_timestamp();
    try integer;
BEGIN
    UPDATE tasks t SET started_at = coalesce(t.started_at, at), heartbeat_at = at
     WHERE t.id = started.task_id AND t.status = 'processing' AND t.lease_token = started.lease_token
    RETURNING t.attempt INTO try;
    IF NOT FOUND THEN
        RETURN _why_not(started.task_id, started.lease_token);
    END IF;
    UPDATE task_attempts a
       SET started_at = coalesce(a.started_at, at), job_run_id = coalesce(started.job_run_id, a.job_run_id),
           trace_id = coalesce(started.trace_id, a.trace_id)
     WHERE a.task_id = started.task_id AND a.attempt = try;
    RETURN 'ok';
END $$;

-- Still alive: the lease now lasts at least `lease` from now (it is never shortened). Says whether a cancel was requested: then stop, and
-- acknowledge with `cancelled`.
CREATE FUNCTION heartbeat(task_id bigint, lease_token bigint, lease interval DEFAULT '60 s')
RETURNS TABLE (outcome text, cancel_requested boolean, lease_expires_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := clock_timestamp();
BEGIN
    IF heartbeat.lease IS NULL OR heartbeat.lease <= interval '0' THEN
        RAISE EXCEPTION 'heartbeat needs a lease longer than 0' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN QUERY
    UPDATE tasks t SET heartbeat_at = at, lease_expires_at = greatest(t.lease_expires_at, at + heartbeat.lease)
     WHERE t.id = heartbeat.task_id AND t.status = 'processing' AND t.lease_token = heartbeat.lease_token
    RETURNING 'ok'::text, t.cancel_requested_at IS NOT NULL, t.lease_expires_at;
    IF NOT FOUND THEN
        RETURN QUERY SELECT _why_not(heartbeat.task_id, heartbeat.lease_token), false, NULL::timestamptz;
    END IF;
END $$;

-- Done. Also after a cancel was requested: the work is there, so it is kept; the request stays on the row.
CREATE FUNCTION complete(task_id bigint, lease_token bigint, result jsonb DEFAULT NULL, confidence numeric DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := clock_timestamp();
    try integer;
BEGIN
    UPDATE tasks t
       SET status = 'completed', finished_at = at, result = complete.result, confidence = complete.confidence, locked_by = NULL,
           lease_expires_at = NULL
     WHERE t.id = complete.task_id AND t.status = 'processing' AND t.lease_token = complete.lease_token
    RETURNING t.attempt INTO try;
    IF NOT FOUND THEN
        RETURN _why_not(complete.task_id, complete.lease_token);
    END IF;
    PERFORM _end_attempt(complete.task_id, try, 'completed', NULL, at);
    RETURN 'ok';
END $$;

-- The try failed: 'retry scheduled' (after retry_after, or exponential back-off with jitter when that is NULL), 'failed' when it is
-- permanent or the attempts are used up, or 'cancelled' when a cancel was pending.
CREATE FUNCTION fail(
    task_id bigint, lease_token bigint, error text, retry_after interval DEFAULT NULL, permanent boolean DEFAULT false
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
DECLARE
    at timestamptz := clock_timestamp();
    task record;
    answer text;
BEGIN
    SELECT t.attempt, t.max_attempts, t.cancel_requested_at INTO task
      FROM tasks t
     WHERE t.id = fail.task_id AND t.status = 'processing' AND t.lease_token = fail.lease_token FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN _why_not(fail.task_id, fail.lease_token);
    END IF;
    PERFORM _end_attempt(fail.task_id, task.attempt, 'failed', error, at);
    answer := CASE
        WHEN task.cancel_requested_at IS NOT NULL THEN 'cancelled'
        WHEN permanent OR task.attempt >= task.max_attempts THEN 'failed'
        ELSE 'retry scheduled'
    END;
    IF answer = 'retry scheduled' THEN
        PERFORM _enqueue_again(fail.task_id, at + greatest(coalesce(retry_after, backoff(task.attempt)), interval '0'), at, error, false);
    ELSE
        PERFORM _finish(fail.task_id, answer, at, error);
    END IF;
    RETURN answer;
END $$;

-- The worker has stopped because a cancel was requested. Without a request: 'no cancel requested', and nothing changes.
CREATE FUNCTION cancelled(task_id bigint, lease_token bigint) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
DECLARE
    at timestamptz := clock_timestamp();
    task record;
BEGIN
    SELECT t.attempt, t.cancel_requested_at INTO task
      FROM tasks t
     WHERE t.id = cancelled.task_id AND t.status = 'processing' AND t.lease_token = cancelled.lease_token FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN _why_not(cancelled.task_id, cancelled.lease_token);
    ELSIF task.cancel_requested_at IS NULL THEN
        RETURN 'no cancel requested';
    END IF;
    PERFORM _end_attempt(cancelled.task_id, task.attempt, 'cancelled', NULL, at);
    PERFORM _finish(cancelled.task_id, 'cancelled', at, NULL);
    RETURN 'ok';
END $$;

-- What a model call cost, under the provider's id of that call. Accepted late, twice and from tries that are long over. 'recorded', or
-- 'duplicate' when there was nothing new in it: a second report may fill in what was unknown, and never changes what is known.
CREATE FUNCTION report_usage(
    call_id text, task_id bigint, attempt integer, model text, input_tokens bigint, output_tokens bigint,
    llm_cost numeric DEFAULT NULL, compute_cost numeric DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    is_new boolean;
BEGIN
    INSERT INTO usage AS u (call_id, task_id, attempt, queue, model, input_tokens, output_tokens, llm_cost, compute_cost)
    VALUES (report_usage.call_id, report_usage.task_id, report_usage.attempt,
            (SELECT t.queue FROM tasks t WHERE t.id = report_usage.task_id),
            report_usage.model, report_usage.input_tokens, report_usage.output_tokens, report_usage.llm_cost, report_usage.compute_cost)
    ON CONFLICT (call_id) DO NOTHING;
    is_new := FOUND;
    IF is_new THEN
        UPDATE token_reservations r
           SET calls = r.calls + 1,
               tokens = greatest(0, r.tokens - coalesce(report_usage.input_tokens, 0) - coalesce(report_usage.output_tokens, 0))
         WHERE r.task_id = report_usage.task_id AND r.attempt = report_usage.attempt;
        RETURN 'recorded';
    END IF;
    UPDATE usage u
       SET model = coalesce(u.model, report_usage.model),
           input_tokens = coalesce(u.input_tokens, report_usage.input_tokens),
           output_tokens = coalesce(u.output_tokens, report_usage.output_tokens),
           llm_cost = coalesce(u.llm_cost, report_usage.llm_cost),
           compute_cost = coalesce(u.compute_cost, report_usage.compute_cost)
     WHERE u.call_id = report_usage.call_id
       AND (u.model IS NULL AND report_usage.model IS NOT NULL
            OR u.input_tokens IS NULL AND report_usage.input_tokens IS NOT NULL
            OR u.output_tokens IS NULL AND report_usage.output_tokens IS NOT NULL
            OR u.llm_cost IS NULL AND report_usage.llm_cost IS NOT NULL
            OR u.compute_cost IS NULL AND report_usage.compute_cost IS NOT NULL);
    RETURN CASE WHEN FOUND THEN 'recorded' ELSE 'duplicate' END;
END $$;
