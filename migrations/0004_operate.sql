-- The reference queue, part 4: taking tasks away from lost workers, and what operators may do. The contract and the order of locks are
-- in part 2.

DO $$
BEGIN
    IF current_schema() IS NULL OR current_schema() LIKE 'pg\_%'
       OR current_setting('search_path') !~* '^\s*("([^"]|"")+"|[a-z_][a-z0-9_$]*)\s*,\s*pg_temp\s*$' THEN
        RAISE EXCEPTION 'search_path is %: first SET search_path = agent_queue, pg_temp;', current_setting('search_path');
    END IF;
END $$;

-- Slots and reservations of tasks that do not run any more: somebody has deleted, truncated or updated tasks by hand. A slot is judged
-- again when it is locked, with a snapshot taken after that: who claims or ends a task changes its slot in the same transaction, so that
-- nobody can be in the middle of it. Waits for nobody, and must come last in its transaction: the slots it holds may be wanted.
CREATE FUNCTION _free_orphans() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    suspects bigint[];
BEGIN
    suspects := ARRAY(SELECT s.task_id FROM slots s
                       WHERE s.task_id IS NOT NULL
                         AND NOT EXISTS (SELECT FROM tasks t WHERE t.id = s.task_id AND t.status = 'processing')
                         FOR UPDATE SKIP LOCKED);
    IF cardinality(suspects) > 0 THEN
        UPDATE slots s SET task_id = NULL
         WHERE s.task_id = ANY (suspects)
           AND NOT EXISTS (SELECT FROM tasks t WHERE t.id = s.task_id AND t.status = 'processing');
    END IF;
    suspects := ARRAY(SELECT r.task_id FROM token_reservations r
                       WHERE r.until = 'infinity'
                         AND NOT EXISTS (SELECT FROM tasks t WHERE t.id = r.task_id AND t.attempt = r.attempt AND t.status = 'processing')
                         FOR UPDATE SKIP LOCKED);
    IF cardinality(suspects) > 0 THEN
        UPDATE token_reservations r SET until = clock_timestamp() + interval '1 minute'
         WHERE r.task_id = ANY (suspects) AND r.until = 'infinity'
           AND NOT EXISTS (SELECT FROM tasks t WHERE t.id = r.task_id AND t.attempt = r.attempt AND t.status = 'processing');
    END IF;
END $$;

-- Takes tasks away from owners whose lease has expired, the longest expired first, at most `max` of them: back into the queue with
-- back-off ('retry scheduled'), 'failed' when the attempts are used up, 'cancelled' when a cancel was pending. Also frees the slots of
-- tasks that were deleted or changed by hand.
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
    PERFORM _free_orphans();
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
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
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
