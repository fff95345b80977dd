-- The reference queue, part 3: claiming, and the limits that claims respect. The contract and the order of locks are in part 2.

DO $$
BEGIN
    IF current_schema() IS NULL OR current_schema() LIKE 'pg\_%'
       OR current_setting('search_path') !~* '^\s*("([^"]|"")+"|[a-z_][a-z0-9_$]*)\s*,\s*pg_temp\s*$' THEN
        RAISE EXCEPTION 'search_path is %: first SET search_path = agent_queue, pg_temp;', current_setting('search_path');
    END IF;
END $$;

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
        -- Only after somebody has set attempt back by hand: that must not stop the queue.
        ON CONFLICT (task_id, attempt) DO UPDATE
           SET lease_token = excluded.lease_token, worker = excluded.worker, worker_version = excluded.worker_version,
               eligible_at = excluded.eligible_at, claimed_at = excluded.claimed_at, started_at = NULL, finished_at = NULL,
               outcome = NULL, error = NULL, job_run_id = NULL, trace_id = NULL
    ), reserved AS (
        INSERT INTO token_reservations (task_id, attempt, queue, tokens)
        SELECT taken.id, taken.attempt, claim.queue, per_task FROM taken WHERE per_minute IS NOT NULL
        ON CONFLICT (task_id, attempt) DO UPDATE SET tokens = excluded.tokens, calls = 0, until = 'infinity'
    )
    SELECT taken.id, taken.kind, taken.payload, taken.attempt, taken.max_attempts, taken.lease_token, taken.lease_expires_at,
           taken.agent, taken.tenant, taken.application, taken.batch_id
      FROM taken ORDER BY array_position(picked, taken.id);
END $$;

-- Limits change: make the slots, and give one to each task that runs without (it was claimed while there was no limit). The exclusive gate
-- waits for the claims that are under way and turns away new ones, so that none of them decides by the old limit.
CREATE FUNCTION _limits_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
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
