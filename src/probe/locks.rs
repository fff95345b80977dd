//! Who has a table of a queue for himself, or waits to: until that session ends nobody else may touch the table, not even
//! to read. Asked only while our own statements wait in vain for such a table; reads `pg_locks`, which never waits for it.

use super::activity::pids;
use crate::connect::{Cells, Fault, Session};
use crate::queue::Instance;
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// SQLSTATE of a statement that waited for a lock in vain.
pub const LOCKED: &str = "55P03";

/// Is that what a probe tells of its last failure?
pub fn failed_for_one(error: &str) -> bool {
    error.contains(&format!("({LOCKED})"))
}

/// The lock may be on a partition or on an index of the table: whoever reads the table needs those, too. Of several that
/// want the table, the one that has it or came first. Application and role of a session are shown to every role.
/// `waitstart` exists since 14.
fn locks_sql(version_num: i32) -> String {
    let waitstart = if version_num >= 140_000 {
        "l.waitstart"
    } else {
        "NULL::timestamptz"
    };
    format!(
        "WITH l AS MATERIALIZED ( \
           SELECT l.relation, l.pid, l.mode, l.granted, l.virtualtransaction, {waitstart} AS waitstart FROM pg_locks l \
            WHERE l.locktype = 'relation' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
         ), wanted AS MATERIALIZED ( \
           SELECT l.*, (n.nspname || '.' || c.relname)::text AS name FROM l \
             LEFT JOIN pg_index i ON i.indexrelid = l.relation \
            CROSS JOIN LATERAL (SELECT coalesce(i.indrelid, l.relation) AS base) b \
             JOIN pg_class c ON c.oid = coalesce(pg_partition_root(b.base::regclass)::oid, b.base) \
             JOIN pg_namespace n ON n.oid = c.relnamespace \
            WHERE l.mode = 'AccessExclusiveLock' AND n.nspname || '.' || c.relname = ANY ($1::text[]) \
         ), first AS ( \
           SELECT DISTINCT ON (name) * FROM wanted ORDER BY name, granted DESC, waitstart \
         ) \
         SELECT f.name, f.pid::int8 AS pid, f.granted, \
                extract(epoch FROM clock_timestamp() - f.waitstart)::float8 AS waiting_s, h.pids::text AS blockers, \
                (SELECT count(DISTINCT o.pid) FROM l o WHERE NOT o.granted AND o.pid IS DISTINCT FROM f.pid \
                    AND o.relation IN (SELECT w.relation FROM wanted w WHERE w.name = f.name))::int8 AS waiters, \
                who.pid::int8 AS blame_pid, who.app::text AS app, who.role::text AS role, p.gid::text AS gid \
           FROM first f \
          CROSS JOIN LATERAL (SELECT CASE WHEN f.granted THEN ARRAY[coalesce(f.pid, 0)] \
                                          ELSE (pg_blocking_pids(f.pid))[:100] END AS pids) h \
           LEFT JOIN LATERAL (SELECT a.pid, a.application_name AS app, a.usename AS role FROM pg_stat_activity a \
                               WHERE a.pid = ANY (h.pids) ORDER BY a.xact_start, a.pid LIMIT 1) who ON true \
           LEFT JOIN LATERAL (SELECT p.gid FROM pg_prepared_xacts p \
                                JOIN pg_locks x ON x.transactionid = p.transaction AND x.locktype = 'transactionid' AND x.pid IS NULL \
                                JOIN l o ON o.virtualtransaction = x.virtualtransaction AND o.pid IS NULL AND o.granted \
                               WHERE 0 = ANY (h.pids) AND o.relation IN (SELECT w.relation FROM wanted w WHERE w.name = f.name) \
                               LIMIT 1) p ON true"
    )
}

/// A table of a queue, locked in ACCESS EXCLUSIVE mode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exclusive {
    /// The table, schema-qualified.
    pub relation: String,
    /// Who has it, or waits for it; 0 for a prepared transaction.
    pub pid: i32,
    /// It has it; else it waits, and everybody who comes later waits behind it.
    pub granted: bool,
    /// How long it has waited, in seconds (14+).
    pub waiting_s: Option<f64>,
    /// pg_blocking_pids of the one that waits, a hundred at most.
    pub blocked_by: Vec<i32>,
    /// Sessions that wait for the table besides.
    pub waiters: u32,
    /// Who is in the way: the one that has it, or the oldest of those that the one who waits is behind.
    pub blame: Blame,
}

