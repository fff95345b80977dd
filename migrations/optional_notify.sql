-- Optional: announce that tasks have changed, on the channel <schema>_tasks, with an empty payload. A listener then looks at once instead
-- of at its next poll. Polling stays the truth: changes within 100 ms of an announcement are not announced again.
--
-- Said are new tasks, changes of a status, tasks that are made due, and cancels asked of running tasks: a worker that listens while it
-- works calls heartbeat at once, which tells whether the cancel was meant for it, instead of at its next beat.
--
-- Why the gate: a transaction with a NOTIFY holds a lock of the whole cluster through its WAL flush, so ungated triggers serialise all
-- commits (measured: a quarter of the throughput at 8 workers, listeners or not). Transactions that PREPARE cannot NOTIFY and would fail.
-- The time of the last announcement lives in a sequence: shared, never locked, not undone by a rollback. Its distance to now counts,
-- not its order, or a clock set back would shut the gate. A queue of notifications that somebody does not read is not made longer: a full
-- one makes commits fail.
--
-- After an upgrade it may be applied again: it replaces the one that is there.
--
-- By hand: psql -1 -c 'SET search_path = agent_queue, pg_temp' -f optional_notify.sql

DO $$
BEGIN
    IF current_schema() IS NULL OR current_schema() LIKE 'pg\_%'
       OR current_setting('search_path') !~* '^\s*("([^"]|"")+"|[a-z_][a-z0-9_$]*)\s*,\s*pg_temp\s*$' THEN
        RAISE EXCEPTION 'search_path is %: first SET search_path = agent_queue, pg_temp;', current_setting('search_path');
    END IF;
END $$;

CREATE SEQUENCE IF NOT EXISTS notify_gate MINVALUE 0 START 0;

-- pg_sequence_last_value and not a SELECT: this runs twice per task, and a call is a fraction of a query.
CREATE OR REPLACE FUNCTION _notify_tasks() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now_ms bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
BEGIN
    IF abs(now_ms - coalesce(pg_sequence_last_value('notify_gate'), 0)) >= 100 THEN
        PERFORM setval('notify_gate', now_ms);
        IF pg_notification_queue_usage() <= 0.25 THEN
            PERFORM pg_notify(TG_TABLE_SCHEMA || '_tasks', '');
        END IF;
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION _notify_tasks() FROM PUBLIC;

DROP TRIGGER IF EXISTS tasks_notify_insert ON tasks;
DROP TRIGGER IF EXISTS tasks_notify_update ON tasks;
CREATE TRIGGER tasks_notify_insert AFTER INSERT ON tasks FOR EACH STATEMENT EXECUTE FUNCTION _notify_tasks();
-- Not on the columns of a heartbeat or of the claim's own housekeeping.
CREATE TRIGGER tasks_notify_update AFTER UPDATE OF status, run_after, cancel_requested_at ON tasks
    FOR EACH STATEMENT EXECUTE FUNCTION _notify_tasks();
