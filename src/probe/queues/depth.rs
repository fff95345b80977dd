//! The statement behind a queue's depth, and its decoding. Every queue and every source of live tasks is counted up to
//! a bound of its own, so that one huge queue neither costs more than that nor hides the others.

use crate::connect::{Cells, Fault, Session};
use crate::probe::{Bound, Count, ServerTime, State};
use crate::queue::columns::Cast;
use crate::queue::instance::{HELD, Instance};
use crate::queue::profile::Live;
use crate::queue::statement::{Value, run};
use crate::queue::{Branch, columns::TASK};
use std::collections::{BTreeMap, BTreeSet};

/// Counting stops here: "10,001+".
pub const BOUND: i64 = 10_001;
/// Rows in claim order whose locks are looked at, over all queues.
const HEADS: usize = 300;
/// Tables or queues read in one statement.
pub const BRANCHES: usize = 32;

/// A live task whose row an open transaction has locked or changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Locked {
    /// Queue.
    pub queue: String,
    /// Task.
    pub task: String,
    /// Its state.
    pub state: State,
    /// Who.
    pub pid: i32,
    /// Since when it has been due.
    pub eligible: Option<f64>,
}

/// What one queue holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct One {
    /// Live tasks by neutral state.
    pub states: BTreeMap<State, Count>,
    /// Native names of those in `Other`.
    pub natives: BTreeMap<String, u64>,
    /// Tasks that may run at once.
    pub limit: Option<u32>,
    /// Nobody claims on purpose.
    pub paused: bool,
    /// When the oldest unlocked ready task became due.
    pub oldest: Option<ServerTime>,
    /// Retryable tasks whose time has come.
    pub overdue: u64,
    /// Row locks seen.
    pub locked: Vec<Locked>,
    /// Ready tasks by kind.
    pub kinds: BTreeMap<String, OneKind>,
    /// When the oldest unlocked one of the first ready tasks became due, where some are locked.
    free: Option<ServerTime>,
}

/// What one kind of a queue holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OneKind {
    /// Ready.
    pub ready: u64,
    /// When the oldest ready one became due.
    pub oldest: Option<ServerTime>,
}

/// The depth of every queue of one instance, kept between polls.
#[derive(Clone, Debug, Default)]
pub struct Depth {
    /// By queue.
    pub queues: BTreeMap<String, One>,
    cursor: usize,
}

const CELLS: &[(&str, &str)] = &[
    ("part", "text"),
    ("queue", "text"),
    ("state", "text"),
    ("native", "text"),
    ("kind", "text"),
    ("n", "int8"),
    ("due", "int8"),
    ("read", "int8"),
    ("oldest", "float8"),
    ("locks", "text"),
    ("lim", "int8"),
    ("paused", "bool"),
];

/// All parts of the statement have the same columns; those not given are NULL.
fn cells(given: &[(&str, &str)]) -> String {
    let cell = |(name, kind): &(&str, &str)| {
        let expr = given
            .iter()
            .find(|(n, _)| n == name)
            .map_or("NULL", |(_, e)| e);
        format!("({expr})::{kind} AS {name}")
    };
    CELLS.iter().map(cell).collect::<Vec<_>>().join(", ")
}

fn col(instance: &Instance, live: &Live, name: &str, branch: &Branch) -> Result<String, Fault> {
    let cast = TASK
        .iter()
        .find(|(n, _)| *n == name)
        .map_or(Cast::Text(200), |(_, c)| *c);
    instance.column(&live.row, name, cast, true, branch)
}

