-- Takes optional_notify.sql back. By hand: psql -1 -c 'SET search_path = agent_queue, pg_temp' -f optional_notify_remove.sql
DROP TRIGGER IF EXISTS tasks_notify_insert ON tasks;
DROP TRIGGER IF EXISTS tasks_notify_update ON tasks;
DROP FUNCTION IF EXISTS _notify_tasks();
DROP SEQUENCE IF EXISTS notify_gate;
