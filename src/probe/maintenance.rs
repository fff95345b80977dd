//! What makes a queue slow from below: snapshots that stop vacuum, dead rows, reads per claim, the
//! notification queue.

use super::{ServerTime, Snapshot};
use crate::connect::{Cells, Fault, Session};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use tokio_postgres::types::Type;

/// Everything here comes from statistics views: it never waits for a lock on a task table.
fn database_sql(version_num: i32) -> String {
    let sessions = if version_num >= 140_000 {
        "d.sessions"
    } else {
        "NULL"
    };
    format!(
        "SELECT {sessions}::int8 AS sessions, d.deadlocks::int8 AS deadlocks, \
                pg_notification_queue_usage()::float8 AS notify_queue, \
                h.kind::text AS kind, h.name::text AS name, h.pid::int8 AS pid, \
                extract(epoch FROM clock_timestamp() - h.since)::float8 AS held_s, h.age::int8 AS age, \
                b.pid::int8 AS blame_pid, b.app::text AS blame_app, b.why::text AS blame_why, \
                extract(epoch FROM clock_timestamp())::float8 AS now \
           FROM pg_stat_database d \
           LEFT JOIN LATERAL ( \
             SELECT * FROM ( \
               SELECT CASE backend_type WHEN 'walsender' THEN 'standby' ELSE 'session' END AS kind, \
                      coalesce(nullif(application_name, ''), usename::text) AS name, pid, xact_start AS since, \
                      greatest(age(backend_xmin), age(backend_xid)) AS age \
                 FROM pg_stat_activity \
                WHERE (datname = d.datname OR backend_type = 'walsender') AND pid <> pg_backend_pid() \
                  AND coalesce(backend_xmin, backend_xid) IS NOT NULL \
               UNION ALL \
               SELECT 'replication slot', slot_name::text, active_pid, NULL, age(xmin) \
                 FROM pg_replication_slots WHERE xmin IS NOT NULL \
               UNION ALL \
               SELECT 'prepared transaction', gid, NULL, prepared, age(transaction) \
                 FROM pg_prepared_xacts WHERE database = d.datname \
             ) x ORDER BY age DESC, since LIMIT 1 \
           ) h ON true \
           LEFT JOIN LATERAL ( \
             SELECT pid, coalesce(nullif(application_name, ''), usename::text) AS app, \
                    CASE WHEN wait_event = 'ClientWrite' THEN 'does not read' ELSE 'idle in transaction' END AS why \
               FROM pg_stat_activity \
              WHERE pid <> pg_backend_pid() AND (state LIKE 'idle in transaction%' \
                 OR (state = 'idle' AND wait_event = 'ClientWrite')) \
              ORDER BY coalesce(xact_start, state_change) LIMIT 1 \
           ) b ON true \
          WHERE d.datname = current_database()"
    )
}

const TABLES: &str = "
SELECT (t.schemaname || '.' || t.relname)::text AS name,
       t.n_live_tup::int8 AS live, t.n_dead_tup::int8 AS dead,
       i.idx_scan::int8 AS scans, i.idx_tup_read::int8 AS reads
  FROM unnest($1::text[], $2::text[]) AS w(relation, claim_index)
  JOIN pg_stat_user_tables t ON t.schemaname || '.' || t.relname = w.relation
  LEFT JOIN pg_stat_user_indexes i ON i.relid = t.relid AND i.indexrelname = w.claim_index";

/// Deltas need the previous figures.
#[derive(Default)]
pub struct Memory {
    logins: VecDeque<(ServerTime, u64)>,
    first_deadlocks: Option<u64>,
    claims: BTreeMap<String, Claims>,
}

#[derive(Default)]
struct Claims {
    seen: VecDeque<(u64, u64)>,
    usual: Option<f64>,
}

/// Readings kept for a rate: about half a minute at one every five seconds.
const READINGS: usize = 6;

