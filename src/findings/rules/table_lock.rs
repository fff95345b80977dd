//! Somebody has a whole table of a queue for himself, or waits for a lock on one, and everyone after them queues behind
//! that wait.

#[cfg(test)]
mod tests;
mod who;

use crate::findings::Severity;
use crate::findings::rule::{Ctx, Held, Place, Rule, Scope, Trigger};
use crate::findings::words::{count, duration, name};
use crate::probe::activity::Blocked;
use crate::probe::locks::Exclusive;
use std::collections::BTreeMap;
use who::Who;

/// The mode in which a table is had for oneself.
const EXCLUSIVE: &str = "AccessExclusiveLock";

/// What happens while nobody gets at the table.
const EXPLAINS: &[&str] = &[
    "leases-expired",
    "connections",
    "budget",
    "stalled",
    "throttled",
    "inflow-stopped",
    "cancel-unheard",
    "limited-view",
];

/// See the module.
#[derive(Default)]
pub struct TableLock {
    /// Since when who has which table.
    seen: Held,
}

impl Rule for TableLock {
    fn name(&self) -> &'static str {
        "table-lock"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "A whole table is locked, or waited for: while one session has it in ACCESS EXCLUSIVE mode, or an ALTER waits for that, nobody else may even read it.",
            "End the session at the root (^K, pg_terminate_backend), not the ALTER that waits; run migrations with lock_timeout and retry, and commit at once what was locked by hand.",
        )
    }

    fn place(&self) -> Place {
        Place::Database
    }

    /// Nobody can claim, finish, heartbeat or acknowledge while the table is closed, those who try keep their
    /// sessions (connections only where those make the difference), arrivals stop at its door, and jobtop's own reading
    /// of it fails. Narrowed to the table's schema.
    /// xmin-held, notify-queue: only where that very session is the one to blame.
    fn explains(&self) -> &'static [&'static str] {
        &[
            "lock-wait",
            "leases-expired",
            "xmin-held",
            "notify-queue",
            "connections",
            "budget",
            "stalled",
            "throttled",
            "inflow-stopped",
            "cancel-unheard",
            "limited-view",
        ]
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let locks = &ctx.snapshot.exclusive;
        self.seen.keep(ctx, locks.iter().map(key));
        let mut tables: BTreeMap<&str, Vec<&Blocked>> = BTreeMap::new();
        for wait in &ctx.snapshot.blocked {
            if wait.lock_type == "relation"
                && let Some(table) = wait.relation.as_deref().filter(|t| of_a_queue(ctx, t))
            {
                tables.entry(table).or_default().push(wait);
            }
        }
        for lock in locks {
            tables.entry(&lock.relation).or_default();
        }
        let trigger = |(table, waits): (&str, Vec<&Blocked>)| {
            let Some(lock) = locks.iter().find(|l| l.relation == table) else {
                return waited_for(ctx, table, &waits, None);
            };
            let seen_s = self.seen.for_s(ctx, &key(lock));
            if lock.granted {
                return had(ctx, lock, &waits, seen_s);
            }
            if !waits.is_empty() {
                return waited_for(ctx, table, &waits, Some(lock));
            }
            // what sessions wait for is hidden, or goes by another name: a partition, an index
            let wait = Blocked {
                pid: lock.pid,
                blocked_by: lock.blocked_by.clone(),
                waiting_s: lock.waiting_s.unwrap_or(seen_s),
                lock_type: "relation".into(),
                relation: Some(lock.relation.clone()),
                mode: Some(EXCLUSIVE.into()),
            };
            waited_for(ctx, table, &[&wait], Some(lock))
        };
        tables.into_iter().filter_map(trigger).collect()
    }

    fn forget(&mut self) {
        self.seen.clear();
    }
}

fn key(lock: &Exclusive) -> String {
    format!("{}/{}", lock.pid, lock.relation)
}

/// The table of a queue that somebody behind a session waits to have for itself, so that nobody else may touch it.
pub fn closed<'a>(ctx: &Ctx, waits: &[&'a Blocked]) -> Option<&'a str> {
    let table = waits
        .iter()
        .filter(|w| w.lock_type == "relation" && w.mode.as_deref() == Some(EXCLUSIVE))
        .filter(|w| w.waiting_s >= ctx.limits().table_lock)
        .filter_map(|w| w.relation.as_deref())
        .find(|table| of_a_queue(ctx, table))?;
    Some(bare(table))
}

/// Until the tables of the queues are known (a start under lock), any table may be one.
fn of_a_queue(ctx: &Ctx, table: &str) -> bool {
    let tables = &ctx.snapshot.maintenance.tables;
    tables.is_empty() || tables.iter().any(|t| t.name == table)
}

/// A table's name without its schema.
fn bare(table: &str) -> &str {
    table.split_once('.').map_or(table, |(_, bare)| bare)
}

