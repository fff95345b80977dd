-- The reference queue, part 6: more that operators may do. The contract and the order of locks are in part 2; the words of the answers
-- are in part 4. By hand: psql -1 -v ON_ERROR_STOP=1 -c 'SET search_path = agent_queue, pg_temp' -f 0006_adjust.sql

DO $$
BEGIN
    IF current_schema() IS NULL OR current_schema() LIKE 'pg\_%'
       OR current_setting('search_path') !~* '^\s*("([^"]|"")+"|[a-z_][a-z0-9_$]*)\s*,\s*pg_temp\s*$' THEN
        RAISE EXCEPTION 'search_path is %: first SET search_path = agent_queue, pg_temp;', current_setting('search_path');
    END IF;
END $$;

-- Tries before the last requeue_fresh, 0 without one. `attempt` itself is never set back: (task_id, attempt) is the key of the history, of
-- usage, and of whatever workers did outside under that number. "Try n of m" is
--     n = attempt - attempts_before, m = max_attempts - attempts_before.
-- Workers need not know: max_attempts is moved by as much as attempts_before, and they go on comparing it with attempt. The back-off
-- follows attempt, too, and so goes on where it was.
ALTER TABLE tasks ADD COLUMN attempts_before integer NOT NULL DEFAULT 0;

-- The statement that was run, as the client sent it. NULL: not recorded.
ALTER TABLE operator_actions ADD COLUMN sql text;

-- Takes one task away from its owner: back into the queue with back-off ('retry scheduled'), 'failed' when the attempts are used up,
-- 'cancelled' when a cancel was pending. Only called by who holds the task's row lock and has seen under it that the lease has expired.
CREATE FUNCTION _give_back(task_id bigint, at timestamptz) RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    task record;
    lost text;
    answer text;
BEGIN
    SELECT t.attempt, t.max_attempts, t.locked_by, t.cancel_requested_at INTO STRICT task FROM tasks t WHERE t.id = _give_back.task_id;
    lost := 'lease expired, last held by ' || task.locked_by;
    answer := CASE
        WHEN task.cancel_requested_at IS NOT NULL THEN 'cancelled'
        WHEN task.attempt >= task.max_attempts THEN 'failed'
        ELSE 'retry scheduled'
    END;
    PERFORM _end_attempt(task_id, task.attempt, 'lease expired', lost, at);
    IF answer = 'retry scheduled' THEN
        PERFORM _enqueue_again(task_id, at + backoff(task.attempt), at, lost, true);
    ELSE
        PERFORM _finish(task_id, answer, at, lost);
        UPDATE tasks t SET lease_token = t.lease_token + 1 WHERE t.id = _give_back.task_id;
    END IF;
    RETURN answer;
END $$;