/// Scans of a claim index since the server counts, from which on their average tells what is usual.
const LIFETIME: u64 = 20;

/// Vacuum, snapshots and the notification queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Maintenance {
    /// Whoever holds back the oldest row version that vacuum may remove.
    pub xmin_holder: Option<XminHolder>,
    /// The tables that queues live in.
    pub tables: Vec<Table>,
    /// pg_notification_queue_usage(), 0 to 1.
    pub notify_queue: Option<f64>,
    /// Whom to blame when the notification queue fills: pid, application, why.
    pub notify_blame: Option<(i32, String, String)>,
}

/// A session, replication slot, prepared transaction or standby that stops vacuum.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct XminHolder {
    /// `session`, `replication slot`, `prepared transaction` or `standby`.
    pub kind: String,
    /// application_name, slot name or transaction name.
    pub name: String,
    /// Backend pid, for sessions and standbys.
    pub pid: Option<i32>,
    /// How long it has been holding, in seconds, where it can be known.
    pub held_s: Option<f64>,
    /// Transactions since its xmin.
    pub age_xids: i64,
}

impl XminHolder {
    /// A session by its name, or by its pid where it has none; anything else with what it is. Not cleaned.
    pub fn who(&self) -> String {
        let session = self.kind == "session";
        match (self.name.trim(), self.pid) {
            ("", Some(pid)) if session => format!("pid {pid}"),
            ("", Some(pid)) => format!("{} (pid {pid})", self.kind),
            ("", None) => format!("a {}", self.kind),
            (name, _) if session => name.into(),
            (name, _) => format!("{} {name}", self.kind),
        }
    }
}

/// One table of a queue, from the statistics views.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Schema-qualified name.
    pub name: String,
    /// n_live_tup.
    pub live: u64,
    /// n_dead_tup.
    pub dead: u64,
    /// Index entries read per scan of the claim index over the last few refreshes; `None` until it was scanned.
    pub reads_per_claim: Option<f64>,
    /// The smallest since jobtop started: what a vacuumed index costs.
    pub reads_per_claim_usual: Option<f64>,
}

impl Memory {
    /// Snapshot holders, logins, deadlocks, the notification queue. One statement.
    pub async fn read_database(
        &mut self,
        db: &Session,
        snapshot: &mut Snapshot,
    ) -> Result<(), Fault> {
        let rows = db
            .query(&database_sql(snapshot.server.version_num), &[])
            .await?;
        let Some(row) = rows.first() else {
            return Ok(());
        };
        if let (Some(now), Some(sessions)) = (row.time("now")?, row.int("sessions")?) {
            self.logins.push_back((now, sessions.max(0) as u64));
            while self.logins.len() > READINGS {
                self.logins.pop_front();
            }
            snapshot.connections.logins_per_s = self.logins_per_s();
        }
        let deadlocks = row.count("deadlocks")?;
        let first = *self.first_deadlocks.get_or_insert(deadlocks);
        snapshot.connections.deadlocks = Some(deadlocks.saturating_sub(first));
        let m = &mut snapshot.maintenance;
        m.notify_queue = row.float("notify_queue")?;
        m.notify_blame = match (row.int("blame_pid")?, m.notify_queue) {
            (Some(pid), Some(usage)) if usage > 0.0 => {
                Some((pid as i32, row.word("blame_app")?, row.word("blame_why")?))
            }
            _ => None,
        };
        m.xmin_holder = match row.text("kind")? {
            Some(kind) => Some(XminHolder {
                kind,
                name: row.word("name")?,
                pid: row.int("pid")?.map(|p| p as i32),
                held_s: row.float("held_s")?,
                age_xids: row.int("age")?.unwrap_or(0),
            }),
            None => None,
        };
        Ok(())
    }

    /// Forgets what was counted over time by the server's clock.
    pub fn forget(&mut self) {
        self.logins.clear();
    }

