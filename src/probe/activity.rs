//! Sessions: who is connected, in what state, waiting for what, behind whom. Reads `pg_stat_activity` only, so
//! it works while every task table is locked.

use super::replay::{self, Replay};
use super::slots::{Application, most};
use super::{ServerTime, Snapshot};
use crate::config::BudgetRule;
use crate::connect::{Cells, Fault, Session as Db};
use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tokio_postgres::Row;

/// Idle sessions and those of other databases are grouped: the server copies its whole backend array in any
/// case, but hundreds of idle rows need not travel. Of a statement only the command and the name behind it
/// leave the server, never its values.
const SESSIONS: &str = r#"
       CASE WHEN grouped THEN NULL ELSE max(pid) END::int8 AS pid,
       count(*)::int8 AS n,
       app::text AS app, role::text AS role, db::text AS db, client::text AS client,
       state::text AS state, wait_type::text AS wait_type, wait_event::text AS wait_event,
       extract(epoch FROM min(backend_start))::float8 AS backend_start,
       extract(epoch FROM min(xact_start))::float8 AS xact_start,
       extract(epoch FROM min(query_start))::float8 AS query_start,
       extract(epoch FROM min(state_change))::float8 AS state_change,
       max(xmin_age)::int8 AS xmin_age,
       max(blockers)::text AS blockers,
       max(verb)::text AS verb,
       bool_or(own) AS own, bool_or(here) AS here, bool_or(hidden) AS hidden,
       extract(epoch FROM pg_postmaster_start_time())::float8 AS started_at,
       extract(epoch FROM clock_timestamp())::float8 AS now
FROM (
  SELECT a.pid, a.backend_start, a.xact_start, a.query_start, a.state_change,
         coalesce(a.application_name, '') AS app, coalesce(a.usename, '') AS role,
         coalesce(a.datname, '') AS db, host(a.client_addr) AS client, a.state,
         CASE WHEN here AND coalesce(a.state, '') <> 'idle' OR a.wait_event = 'ClientWrite' THEN a.wait_event_type END AS wait_type,
         CASE WHEN here AND coalesce(a.state, '') <> 'idle' OR a.wait_event = 'ClientWrite' THEN a.wait_event END AS wait_event,
         greatest(age(a.backend_xmin), age(a.backend_xid)) AS xmin_age,
         CASE WHEN here AND a.wait_event_type = 'Lock' THEN (pg_blocking_pids(a.pid))[:100]::text END AS blockers,
         CASE WHEN here AND a.state <> 'idle' THEN
           substring(left(a.query, 300) from '(?i)^\s*((?:select\s+\*\s+from|insert\s+into|delete\s+from|update|(?:lock|truncate)(?:\s+table)?(?:\s+only)?|(?:alter|drop|create)\s+table|create\s+(?:unique\s+)?index(?:\s+concurrently)?|vacuum|analyze|copy)\s+[a-z_"][\w."]*|select\s+[a-z_"][\w."]*(?=\s*\()|[a-z]+)')
         END AS verb,
         a.pid = pg_backend_pid() AS own, here,
         a.state IS NULL AND a.backend_type IS NULL AS hidden,
         NOT here OR a.state = 'idle' OR a.state IS NULL AS grouped
    FROM (SELECT *, datname = current_database() AS here FROM pg_stat_activity) a
   WHERE a.backend_type = 'client backend' OR (a.backend_type IS NULL AND a.datname IS NOT NULL)
) s
GROUP BY grouped, CASE WHEN grouped THEN NULL ELSE pid END, app, role, db, client, state, wait_type, wait_event
"#;

/// What ungranted locks are on. `waitstart` exists since 14.
fn locks_sql(version_num: i32) -> String {
    let waitstart = if version_num >= 140_000 {
        "extract(epoch FROM l.waitstart)::float8"
    } else {
        "NULL::float8"
    };
    format!(
        "SELECT l.pid::int8 AS pid, l.locktype::text AS locktype, l.mode::text AS mode,                 {waitstart} AS waitstart, (n.nspname || '.' || c.relname)::text AS relation            FROM pg_locks l \
           LEFT JOIN pg_class c ON c.oid = l.relation \
             AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
           LEFT JOIN pg_namespace n ON n.oid = c.relnamespace \
          WHERE NOT l.granted"
    )
}