/// A session or prepared transaction in the way, as far as every role may see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Blame {
    /// Backend pid; 0 for a prepared transaction.
    pub pid: i32,
    /// application_name; empty where it has none.
    pub application: String,
    /// Role; empty where it has none.
    pub user: String,
    /// Name of the prepared transaction.
    pub prepared: Option<String>,
}

/// The tables of the systems, which statements may wait for in vain.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Schema-qualified.
    names: Vec<String>,
    version_num: i32,
}

impl Tables {
    /// All tables of these systems, on a server of this version (`150018`).
    pub fn of<'a>(systems: impl Iterator<Item = &'a Instance>, version_num: i32) -> Self {
        let tables = systems.flat_map(Instance::tables);
        Self {
            names: tables.map(|(name, _)| name).collect(),
            version_num,
        }
    }

    /// The locks on them. One statement.
    ///
    /// # Errors
    /// The server's, where they cannot be read.
    pub async fn locks(&self, db: &Session) -> Result<Vec<Exclusive>, Fault> {
        let sql = locks_sql(self.version_num);
        let rows = db.query(&sql, &[(&self.names, Type::TEXT_ARRAY)]).await?;
        rows.iter().map(Exclusive::of).collect()
    }

    /// A fault; one for a lock with who holds it, asked on a session that is in no transaction.
    pub async fn named(&self, db: &Session, fault: Fault) -> Fault {
        if !fault.is(LOCKED) || fault.closed {
            return fault;
        }
        let found = self.locks(db).await;
        match why(&found.unwrap_or_default()) {
            Some(who) => Fault {
                message: format!("{who}: {}", fault.message),
                ..fault
            },
            None => fault,
        }
    }
}

impl Exclusive {
    fn of(row: &Row) -> Result<Self, Fault> {
        let granted = row.flag("granted")?.unwrap_or(false);
        let ahead = pids(&row.word("blockers")?);
        let first = ahead.first().copied().unwrap_or(0);
        Ok(Self {
            relation: row.word("name")?,
            pid: row.int("pid")?.unwrap_or(0) as i32,
            granted,
            waiting_s: row.float("waiting_s")?.map(|s| s.max(0.0)),
            blame: Blame {
                pid: row.int("blame_pid")?.map_or(first, |p| p as i32),
                application: row.word("app")?,
                user: row.word("role")?,
                prepared: row.text("gid")?,
            },
            blocked_by: if granted { Vec::new() } else { ahead },
            waiters: row.count("waiters")? as u32,
        })
    }

    /// `pid 4711 (psql) holds agent_queue.tasks`. Not cleaned.
    fn told(&self) -> String {
        let (blame, table) = (self.blame.who(), &self.relation);
        match self.granted {
            true => format!("{blame} holds {table}"),
            false => format!("pid {} waits for {table} behind {blame}", self.pid),
        }
    }
}

impl Blame {
    /// `pid 4711 (psql)`. Not cleaned.
    fn who(&self) -> String {
        match (self.pid, &self.prepared, self.application.trim()) {
            (0, Some(gid), _) => format!("prepared transaction {gid}"),
            (0, None, _) => "a prepared transaction".into(),
            (pid, _, "") => format!("pid {pid}"),
            (pid, _, application) => format!("pid {pid} ({application})"),
        }
    }
}

/// Why statements wait in vain for tables of a queue: who is in the way, of which table; `None` where nobody is known to be.
pub fn why(locks: &[Exclusive]) -> Option<String> {
    let told: Vec<String> = locks.iter().take(3).map(Exclusive::told).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_in_the_way_is_named_with_the_table() {
        let lock = |pid, application: &str, granted| Exclusive {
            relation: "agent_queue.tasks".into(),
            pid: 9,
            granted,
            blame: Blame {
                pid,
                application: application.into(),
                ..Blame::default()
            },
            ..Exclusive::default()
        };
        assert_eq!(why(&[]), None);
        let one = why(&[lock(7, "psql", true)]);
        assert_eq!(one.as_deref(), Some("pid 7 (psql) holds agent_queue.tasks"));
        let two = why(&[lock(7, " ", false), lock(0, "", true)]);
        assert_eq!(
            two.as_deref(),
            Some(
                "pid 9 waits for agent_queue.tasks behind pid 7, a prepared transaction holds agent_queue.tasks"
            )
        );
        let mut named = lock(0, "", true);
        named.blame.prepared = Some("two-phase-1".into());
        let named = why(&[named]).expect("one");
        assert!(named.starts_with("prepared transaction two-phase-1 holds"));
    }
}
