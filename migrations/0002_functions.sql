-- The reference queue, part 2: functions. Each is one short transaction and can be called from any language: SELECT * FROM claim(...).
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
-- the whole table, once the queue is not. Parameters are written function.parameter where a column has the same name.

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
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
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
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := clock_timestamp();
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
    new_ids := ARRAY(SELECT nextval(pg_get_serial_sequence('tasks', 'id')) FROM jsonb_array_elements(enqueue_many.tasks));
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

-------------------------------------------------------------------------------------------------------------------------- claim

-- The advisory lock of a queue's limits: shared by claims, exclusive while the limits row changes. (Without SET it can be inlined.)
CREATE FUNCTION _gate(queue text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT hashtextextended($1, 'limits'::regclass::oid::bigint)
$$;

-- Takes up to `batch` due tasks of one queue for `worker`: highest priority first, then the oldest. Returns no row when there is nothing
-- to do, when the queue is at its limit, or when its limits are being changed at this moment: ask again later, with a little jitter.
--
-- Never waits for anybody. Never above limits.max_running, however many claim at once and also while the limit moves up or down.
-- With limits.tokens_per_minute, a task is given out only if the tokens reported in the last minute, plus what all open tries are expected
-- to spend and have not reported, leave room for tokens_per_task. As long as no try spends more than that, no minute ends above the limit.
-- What it cannot prevent: a call that spends more than was expected, or spending that is never reported.
CREATE FUNCTION claim(
    queue text,
    worker text,
    batch integer DEFAULT 1,
    lease interval DEFAULT '60 s',
    worker_version text DEFAULT NULL,
    kinds text[] DEFAULT NULL
) RETURNS TABLE (
    id bigint, kind text, payload jsonb, attempt integer, max_attempts integer, lease_token bigint, lease_expires_at timestamptz,
    agent text, tenant text, application text, batch_id text
)
-- The order must come from the claim indexes, whatever the statistics say: a sort would first read everything that is due.
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := clock_timestamp();
    room integer := claim.batch;
    max_running integer;
    per_minute bigint;
    per_task bigint;
    spent numeric;
    top integer;        -- the highest slot that exists
    bound integer;      -- the highest slot that may be taken
    free integer[];
    picked bigint[];
BEGIN
    IF claim.worker IS NULL OR claim.queue IS NULL OR claim.batch IS NULL OR claim.batch < 1
       OR claim.lease IS NULL OR claim.lease <= interval '0' THEN
        RAISE EXCEPTION 'claim needs a queue, a worker, a batch of at least 1 and a lease longer than 0'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT pg_try_advisory_xact_lock_shared(_gate(claim.queue)) THEN
        RETURN;
    END IF;
    SELECT l.max_running, l.tokens_per_minute, l.tokens_per_task INTO max_running, per_minute, per_task
      FROM limits l WHERE l.queue = claim.queue;

    IF per_minute IS NOT NULL THEN
        -- One claim at a time decides about tokens, and the others do not wait for it. The sums are statements of their own: they must
        -- see what the previous holder of this lock has reserved.
        PERFORM FROM limits l WHERE l.queue = claim.queue FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        DELETE FROM token_reservations r
         WHERE r.ctid = ANY (ARRAY(SELECT x.ctid FROM token_reservations x WHERE x.queue = claim.queue AND x.until <= at
                                   LIMIT 1000 FOR UPDATE SKIP LOCKED));
        SELECT coalesce((SELECT sum(coalesce(u.input_tokens, 0) + coalesce(u.output_tokens, 0)) FROM usage u
                          WHERE u.queue = claim.queue AND u.reported_at > at - interval '1 minute'), 0)
             + coalesce((SELECT sum(r.tokens) FROM token_reservations r WHERE r.queue = claim.queue AND r.until > at), 0)
          INTO spent;
        room := least(room, greatest(0, floor((per_minute - spent) / per_task)));
    END IF;

    IF max_running IS NOT NULL AND room > 0 THEN
        bound := max_running;
        SELECT max(s.slot) INTO top FROM slots s WHERE s.queue = claim.queue;
        IF top > max_running THEN
            -- The limit was lowered below what runs. Slot s may be taken if s plus the slots in use above s stay within the limit: all
            -- slots up to s full and those above is then the worst that can be, and those above can only become fewer.
            SELECT coalesce(max(x.slot), 0) INTO bound
              FROM (SELECT s.slot, s.slot + count(s.task_id) OVER (PARTITION BY s.queue ORDER BY s.slot DESC
                                                                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS worst
                      FROM slots s WHERE s.queue = claim.queue) x
             WHERE x.worst <= max_running;
            DELETE FROM slots s
             WHERE s.ctid = ANY (ARRAY(SELECT x.ctid FROM slots x
                                        WHERE x.queue = claim.queue AND x.slot > max_running AND x.task_id IS NULL
                                        LIMIT 1000 FOR UPDATE SKIP LOCKED));
        END IF;
        free := ARRAY(SELECT s.slot FROM slots s
                       WHERE s.queue = claim.queue AND s.task_id IS NULL AND s.slot <= bound
                       ORDER BY s.slot LIMIT room FOR UPDATE SKIP LOCKED);
        room := cardinality(free);
    END IF;
    IF room < 1 THEN
        RETURN;
    END IF;

    -- Whatever came due moves into the claim index: as much as this claim could take, and some more.
    UPDATE tasks t SET deferred = false
     WHERE t.id = ANY (ARRAY(SELECT x.id FROM tasks x
                              WHERE x.queue = claim.queue AND x.status = 'enqueued' AND x.deferred AND x.run_after <= at
                              ORDER BY x.run_after LIMIT room + 100 FOR UPDATE SKIP LOCKED));

    IF claim.kinds IS NULL THEN
        picked := ARRAY(SELECT t.id FROM tasks t
                         WHERE t.queue = claim.queue AND t.status = 'enqueued' AND NOT t.deferred AND t.run_after <= at
                         ORDER BY t.priority DESC, t.created_at, t.id LIMIT room FOR UPDATE SKIP LOCKED);
    ELSE
        -- The best of each kind, merged. The candidates are not locked, so some more than needed are looked at: others may have them.
        picked := ARRAY(SELECT t.id
                          FROM (SELECT c.id, c.priority, c.created_at
                                  FROM (SELECT DISTINCT k FROM unnest(claim.kinds) AS k) AS wanted
                                 CROSS JOIN LATERAL (
                                       SELECT x.id, x.priority, x.created_at FROM tasks x
                                        WHERE x.queue = claim.queue AND x.kind = wanted.k AND x.status = 'enqueued' AND NOT x.deferred
                                          AND x.run_after <= at
                                        ORDER BY x.priority DESC, x.created_at, x.id LIMIT room + 50) AS c
                                 ORDER BY c.priority DESC, c.created_at, c.id) AS best
                          JOIN tasks t ON t.id = best.id
                         WHERE t.status = 'enqueued' AND NOT t.deferred
                         ORDER BY best.priority DESC, best.created_at, best.id LIMIT room FOR UPDATE OF t SKIP LOCKED);
    END IF;
    IF cardinality(picked) = 0 THEN
        RETURN;
    END IF;

    IF free IS NOT NULL THEN
        UPDATE slots s SET task_id = f.id
          FROM unnest(free, picked) AS f (slot, id)
         WHERE s.queue = claim.queue AND s.slot = f.slot AND f.id IS NOT NULL;
    END IF;
    RETURN QUERY
    WITH taken AS (
        UPDATE tasks t
           SET status = 'processing', attempt = t.attempt + 1, lease_token = t.lease_token + 1, locked_by = claim.worker,
               worker_version = claim.worker_version, claimed_at = at, heartbeat_at = at, lease_expires_at = at + claim.lease,
               started_at = NULL
         WHERE t.id = ANY (picked)
        RETURNING t.*
    ), tries AS (
        INSERT INTO task_attempts (task_id, attempt, lease_token, worker, worker_version, eligible_at, claimed_at)
        SELECT taken.id, taken.attempt, taken.lease_token, claim.worker, claim.worker_version,
               greatest(taken.run_after, taken.created_at), at
          FROM taken
    ), reserved AS (
        INSERT INTO token_reservations (task_id, attempt, queue, tokens)
        SELECT taken.id, taken.attempt, claim.queue, per_task FROM taken WHERE per_minute IS NOT NULL
    )
    SELECT taken.id, taken.kind, taken.payload, taken.attempt, taken.max_attempts, taken.lease_token, taken.lease_expires_at,
           taken.agent, taken.tenant, taken.application, taken.batch_id
      FROM taken ORDER BY array_position(picked, taken.id);
END $$;

-- Limits change: make the slots, and give one to each task that runs without (it was claimed while there was no limit). The exclusive gate
-- waits for the claims that are under way and turns away new ones, so that none of them decides by the old limit.
CREATE FUNCTION _limits_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
    top integer;
    running bigint[];
BEGIN
    IF TG_OP <> 'INSERT' AND (TG_OP = 'DELETE' OR OLD.queue <> NEW.queue) THEN
        PERFORM pg_advisory_xact_lock(_gate(OLD.queue));
        DELETE FROM slots s WHERE s.queue = OLD.queue AND s.task_id IS NULL;
        IF TG_OP = 'DELETE' THEN
            RETURN NULL;
        END IF;
    END IF;
    PERFORM pg_advisory_xact_lock(_gate(NEW.queue));

    -- Their rows are locked, so that none ends between here and the commit and leaves a slot or a reservation that nobody would free.
    running := ARRAY(SELECT t.id FROM tasks t
                      WHERE t.status = 'processing' AND t.queue = NEW.queue
                        AND (NEW.max_running IS NOT NULL AND NOT EXISTS (SELECT FROM slots s WHERE s.task_id = t.id)
                             OR NEW.tokens_per_minute IS NOT NULL
                                AND NOT EXISTS (SELECT FROM token_reservations r WHERE r.task_id = t.id AND r.attempt = t.attempt))
                      ORDER BY t.id FOR NO KEY UPDATE);
    IF NEW.max_running IS NOT NULL THEN
        INSERT INTO slots (queue, slot)
        SELECT NEW.queue, n FROM generate_series(1, NEW.max_running) AS n ON CONFLICT DO NOTHING;
        DELETE FROM slots s WHERE s.queue = NEW.queue AND s.slot > NEW.max_running AND s.task_id IS NULL;
        SELECT coalesce(max(s.slot), 0) INTO top FROM slots s WHERE s.queue = NEW.queue;
        INSERT INTO slots (queue, slot, task_id)
        SELECT NEW.queue, top + row_number() OVER (ORDER BY t.id), t.id
          FROM tasks t
         WHERE t.id = ANY (running) AND t.status = 'processing' AND NOT EXISTS (SELECT FROM slots s WHERE s.task_id = t.id);
    END IF;
    IF NEW.tokens_per_minute IS NOT NULL THEN
        INSERT INTO token_reservations (task_id, attempt, queue, tokens)
        SELECT t.id, t.attempt, t.queue, NEW.tokens_per_task
          FROM tasks t WHERE t.id = ANY (running) AND t.status = 'processing'
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER limits_changed AFTER INSERT OR UPDATE OR DELETE ON limits FOR EACH ROW EXECUTE FUNCTION _limits_changed();

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
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
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
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
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
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
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
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
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
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
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
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
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
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
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
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
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
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
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

-- Takes tasks away from owners whose lease has expired, the longest expired first, at most `max` of them: back into the queue with
-- back-off ('retry scheduled'), 'failed' when the attempts are used up, 'cancelled' when a cancel was pending.
CREATE FUNCTION reclaim(max integer DEFAULT 100) RETURNS TABLE (id bigint, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := clock_timestamp();
    task record;
    lost text;
BEGIN
    FOR task IN
        SELECT t.id, t.attempt, t.max_attempts, t.locked_by, t.cancel_requested_at
          FROM tasks t
         WHERE t.status = 'processing' AND t.lease_expires_at < at
         ORDER BY t.lease_expires_at LIMIT reclaim.max FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        lost := 'lease expired, last held by ' || task.locked_by;
        id := task.id;
        outcome := CASE
            WHEN task.cancel_requested_at IS NOT NULL THEN 'cancelled'
            WHEN task.attempt >= task.max_attempts THEN 'failed'
            ELSE 'retry scheduled'
        END;
        PERFORM _end_attempt(task.id, task.attempt, 'lease expired', lost, at);
        IF outcome = 'retry scheduled' THEN
            PERFORM _enqueue_again(task.id, at + backoff(task.attempt), at, lost, true);
        ELSE
            PERFORM _finish(task.id, outcome, at, lost);
            UPDATE tasks t SET lease_token = t.lease_token + 1 WHERE t.id = task.id;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

--------------------------------------------------------------------------------------------------------------- the operator's calls

-- requeue, cancel, park and unpark: one row per asked id, in the order asked, with what happened:
--     'changed'                          done
--     'requested'                        cancel of a running task: its worker learns it at the next heartbeat
--     'already requested'                that cancel was asked for before
--     'changed since it was seen'        status or lease token are not what seen_status or seen_token say (NULL: not compared)
--     'is completed' (failed, ...)       this cannot be done to a task in that state
--     'lease has not expired'            requeue of a running task: only an expired lease permits it
--     'locked by another session'        somebody is changing it right now: look again
--     'no such task'
-- and the status and attempt afterwards. They do not write operator_actions: the caller does, in the same transaction.
CREATE FUNCTION _operate(action text, ids bigint[], seen_status text[], seen_token bigint[], reason text)
RETURNS TABLE (id bigint, outcome text, status text, attempt integer)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    most constant integer := 1000;
    at timestamptz;
    task record;
    word text;
    done bigint[] := '{}';
    words text[] := '{}';
BEGIN
    IF cardinality(ids) > most THEN
        RAISE EXCEPTION 'at most % tasks in one transaction, not %: ask in parts', most, cardinality(ids)
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF cardinality(seen_status) <> cardinality(ids) OR cardinality(seen_token) <> cardinality(ids) THEN
        RAISE EXCEPTION 'seen_status and seen_token need one element per id' USING ERRCODE = 'invalid_parameter_value';
    END IF;

    FOR task IN
        SELECT t.id, t.status, t.attempt, t.locked_by, t.lease_expires_at, t.cancel_requested_at, t.run_after,
               w.status IS NOT NULL AND w.status <> t.status OR w.token IS NOT NULL AND w.token <> t.lease_token AS moved
          FROM (SELECT DISTINCT ON (u.id) u.id, u.status, u.token
                  FROM unnest(ids, seen_status, seen_token) AS u (id, status, token) WHERE u.id IS NOT NULL ORDER BY u.id) AS w
          JOIN tasks t ON t.id = w.id
         ORDER BY t.id FOR NO KEY UPDATE OF t SKIP LOCKED
    LOOP
        -- After the lock: whether a lease has expired is asked when nobody can extend it any more.
        at := clock_timestamp();
        word := 'changed';
        IF task.moved THEN
            word := 'changed since it was seen';

        ELSIF action = 'requeue' AND task.status IN ('failed', 'cancelled', 'processing') THEN
            IF task.status = 'processing' AND task.lease_expires_at >= at THEN
                word := 'lease has not expired';
            ELSE
                IF task.status = 'processing' THEN
                    PERFORM _end_attempt(task.id, task.attempt, 'lease expired', 'lease expired, last held by ' || task.locked_by, at);
                END IF;
                PERFORM _enqueue_again(task.id, at, at, NULL, true);
                UPDATE tasks t SET max_attempts = t.attempt + 1 WHERE t.id = task.id AND t.attempt >= t.max_attempts;
            END IF;

        ELSIF action = 'cancel' AND task.status IN ('enqueued', 'parked', 'processing') THEN
            IF task.cancel_requested_at IS NOT NULL AND task.status = 'processing' THEN
                word := 'already requested';
            ELSE
                UPDATE tasks t
                   SET cancel_requested_at = at, cancel_requested_by = session_user, cancel_reason = _operate.reason
                 WHERE t.id = task.id;
                IF task.status = 'processing' THEN
                    word := 'requested';
                ELSE
                    PERFORM _finish(task.id, 'cancelled', at, NULL);
                END IF;
            END IF;

        ELSIF action = 'park' AND task.status = 'enqueued' THEN
            UPDATE tasks t SET status = 'parked', deferred = false WHERE t.id = task.id;

        ELSIF action = 'unpark' AND task.status = 'parked' THEN
            -- The time in the park was nobody's waiting: it is due from now on, or later if it was to run later anyway.
            PERFORM _enqueue_again(task.id, greatest(task.run_after, at), at, NULL, false);

        ELSE
            word := 'is ' || task.status;
        END IF;
        done := done || task.id;
        words := words || word;
    END LOOP;

    RETURN QUERY
    SELECT a.id, coalesce(d.word, CASE WHEN t.id IS NULL THEN 'no such task' ELSE 'locked by another session' END), t.status, t.attempt
      FROM (SELECT u.id, min(u.place) AS place FROM unnest(ids) WITH ORDINALITY AS u (id, place) GROUP BY u.id) AS a
      LEFT JOIN unnest(done, words) AS d (id, word) ON d.id = a.id
      LEFT JOIN tasks t ON t.id = a.id
     ORDER BY a.place;
END $$;

-- Failed, cancelled, or running with an expired lease: due again now, the token raised, a stale cancel request cleared, and one more
-- attempt allowed where they were used up.
CREATE FUNCTION requeue(ids bigint[], seen_status text[] DEFAULT NULL, seen_token bigint[] DEFAULT NULL, reason text DEFAULT NULL)
RETURNS TABLE (id bigint, outcome text, status text, attempt integer)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$ SELECT * FROM _operate('requeue', $1, $2, $3, $4) $$;

-- Enqueued or parked: cancelled at once. Running: requested; the worker's heartbeat says so, and fail and reclaim honour it.
CREATE FUNCTION cancel(ids bigint[], seen_status text[] DEFAULT NULL, seen_token bigint[] DEFAULT NULL, reason text DEFAULT NULL)
RETURNS TABLE (id bigint, outcome text, status text, attempt integer)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$ SELECT * FROM _operate('cancel', $1, $2, $3, $4) $$;

-- Enqueued: out of the workers' sight until unpark.
CREATE FUNCTION park(ids bigint[], seen_status text[] DEFAULT NULL, seen_token bigint[] DEFAULT NULL, reason text DEFAULT NULL)
RETURNS TABLE (id bigint, outcome text, status text, attempt integer)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$ SELECT * FROM _operate('park', $1, $2, $3, $4) $$;

CREATE FUNCTION unpark(ids bigint[], seen_status text[] DEFAULT NULL, seen_token bigint[] DEFAULT NULL, reason text DEFAULT NULL)
RETURNS TABLE (id bigint, outcome text, status text, attempt integer)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$ SELECT * FROM _operate('unpark', $1, $2, $3, $4) $$;