/// Connection occupancy. `used`, `hidden` and budgets are cluster-wide, `states` are this database's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connections {
    /// `max_connections`.
    pub max: u32,
    /// Slots no ordinary role gets: superuser_reserved_connections + reserved_connections (16+).
    pub reserved: u32,
    /// Client backends of the whole cluster.
    pub used: u32,
    /// Sessions whose state we may not see.
    pub hidden: u32,
    /// Client sessions of this database by state.
    pub states: BTreeMap<String, u32>,
    /// Used against limit, in configured order; the last one is `unbudgeted`, without limit.
    pub budgets: Vec<Budget>,
    /// Age of the oldest open transaction of this database, in seconds.
    pub oldest_transaction_s: Option<f64>,
    /// New sessions a second in this database (14+), over the last few refreshes.
    pub logins_per_s: Option<f64>,
    /// Deadlocks since we connected.
    pub deadlocks: Option<u64>,
    /// The applications with the most sessions, cluster-wide, five at most.
    #[serde(default)]
    pub applications: Vec<Application>,
}

/// A named share of `max_connections`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// From the configuration.
    pub name: String,
    /// Sessions it may hold; `None` for the rest that no budget names.
    pub limit: Option<u32>,
    /// Sessions it holds, cluster-wide.
    pub used: u32,
    /// Of those in this database: running a statement.
    pub active: u32,
    /// Idle.
    pub idle: u32,
    /// Idle in transaction, aborted or not.
    pub idle_in_transaction: u32,
    /// Oldest open transaction, in seconds.
    pub oldest_transaction_s: Option<f64>,
}

/// Active sessions that wait for the same thing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// `Lock`, `IO`, `LWLock`, …; `CPU` where an active session waits for nothing.
    #[serde(rename = "type")]
    pub kind: String,
    /// `transactionid`, `WALWrite`, …; empty for CPU.
    pub event: String,
    /// How many.
    pub sessions: u32,
}

/// A session that waits for a lock, and whom for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Blocked {
    /// Who waits.
    pub pid: i32,
    /// pg_blocking_pids: holders, and those ahead in the queue; a hundred at most.
    pub blocked_by: Vec<i32>,
    /// For how long, in seconds.
    pub waiting_s: f64,
    /// `relation`, `transactionid`, `tuple`, …
    pub lock_type: String,
    /// The relation waited for, schema-qualified, where the lock is on one.
    pub relation: Option<String>,
    /// `AccessExclusiveLock`, …
    pub mode: Option<String>,
}

/// One client session; `pid` is `None` for a group of idle ones alike in role, application and client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Backend pid.
    pub pid: Option<i32>,
    /// When the backend started: with the pid it names the session (a pid is reused).
    pub backend_start: Option<ServerTime>,
    /// How many sessions this row stands for (1 unless idle).
    pub count: u32,
    /// application_name.
    pub application: CompactString,
    /// Role.
    pub user: CompactString,
    /// Database.
    pub database: CompactString,
    /// Client address; `None` on a socket.
    pub client: Option<CompactString>,
    /// `active`, `idle`, `idle in transaction`, …; `None` where privileges hide it.
    pub state: Option<CompactString>,
    /// wait_event_type.
    pub wait_type: Option<CompactString>,
    /// wait_event.
    pub wait_event: Option<CompactString>,
    /// Age of the transaction, in seconds.
    pub xact_s: Option<f64>,
    /// Age of the running statement, in seconds.
    pub query_s: Option<f64>,
    /// Time in the present state, in seconds.
    pub state_s: Option<f64>,
    /// Holds a snapshot or transaction id that vacuum must respect; its age in transactions.
    pub xmin_age: Option<i64>,
    /// Name of the budget it counts against.
    pub budget: CompactString,
    /// Live tasks whose rows its open transaction has locked or changed ("at least").
    pub task_rows: u32,
    /// First words of the statement (`UPDATE tasks`), never its values.
    pub verb: Option<CompactString>,
    /// This is jobtop's own session.
    pub own: bool,
}

impl Session {
    /// Idle in transaction, aborted or not.
    pub fn idle_in_transaction(&self) -> bool {
        self.state
            .as_deref()
            .is_some_and(|s| s.starts_with("idle in transaction"))
    }
}

/// The activity half of a snapshot, and what it was computed at.
pub struct Activity {
    /// The server's clock.
    pub now: ServerTime,
    /// What it replays, and from whom.
    pub replay: Replay,
    /// When the postmaster started: a pooler keeps our session while the server behind it is restarted, or replaced.
    pub started_at: Option<ServerTime>,
    connections: Connections,
    waits: Vec<Wait>,
    blocked: Vec<Blocked>,
    /// Those of this database. They may be thousands, so they are handed on, not copied.
    sessions: Vec<Session>,
}

/// One row, and what only the sum of all needs.
struct Seen {
    session: Session,
    here: bool,
    hidden: bool,
    blocked: Option<Blocked>,
}