/// Somebody has the table for himself, whether or not anybody waits for it just now.
fn had(ctx: &Ctx, lock: &Exclusive, waits: &[&Blocked], seen_s: f64) -> Option<Trigger> {
    let holder = ctx.session(lock.pid);
    // whoever idles took its locks before
    let idle_s = holder
        .filter(|s| s.idle_in_transaction())
        .and_then(|s| s.state_s);
    let known_s = (waits.iter().map(|w| w.waiting_s)).fold(idle_s.unwrap_or_default(), f64::max);
    if known_s.max(seen_s) < ctx.limits().table_lock {
        return None;
    }
    let table = name(bare(&lock.relation));
    let n = ctx
        .tree
        .behind(lock.pid)
        .len()
        .max(waits.len())
        .max(lock.waiters as usize);
    // it may wait itself, for something else
    let above = ctx.tree.roots(lock.pid).first().copied();
    let behind = above.map_or(String::new(), |pid| {
        format!(" and waits behind {}", ctx.who(pid))
    });
    let works = holder.is_some_and(|s| s.state.as_deref() == Some("active"));
    let ends = match (&lock.blame.prepared, lock.pid) {
        // on a standby nobody else can have it so
        _ if ctx.snapshot.server.in_recovery => "its transaction's end on the primary".into(),
        (Some(gid), _) => format!("ROLLBACK PREPARED '{}'", name(gid)),
        (None, 0) => "ROLLBACK PREPARED".into(),
        (None, pid) if works => format!("pg_cancel_backend({pid})"),
        (None, pid) => format!("pg_terminate_backend({pid})"),
    };
    let who = Who::of(ctx, lock.pid, Some(&lock.blame));
    let sentence = format!(
        "nothing can touch {table}: {who} has it in ACCESS EXCLUSIVE mode{behind}{}; {ends} ends it{}",
        queue(n),
        who.more()
    );
    let brief = match n {
        0 => format!("{table} locked"),
        n => format!("{} on {table}", count(n as u64)),
    };
    Some(
        Trigger::new(&lock.relation, Severity::Critical, sentence)
            .brief(brief)
            .culprit(who::row(ctx, above.unwrap_or(lock.pid)))
            .began(Some(known_s).filter(|s| *s > 0.0))
            .scope(scope(ctx, &lock.relation))
            .weight(n as f64)
            .explains(EXPLAINS)
            .only_if(!ctx.short_without(n + 1), &["connections"])
            .explains(&["lock-wait"])
            .explains_if(ctx.holds_xmin(lock.pid), &["xmin-held"])
            .explains_if(ctx.fills_notify(lock.pid), &["notify-queue"]),
    )
}

/// A lock on the table is waited for: all who came later wait behind that, where it is for the whole table.
fn waited_for(
    ctx: &Ctx,
    table: &str,
    waits: &[&Blocked],
    lock: Option<&Exclusive>,
) -> Option<Trigger> {
    let exclusive = |w: &&&Blocked| w.mode.as_deref() == Some(EXCLUSIVE);
    let longest = |a: &&&Blocked, b: &&&Blocked| a.waiting_s.total_cmp(&b.waiting_s);
    let migration = waits.iter().filter(exclusive).max_by(longest);
    let first = migration.or_else(|| waits.iter().max_by(longest))?;
    // where our own statements fail behind it, a look or two more are worth it
    let lasts = ctx.lasts && lock.is_some();
    if first.waiting_s < ctx.limits().table_lock && !lasts {
        return None;
    }
    let blame = lock.map(|l| &l.blame);
    let root = ctx.tree.roots(first.pid).first().copied();
    let root = root.or(blame.map(|b| b.pid));
    let others = lock.map_or(0, |l| l.waiters as usize).max(waits.len() - 1);
    let root_who = root.map(|root| Who::of(ctx, root, blame));
    let (behind, more) = root_who.map_or_else(Default::default, |who| {
        (format!(" behind {who}"), who.more())
    });
    let waiter = ctx.short(first.pid);
    let waited = duration(first.waiting_s);
    let (table_name, queue) = (name(bare(table)), queue(others));
    // who idles there will not end by himself
    let idles = root.and_then(|pid| ctx.session(pid));
    let idles = idles.filter(|s| s.idle_in_transaction());
    let ends = idles.and(root).map_or(String::new(), |pid| {
        format!("; pg_terminate_backend({pid}) ends it")
    });
    let sentence = if migration.is_some() {
        format!(
            "nothing can touch {table_name}: {waiter} waits {waited}{behind}{queue}{ends}{more}"
        )
    } else {
        format!("{waiter} waits {waited} for {table_name}{behind}{queue}{ends}{more}")
    };
    let severity = if migration.is_some() || others >= 2 {
        Severity::Critical
    } else {
        Severity::Warning
    };
    Some(
        Trigger::new(table, severity, sentence)
            .brief(format!("{} on {table_name}", count(others as u64 + 1)))
            .culprit(root.and_then(|root| who::row(ctx, root)))
            .began(first.waiting_s)
            .scope(scope(ctx, table))
            .weight(others as f64 + 1.0)
            .explains(EXPLAINS)
            .only_if(!ctx.short_without(others + 2), &["connections"]),
    )
}

/// How many wait besides: `; 12 queue`.
fn queue(n: usize) -> String {
    match n {
        0 => String::new(),
        1 => "; 1 queues".into(),
        n => format!("; {} queue", count(n as u64)),
    }
}

/// The queues of the table's schema, where they are of one system.
fn scope(ctx: &Ctx, table: &str) -> Scope {
    let schema = table.split_once('.').map_or("", |(schema, _)| schema);
    let mut of_schema = ctx.snapshot.queues.iter().filter(|q| q.schema == schema);
    of_schema
        .next()
        .filter(|first| of_schema.all(|q| q.system == first.system))
        .map(|q| Scope::home(&q.system, &q.schema))
        .unwrap_or_default()
}
