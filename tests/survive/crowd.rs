//! Ten thousand sessions without ten thousand processes: a table that stands in front of `pg_stat_activity`, with rows
//! as a large server has them at the worst moment.

use crate::common::place::Place;

/// Sessions that are not idle, each with an application of its own.
pub const SESSIONS: u32 = 10_000;
/// Of these, so many wait for one row, each behind those before it.
pub const WAITING: u32 = 2_000;

/// From now on new sessions of this database see the crowd.
pub fn gather(place: &Place) {
    place.sql(&format!(
        "CREATE TABLE crowd AS SELECT * FROM pg_catalog.pg_stat_activity LIMIT 0;
         INSERT INTO crowd (datname, pid, usename, application_name, backend_start, xact_start, query_start, state_change,
                            wait_event_type, wait_event, state, backend_xmin, query, backend_type)
         SELECT current_database(), 100000 + i, 'u' || i % 50, 'application-' || i, now() - interval '1 h', now() - i * interval '10 ms',
                now() - i * interval '10 ms', now() - i * interval '10 ms', CASE WHEN i BETWEEN 1 AND {WAITING} THEN 'Lock' WHEN i > 0 THEN 'IO' END,
                CASE WHEN i BETWEEN 1 AND {WAITING} THEN 'tuple' WHEN i > 0 THEN 'DataFileRead' END,
                CASE i WHEN 0 THEN 'idle in transaction' ELSE 'active' END, '1000', 'UPDATE table_' || i || ' SET x = 1', 'client backend'
           FROM generate_series(0, {SESSIONS} - 1) i;
         CREATE VIEW pg_stat_activity AS SELECT * FROM pg_catalog.pg_stat_activity UNION ALL SELECT * FROM crowd;
         CREATE FUNCTION pg_blocking_pids(pid integer) RETURNS integer[] LANGUAGE sql STABLE AS
           $$ SELECT ARRAY(SELECT generate_series(greatest(100000, $1 - 120), $1 - 1)) $$;
         DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', current_database()); END $$"
    ));
}