/// Counts of one source within each queue, by state, native name and (of ready tasks) kind. Asks for no more columns
/// than it needs, so that an index can answer alone.
fn counts(instance: &Instance, live: &Live, q: &str, branch: &Branch) -> Result<String, Fault> {
    let c = |name: &str| col(instance, live, name, branch);
    // thousands of rows: a time is turned into a number once they are summed up
    let own = live
        .row
        .get("eligible_at")
        .or_else(|| instance.profile.row.get("eligible_at"));
    let eligible = match own.filter(|_| live.holds(State::Ready) || live.holds(State::Retryable)) {
        Some(sql) => format!("({})::timestamptz", instance.fill(sql.get_ref(), branch)?),
        None => "NULL::timestamptz".into(),
    };
    let queue = match instance.profile.queues {
        Some(_) => "NULL::text".to_string(),
        None => c("queue")?,
    };
    let kind = match live.holds(State::Ready) && live.kinds {
        true => c("kind")?,
        false => "NULL::text".into(),
    };
    let shown = cells(&[
        ("part", "'count'"),
        ("queue", "coalesce(q.queue::text, g.queue)"),
        ("state", "g.state"),
        ("native", "g.native"),
        ("kind", "g.kind"),
        ("n", "g.n"),
        ("due", "g.due"),
        ("read", "g.read"),
        ("oldest", "g.oldest"),
    ]);
    Ok(format!(
        "SELECT {shown} FROM {q} CROSS JOIN LATERAL (SELECT x.queue, x.state, x.native, x.kind, count(*) AS n, \
           count(*) FILTER (WHERE x.eligible <= now()) AS due, sum(count(*)) OVER () AS read, \
           extract(epoch FROM min(x.eligible) FILTER (WHERE x.eligible > '-infinity')) AS oldest \
         FROM (SELECT {queue} AS queue, {} AS state, {} AS native, {kind} AS kind, {eligible} AS eligible {} LIMIT :bound) x \
         GROUP BY 1, 2, 3, 4) g",
        c("state")?,
        c("native_state")?,
        instance.live_from(live, true, branch)?,
    ))
}

fn heads(
    instance: &Instance,
    live: &Live,
    lock: &str,
    q: &str,
    branch: &Branch,
) -> Result<String, Fault> {
    let c = |name: &str| col(instance, live, name, branch);
    let select = format!(
        "SELECT {} AS queue, {} AS state, {} AS id, {} AS eligible, {lock}.xmax AS x {}{} LIMIT :head",
        c("queue")?,
        c("state")?,
        c("id")?,
        c("eligible_at")?,
        instance.live_from(live, !live.spans, branch)?,
        instance.order(&live.order, branch)?,
    );
    let from = match live.spans {
        true => format!("(SELECT NULL::text AS queue) q CROSS JOIN ({select}) h"),
        false => format!("{q} CROSS JOIN LATERAL ({select}) h"),
    };
    let shown = cells(&[
        ("part", "'lock'"),
        ("queue", "y.queue"),
        ("state", "y.state"),
        ("oldest", "y.free"),
        ("locks", "y.locks"),
    ]);
    Ok(format!(
        "SELECT {shown} FROM (SELECT coalesce(q.queue::text, h.queue) AS queue, h.state, \
           min(h.eligible) FILTER (WHERE jt_held.xid IS NULL) AS free, \
           (json_agg(json_build_array(h.id, jt_held.pid, h.eligible)) FILTER (WHERE jt_held.xid IS NOT NULL))::text AS locks \
         FROM {from} LEFT JOIN jt_held ON jt_held.xid = h.x WHERE (SELECT count(*) FROM jt_held) > 0 GROUP BY 1, 2) y \
         WHERE y.locks IS NOT NULL"
    ))
}

fn statement(instance: &Instance, branches: &[Branch]) -> Result<Option<String>, Fault> {
    instance.union(&[HELD], branches, |q, branch| {
        let mut bodies = Vec::new();
        if let Some(queues) = &instance.profile.queues {
            let part = |sql: &Option<crate::queue::profile::Sql>, other: &str| match sql {
                Some(sql) => instance.fill(sql.get_ref(), branch),
                None => Ok(other.to_string()),
            };
            let limit = part(&queues.limit, "NULL")?;
            let paused = part(&queues.paused, "false")?;
            let shown = cells(&[
                ("part", "'queue'"),
                ("queue", "q.queue"),
                ("lim", &limit),
                ("paused", &paused),
            ]);
            bodies.push(format!("SELECT {shown} FROM {q}"));
        }
        for live in &instance.profile.live {
            bodies.push(counts(instance, live, q, branch)?);
            if let Some(lock) = &live.lock {
                bodies.push(heads(instance, live, lock, q, branch)?);
            }
        }
        Ok(bodies)
    })
}

