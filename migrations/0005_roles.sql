-- The reference queue, part 5: who may do what. Three roles without login, to be granted to the roles that people and programs log in with:
--
--     <schema>_worker     may call the functions that enqueue and work; touches no table
--     <schema>_operator   reads everything, may requeue, cancel, park, unpark and reclaim, and append to operator_actions
--     <schema>_monitor    reads everything here and, through pg_monitor, all of pg_stat_activity; writes nothing
--
-- Roles belong to the whole cluster: those that exist already (another database, an earlier run) are taken as they are.

DO $$
DECLARE
    worker text := quote_ident(current_schema() || '_worker');
    operator text := quote_ident(current_schema() || '_operator');
    monitor text := quote_ident(current_schema() || '_monitor');
    role text;
BEGIN
    IF octet_length(current_schema()) > 54 THEN
        RAISE EXCEPTION 'schema name % is too long: its roles would be cut off at 63 bytes', current_schema();
    END IF;
    FOREACH role IN ARRAY ARRAY[worker, operator, monitor] LOOP
        BEGIN
            EXECUTE 'CREATE ROLE ' || role || ' NOLOGIN';
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL;
            WHEN insufficient_privilege THEN
                IF to_regrole(role) IS NULL THEN
                    RAISE EXCEPTION 'may not create roles: let an administrator run CREATE ROLE % NOLOGIN; CREATE ROLE % NOLOGIN; CREATE ROLE % NOLOGIN; and try again',
                        worker, operator, monitor;
                END IF;
        END;
    END LOOP;
    -- From 16 on this takes ADMIN OPTION on pg_monitor, which not everybody who may create roles has. Everything else works without.
    BEGIN
        EXECUTE format('GRANT pg_monitor TO %s', monitor);
    EXCEPTION WHEN insufficient_privilege THEN
        RAISE WARNING 'sessions of other roles stay hidden from the monitor: let an administrator run GRANT pg_monitor TO %', monitor;
    END;
    -- An operator sees what a monitor sees.
    IF NOT pg_has_role(to_regrole(operator), to_regrole(monitor), 'MEMBER') THEN
        BEGIN
            EXECUTE format('GRANT %s TO %s', monitor, operator);
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE WARNING 'operators cannot read the queue: let an administrator run GRANT % TO %', monitor, operator;
        END;
    END IF;

    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %s, %s, %s', current_schema(), worker, operator, monitor);
    EXECUTE format('GRANT SELECT ON tasks, task_attempts, usage, limits, slots, token_reservations, operator_actions TO %s', monitor);

    -- The ledger of `jobtop migrate`, where that was used.
    IF to_regclass(format('%I.migrations', current_schema())) IS NOT NULL THEN
        EXECUTE format('GRANT SELECT ON migrations TO %s', monitor);
    END IF;

    -- Every function that is not granted below is for the others to call.
    REVOKE ALL ON FUNCTION enqueue, enqueue_many, claim, started, heartbeat, complete, fail, cancelled, report_usage, reclaim,
        requeue, cancel, park, unpark, backoff, _gate, _limits_changed, _free_orphans, _why_not, _end_attempt, _enqueue_again, _finish, _operate
        FROM PUBLIC;
    EXECUTE format('GRANT EXECUTE ON FUNCTION enqueue, enqueue_many, claim, started, heartbeat, complete, fail, cancelled, report_usage, reclaim TO %s', worker);
    EXECUTE format('GRANT EXECUTE ON FUNCTION requeue, cancel, park, unpark, reclaim TO %s', operator);
    EXECUTE format('GRANT INSERT (action_id, who, from_host, action, ids, asked, changed, skipped, outcomes, reason) ON operator_actions TO %s', operator);
END $$;