/// What is known so far of a list of sessions.
struct Sum<'a> {
    budgets: &'a [BudgetRule],
    now: Option<ServerTime>,
    replay: Replay,
    started_at: Option<ServerTime>,
    connections: Connections,
    applications: BTreeMap<String, u32>,
    waits: BTreeMap<(CompactString, CompactString), u32>,
    blocked: Vec<Blocked>,
    sessions: Vec<Session>,
}

impl Activity {
    /// One statement, and a second one only while somebody waits for a lock.
    pub async fn read(db: &Db, version_num: i32, budgets: &[BudgetRule]) -> Result<Self, Fault> {
        let mut sum = Sum::new(budgets);
        let sessions = format!("SELECT {},{SESSIONS}", replay::COLUMNS);
        db.each(&sessions, &[], |row| sum.add(&row)).await?;
        let now = sum.now;
        let now = now.ok_or_else(|| Fault::own("pg_stat_activity returned nothing"))?;
        let blocked = &mut sum.blocked;
        if !blocked.is_empty() {
            let at: BTreeMap<i32, usize> = blocked
                .iter()
                .enumerate()
                .map(|(n, b)| (b.pid, n))
                .collect();
            db.each(&locks_sql(version_num), &[], |row| {
                let pid = row.int("pid")?.unwrap_or(0) as i32;
                let Some(b) = at.get(&pid).map(|n| &mut blocked[*n]) else {
                    return Ok(());
                };
                b.lock_type = row.word("locktype")?;
                b.relation = row.text("relation")?;
                b.mode = row.text("mode")?;
                if let Some(waiting) = since(now, row.time("waitstart")?) {
                    b.waiting_s = waiting;
                }
                Ok(())
            })
            .await?;
        }
        Ok(sum.whole(now))
    }

    /// Writes the activity half of a snapshot. `max`, `reserved` and what is counted by the database stay as other probes
    /// set them; the sessions stay where they were handed out already.
    pub fn fill(&mut self, snapshot: &mut Snapshot) {
        let connections = &mut snapshot.connections;
        let own = &self.connections;
        connections.used = own.used;
        connections.hidden = own.hidden;
        connections.states.clone_from(&own.states);
        connections.oldest_transaction_s = own.oldest_transaction_s;
        connections.budgets.clone_from(&own.budgets);
        connections.applications.clone_from(&own.applications);
        if !self.sessions.is_empty() {
            snapshot.sessions = std::mem::take(&mut self.sessions);
        }
        snapshot.waits.clone_from(&self.waits);
        snapshot.blocked.clone_from(&self.blocked);
        self.replay.fill(&mut snapshot.server);
        snapshot.taken_at = Some(self.now);
    }
}

impl<'a> Sum<'a> {
    fn new(budgets: &'a [BudgetRule]) -> Self {
        let mut shares: Vec<Budget> = budgets
            .iter()
            .map(|b| Budget {
                name: b.name.clone(),
                limit: Some(b.limit),
                ..Budget::default()
            })
            .collect();
        shares.push(Budget {
            name: UNBUDGETED.into(),
            ..Budget::default()
        });
        Self {
            budgets,
            now: None,
            replay: Replay::default(),
            started_at: None,
            connections: Connections {
                budgets: shares,
                ..Connections::default()
            },
            applications: BTreeMap::new(),
            waits: BTreeMap::new(),
            blocked: Vec::new(),
            sessions: Vec::new(),
        }
    }

    fn add(&mut self, row: &Row) -> Result<(), Fault> {
        let now = match self.now {
            Some(now) => now,
            None => {
                self.replay = Replay::decode(row)?;
                self.started_at = row.time("started_at")?;
                let now = row.time("now")?;
                now.ok_or_else(|| Fault::own("the server did not tell the time"))?
            }
        };
        self.now = Some(now);
        let Seen {
            mut session,
            here,
            hidden,
            blocked,
        } = Seen::decode(row, now)?;
        self.blocked.extend(blocked);
        let connections = &mut self.connections;
        connections.used += session.count;
        connections.hidden += if hidden { session.count } else { 0 };
        count(&mut self.applications, &session.application, session.count);
        let mut rules = self.budgets.iter();
        let share = rules.position(|b| b.matches(&session.application, &session.user));
        let share = &mut connections.budgets[share.unwrap_or(self.budgets.len())];
        share.used += session.count;
        if !here {
            return Ok(());
        }
        share.add(&session);
        session.budget = (&share.name).into();
        let state = session.state.as_deref().unwrap_or("hidden");
        count(&mut connections.states, state, session.count);
        if !session.own {
            connections.oldest_transaction_s =
                larger(connections.oldest_transaction_s, session.xact_s);
            if session.state.as_deref() == Some("active") {
                let kind = session.wait_type.clone().unwrap_or_else(|| "CPU".into());
                let event = session.wait_event.clone().unwrap_or_default();
                *self.waits.entry((kind, event)).or_default() += session.count;
            }
        }
        self.sessions.push(session);
        Ok(())
    }