-- As in part 4, with what it does to each task now shared with release.
CREATE OR REPLACE FUNCTION reclaim(max integer DEFAULT 100) RETURNS TABLE (id bigint, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := clock_timestamp();
BEGIN
    FOR id IN
        SELECT t.id FROM tasks t
         WHERE t.status = 'processing' AND t.lease_expires_at < at
         ORDER BY t.lease_expires_at LIMIT reclaim.max FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        -- Not `at`: the worker may have started it until its row was locked.
        outcome := _give_back(id, clock_timestamp());
        RETURN NEXT;
    END LOOP;
    PERFORM _free_orphans();
END $$;

--------------------------------------------------------------------------------------------------------------- the operator's calls

-- release, run_now, reprioritize and requeue_fresh: arguments and answers are those of requeue, and these words besides:
--     'is due already'               run_now: nothing keeps it from being claimed but the queue itself
--     'has that priority already'    reprioritize
-- reason is for the caller's operator_actions: none of these keeps it on the task.
--
-- Asked for an action that it does not know, _operate changes nothing, and says what this needs to know. Its answer 'is <status>' means:
-- the task is as it was seen, and its row is locked from here on. All rows are locked, in id order, before the first is judged.
CREATE FUNCTION _adjust(action text, ids bigint[], seen_status text[], seen_token bigint[], value integer)
RETURNS TABLE (id bigint, outcome text, status text, attempt integer)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    at timestamptz;
    task record;
BEGIN
    FOR id, outcome, status, attempt IN
        SELECT o.id, o.outcome, o.status, o.attempt FROM _operate('look', ids, seen_status, seen_token, NULL) AS o
    LOOP
        IF outcome = 'is ' || status THEN
            at := clock_timestamp();
            SELECT t.lease_expires_at, t.run_after, t.priority, t.max_attempts - t.attempts_before AS tries INTO STRICT task
              FROM tasks t WHERE t.id = _adjust.id;

            IF action = 'release' AND status = 'processing' THEN
                IF task.lease_expires_at >= at THEN
                    outcome := 'lease has not expired';
                ELSE
                    PERFORM _give_back(id, at);
                    outcome := 'changed';
                END IF;

            ELSIF action = 'run_now' AND status = 'enqueued' THEN
                IF task.run_after <= at THEN
                    outcome := 'is due already';
                ELSE
                    UPDATE tasks t SET run_after = at, deferred = false WHERE t.id = _adjust.id;
                    outcome := 'changed';
                END IF;

            ELSIF action = 'reprioritize' AND status IN ('enqueued', 'parked') THEN
                IF task.priority = value THEN
                    outcome := 'has that priority already';
                ELSE
                    UPDATE tasks t SET priority = _adjust.value WHERE t.id = _adjust.id;
                    outcome := 'changed';
                END IF;

            ELSIF action = 'requeue_fresh' THEN
                SELECT o.outcome INTO STRICT outcome FROM _operate('requeue', ARRAY[_adjust.id], NULL, NULL, NULL) AS o;
                IF outcome = 'changed' THEN
                    -- As many tries as it was given the last time, those that requeue has added included; no more than fit.
                    UPDATE tasks t
                       SET attempts_before = t.attempt,
                           max_attempts = least(t.attempt + greatest(task.tries, 1)::bigint, 2147483647)
                     WHERE t.id = _adjust.id;
                END IF;
            END IF;

            IF outcome = 'changed' THEN
                SELECT t.status INTO STRICT status FROM tasks t WHERE t.id = _adjust.id;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- Running with an expired lease: taken away as reclaim does it, now. A live lease is refused.
CREATE FUNCTION release(ids bigint[], seen_status text[] DEFAULT NULL, seen_token bigint[] DEFAULT NULL, reason text DEFAULT NULL)
RETURNS TABLE (id bigint, outcome text, status text, attempt integer)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$ SELECT * FROM _adjust('release', $1, $2, $3, NULL) $$;

-- Enqueued for later, or waiting for its next try: due at once. The tries it has are not touched.
CREATE FUNCTION run_now(ids bigint[], seen_status text[] DEFAULT NULL, seen_token bigint[] DEFAULT NULL, reason text DEFAULT NULL)
RETURNS TABLE (id bigint, outcome text, status text, attempt integer)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$ SELECT * FROM _adjust('run_now', $1, $2, $3, NULL) $$;

-- Enqueued or parked: claimed in the order of its new priority, higher first. Without one it is an error.
CREATE FUNCTION reprioritize(
    ids bigint[], seen_status text[] DEFAULT NULL, seen_token bigint[] DEFAULT NULL, reason text DEFAULT NULL, priority integer DEFAULT NULL
) RETURNS TABLE (id bigint, outcome text, status text, attempt integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF priority IS NULL THEN
        RAISE EXCEPTION 'reprioritize needs a priority' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN QUERY SELECT * FROM _adjust('reprioritize', ids, seen_status, seen_token, priority);
END $$;

-- As requeue, and with as many tries again as the task was given: see attempts_before.
CREATE FUNCTION requeue_fresh(ids bigint[], seen_status text[] DEFAULT NULL, seen_token bigint[] DEFAULT NULL, reason text DEFAULT NULL)
RETURNS TABLE (id bigint, outcome text, status text, attempt integer)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$ SELECT * FROM _adjust('requeue_fresh', $1, $2, $3, NULL) $$;

-- For operators only. Where part 5 was left out there is no such role, and its owner alone may call them.
DO $$
DECLARE
    operator text := quote_ident(current_schema() || '_operator');
BEGIN
    REVOKE ALL ON FUNCTION release, run_now, reprioritize, requeue_fresh, _adjust, _give_back FROM PUBLIC;
    IF to_regrole(operator) IS NOT NULL THEN
        EXECUTE format('GRANT EXECUTE ON FUNCTION release, run_now, reprioritize, requeue_fresh TO %s', operator);
        EXECUTE format('GRANT INSERT (sql) ON operator_actions TO %s', operator);
    END IF;
END $$;
