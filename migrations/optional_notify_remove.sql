-- Takes optional_notify.sql back.
DROP TRIGGER IF EXISTS tasks_notify_insert ON tasks;
DROP TRIGGER IF EXISTS tasks_notify_update ON tasks;
DROP FUNCTION IF EXISTS _notify_tasks();
DROP SEQUENCE IF EXISTS notify_gate;