    fn whole(mut self, now: ServerTime) -> Activity {
        self.connections.applications = most(self.applications);
        self.blocked
            .sort_by(|a, b| b.waiting_s.total_cmp(&a.waiting_s));
        self.sessions.sort_by(|a, b| {
            let rank = |s: &Session| (s.pid.is_none(), !s.idle_in_transaction());
            let age = |s: &Session| s.xact_s.unwrap_or(-1.0);
            rank(a)
                .cmp(&rank(b))
                .then(age(b).total_cmp(&age(a)))
                .then(a.pid.cmp(&b.pid))
                .then(a.application.cmp(&b.application))
        });
        self.sessions.shrink_to_fit();
        let waits = self.waits.into_iter();
        let mut waits: Vec<Wait> = waits
            .map(|((kind, event), sessions)| Wait {
                kind: kind.into(),
                event: event.into(),
                sessions,
            })
            .collect();
        waits.sort_by(|a, b| b.sessions.cmp(&a.sessions).then(a.kind.cmp(&b.kind)));
        Activity {
            now,
            replay: self.replay,
            started_at: self.started_at,
            connections: self.connections,
            waits,
            blocked: self.blocked,
            sessions: self.sessions,
        }
    }
}

/// A name is copied when it is new.
fn count(counts: &mut BTreeMap<String, u32>, name: &str, more: u32) {
    match counts.get_mut(name) {
        Some(n) => *n += more,
        None => {
            counts.insert(name.to_string(), more);
        }
    }
}

/// The budget of sessions that no rule names.
pub const UNBUDGETED: &str = "unbudgeted";

impl Budget {
    fn add(&mut self, session: &Session) {
        match session.state.as_deref() {
            Some("idle") => self.idle += session.count,
            Some(s) if s.starts_with("idle in transaction") => {
                self.idle_in_transaction += session.count;
            }
            Some(_) => self.active += session.count,
            None => {}
        }
        if !session.own {
            self.oldest_transaction_s = larger(self.oldest_transaction_s, session.xact_s);
        }
    }
}

impl Seen {
    fn decode(row: &Row, now: ServerTime) -> Result<Self, Fault> {
        let pid = row.int("pid")?.map(|p| p as i32);
        let alone = pid.is_some();
        let age = |column: &str| Ok::<_, Fault>(since(now, row.time(column)?).filter(|_| alone));
        let blockers = pids(&row.word("blockers")?);
        let wait_event = row.text("wait_event")?.map(CompactString::from);
        let blocked = match blockers.is_empty() {
            true => None,
            false => Some(Blocked {
                pid: pid.unwrap_or(0),
                blocked_by: blockers,
                waiting_s: since(now, row.time("query_start")?).unwrap_or(0.0),
                lock_type: wait_event.as_deref().unwrap_or_default().into(),
                ..Blocked::default()
            }),
        };
        Ok(Self {
            here: row.flag("here")?.unwrap_or(false),
            hidden: row.flag("hidden")?.unwrap_or(false),
            blocked,
            session: Session {
                pid,
                backend_start: row.time("backend_start")?.filter(|_| alone),
                count: row.count("n")? as u32,
                application: row.word("app")?.into(),
                user: row.word("role")?.into(),
                database: row.word("db")?.into(),
                client: row.text("client")?.map(CompactString::from),
                state: row.text("state")?.map(CompactString::from),
                wait_type: row.text("wait_type")?.map(CompactString::from),
                wait_event,
                xact_s: age("xact_start")?,
                query_s: age("query_start")?,
                state_s: since(now, row.time("state_change")?),
                xmin_age: row.int("xmin_age")?,
                budget: CompactString::default(),
                task_rows: 0,
                verb: row.text("verb")?.map(CompactString::from),
                own: row.flag("own")?.unwrap_or(false),
            },
        })
    }
}

/// The pids of an array as text.
pub(super) fn pids(array: &str) -> Vec<i32> {
    let each = array.trim_matches(['{', '}']).split(',');
    each.filter_map(|p| p.parse().ok()).collect()
}

fn since(now: ServerTime, then: Option<ServerTime>) -> Option<f64> {
    now.since(then?).map(|age| age.max(0.0))
}

fn larger(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}