impl Depth {
    /// Reads the depth of every queue (of the next 32 branches, where there are more).
    pub async fn poll(&mut self, session: &Session, instance: &Instance) -> Result<(), Fault> {
        let all = &instance.branches;
        let many = all.len() > BRANCHES;
        let from = if many { self.cursor % all.len() } else { 0 };
        let chosen: Vec<Branch> = all
            .iter()
            .cycle()
            .skip(from)
            .take(all.len().min(BRANCHES))
            .cloned()
            .collect();
        let made = &instance.made;
        let sql = made.get("depth", 0, &chosen, || statement(instance, &chosen))?;
        let Some(sql) = sql else {
            self.queues.clear();
            return Ok(());
        };
        let head = (HEADS / self.queues.len().max(1)).clamp(20, 100) as i64;
        let mut values = instance.values.clone();
        values.insert("bound".into(), Value::Int(BOUND));
        values.insert("head".into(), Value::Int(head));
        let rows = run(session, &sql, &values)
            .await
            .map_err(|f| instance.blame(f))?;
        let mut fresh: BTreeMap<String, One> = BTreeMap::new();
        for row in &rows {
            let one = fresh.entry(row.word("queue")?).or_default();
            take(one, row)?;
        }
        for (name, one) in &mut fresh {
            settle(one);
            for lock in &mut one.locked {
                lock.queue.clone_from(name);
            }
        }
        if many {
            let gone: BTreeSet<&String> = all.iter().filter_map(|b| b.get("q")).collect();
            self.queues.retain(|name, _| gone.contains(name));
            self.queues.extend(fresh);
        } else {
            self.queues = fresh;
        }
        self.cursor = from + chosen.len();
        Ok(())
    }
}

fn take(one: &mut One, row: &tokio_postgres::Row) -> Result<(), Fault> {
    let n = row.count("n")?;
    let state = State::parse(&row.word("state")?);
    let oldest = row.time("oldest")?;
    match row.word("part")?.as_str() {
        "queue" => {
            one.limit = row.int("lim")?.and_then(|n| u32::try_from(n).ok());
            one.paused = row.flag("paused")?.unwrap_or(false);
        }
        "count" => {
            let full = row.int("read")?.unwrap_or(0) >= BOUND;
            let count = one.states.entry(state).or_insert(Count::exact(0));
            count.count += n;
            if full {
                count.bound = Bound::AtLeast;
            }
            match state {
                State::Ready => {
                    one.oldest = earlier(one.oldest, oldest);
                    if let Some(kind) = row.text("kind")? {
                        let kind = one.kinds.entry(kind).or_default();
                        kind.ready += n;
                        kind.oldest = earlier(kind.oldest, oldest);
                    }
                }
                State::Retryable => one.overdue += row.count("due")?,
                State::Other => *one.natives.entry(row.word("native")?).or_default() += n,
                _ => {}
            }
        }
        _ => {
            let locks: Vec<(Option<String>, Option<i64>, Option<f64>)> =
                serde_json::from_str(&row.word("locks")?).unwrap_or_default();
            for (task, pid, eligible) in locks {
                one.locked.push(Locked {
                    queue: String::new(),
                    task: task.unwrap_or_default(),
                    state,
                    pid: pid.unwrap_or(0) as i32,
                    eligible,
                });
            }
            if state == State::Ready {
                one.free = oldest;
            }
        }
    }
    Ok(())
}

/// The oldest ready task counts only if nobody holds its row.
fn settle(one: &mut One) {
    let Some(oldest) = one.oldest else { return };
    let held = |l: &Locked| {
        l.state == State::Ready && l.eligible.is_some_and(|e| e <= oldest.epoch() + 1e-6)
    };
    if one.locked.iter().any(held) {
        let locked = one
            .locked
            .iter()
            .filter(|l| l.state == State::Ready)
            .count() as u64;
        let all = one.states.get(&State::Ready).map_or(0, |c| c.count);
        one.oldest = match one.free {
            Some(free) => Some(free),
            None if locked >= all => None,
            None => Some(oldest),
        };
    }
}

/// The earlier of two times.
pub fn earlier(a: Option<ServerTime>, b: Option<ServerTime>) -> Option<ServerTime> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b < a { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// The later of two times.
pub fn later(a: Option<ServerTime>, b: Option<ServerTime>) -> Option<ServerTime> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b > a { b } else { a }),
        (a, b) => a.or(b),
    }
}