    fn logins_per_s(&self) -> Option<f64> {
        let (t0, n0) = self.logins.front()?;
        let (t1, n1) = self.logins.back()?;
        let seconds = t1.since(*t0).filter(|s| *s > 0.5)?;
        Some(n1.saturating_sub(*n0) as f64 / seconds)
    }

    /// Dead rows and reads per claim of the tables given as (schema-qualified name, claim index).
    pub async fn read_tables(
        &mut self,
        db: &Session,
        tables: &[(String, Option<String>)],
        snapshot: &mut Snapshot,
    ) -> Result<(), Fault> {
        if tables.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = tables.iter().map(|t| t.0.as_str()).collect();
        let indexes: Vec<Option<&str>> = tables.iter().map(|t| t.1.as_deref()).collect();
        let rows = db
            .query(
                TABLES,
                &[(&names, Type::TEXT_ARRAY), (&indexes, Type::TEXT_ARRAY)],
            )
            .await?;
        snapshot.maintenance.tables.clear();
        for row in &rows {
            let name = row.word("name")?;
            let claims = self.claims.entry(name.clone()).or_default();
            if let (Some(scans), Some(reads)) = (row.int("scans")?, row.int("reads")?) {
                claims.add(scans.max(0) as u64, reads.max(0) as u64);
            }
            snapshot.maintenance.tables.push(Table {
                live: row.count("live")?,
                dead: row.count("dead")?,
                reads_per_claim: claims.rate(),
                reads_per_claim_usual: claims.usual,
                name,
            });
        }
        Ok(())
    }
}

impl Claims {
    fn add(&mut self, scans: u64, reads: u64) {
        if self
            .seen
            .back()
            .is_some_and(|(s, r)| *s > scans || *r > reads)
        {
            // statistics were reset
            self.seen.clear();
        }
        // Somebody may look for the first time when all is bad already: what the server has counted since it began
        // is better than what it counts now.
        if self.usual.is_none() && scans >= LIFETIME {
            self.usual = Some(reads as f64 / scans as f64);
        }
        self.seen.push_back((scans, reads));
        while self.seen.len() > READINGS {
            self.seen.pop_front();
        }
        self.usual = self.usual.into_iter().chain(self.rate()).reduce(f64::min);
    }

    fn rate(&self) -> Option<f64> {
        let (s0, r0) = self.seen.front()?;
        let (s1, r1) = self.seen.back()?;
        (s1 > s0).then(|| (r1 - r0) as f64 / (s1 - s0) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_per_claim_compares_with_the_smallest_seen() {
        let mut claims = Claims::default();
        claims.add(100, 300);
        assert_eq!(claims.rate(), None);
        claims.add(200, 600);
        assert_eq!((claims.rate(), claims.usual), (Some(3.0), Some(3.0)));
        claims.add(210, 100_600);
        assert_eq!(claims.usual, Some(3.0));
        assert!(claims.rate().expect("a rate") > 900.0);
        claims.add(5, 5);
        assert_eq!(claims.rate(), None, "statistics were reset");
    }

    #[test]
    fn whoever_holds_xmin_has_a_name_or_a_pid() {
        let who = |kind: &str, name: &str, pid| {
            let holder = XminHolder {
                kind: kind.into(),
                name: name.into(),
                pid,
                ..XminHolder::default()
            };
            holder.who()
        };
        assert_eq!(who("session", "report-3", Some(7)), "report-3");
        assert_eq!(who("session", " ", Some(7)), "pid 7");
        assert_eq!(who("standby", "", Some(7)), "standby (pid 7)");
        assert_eq!(who("session", "", None), "a session");
        assert_eq!(who("replication slot", "old", None), "replication slot old");
    }

    #[test]
    fn before_the_first_rate_the_average_since_ever_is_usual() {
        let mut claims = Claims::default();
        claims.add(200, 800);
        assert_eq!((claims.rate(), claims.usual), (None, Some(4.0)));
        claims.add(210, 100_800);
        assert_eq!(claims.usual, Some(4.0));
    }
}
