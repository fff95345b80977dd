//! Somebody waits for a lock on a whole table of a queue, and everyone after them queues behind that wait.

use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Scope, Trigger};
use crate::findings::words::{count, duration, name};
use crate::probe::activity::Blocked;
use std::collections::BTreeMap;

/// The mode in which a table is had for oneself.
const EXCLUSIVE: &str = "AccessExclusiveLock";

/// See the module.
pub struct TableLock;

impl Rule for TableLock {
    fn name(&self) -> &'static str {
        "table-lock"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "A lock on a whole table is waited for: a pending ALTER lets nobody pass, not even readers.",
            "End the session at the root, not the ALTER; run migrations with lock_timeout and retry.",
        )
    }

    fn place(&self) -> Place {
        Place::Database
    }

    /// Nobody can claim, finish, heartbeat or acknowledge while the table is closed, those who try keep their
    /// sessions (connections only where those make the difference), arrivals stop at its door, and jobtop's own reading
    /// of it fails. Narrowed to the table's schema.
    fn explains(&self) -> &'static [&'static str] {
        &[
            "leases-expired",
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
        let mut tables: BTreeMap<&str, Vec<&Blocked>> = BTreeMap::new();
        for wait in &ctx.snapshot.blocked {
            if wait.lock_type == "relation"
                && let Some(table) = wait.relation.as_deref().filter(|t| of_a_queue(ctx, t))
            {
                tables.entry(table).or_default().push(wait);
            }
        }
        tables
            .into_iter()
            .filter_map(|(table, waits)| check(ctx, table, &waits))
            .collect()
    }
}

/// The table of a queue that somebody behind a session waits to have for itself, so that nobody else may touch it.
pub fn closed<'a>(ctx: &Ctx, waits: &[&'a Blocked]) -> Option<&'a str> {
    let table = waits
        .iter()
        .filter(|w| w.lock_type == "relation" && w.mode.as_deref() == Some(EXCLUSIVE))
        .filter(|w| w.waiting_s >= ctx.limits().table_lock)
        .filter_map(|w| w.relation.as_deref())
        .find(|table| of_a_queue(ctx, table))?;
    Some(table.split_once('.').map_or(table, |(_, bare)| bare))
}

/// Until the tables of the queues are known (a start under lock), any table may be one.
fn of_a_queue(ctx: &Ctx, table: &str) -> bool {
    let tables = &ctx.snapshot.maintenance.tables;
    tables.is_empty() || tables.iter().any(|t| t.name == table)
}

fn check(ctx: &Ctx, table: &str, waits: &[&Blocked]) -> Option<Trigger> {
    let exclusive = |w: &&&Blocked| w.mode.as_deref() == Some(EXCLUSIVE);
    let longest = |a: &&&Blocked, b: &&&Blocked| a.waiting_s.total_cmp(&b.waiting_s);
    let migration = waits.iter().filter(exclusive).max_by(longest);
    let first = migration.or_else(|| waits.iter().max_by(longest))?;
    if first.waiting_s < ctx.limits().table_lock {
        return None;
    }
    let root = ctx.tree.roots(first.pid).first().copied();
    let (schema, bare) = table.split_once('.').unwrap_or(("", table));
    let others = waits.len() - 1;
    let behind = match root {
        Some(root) => format!(" behind {}{}", ctx.short(root), doing(ctx, root)),
        None => String::new(),
    };
    let queue = match others {
        0 => String::new(),
        1 => "; 1 queues".into(),
        n => format!("; {} queue", count(n as u64)),
    };
    let waiter = ctx.short(first.pid);
    let waited = duration(first.waiting_s);
    let sentence = if migration.is_some() {
        format!(
            "nothing can touch {}: {waiter} waits {waited}{behind}{queue}",
            name(bare)
        )
    } else {
        format!("{waiter} waits {waited} for {}{behind}{queue}", name(bare))
    };
    let severity = if migration.is_some() || others >= 2 {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let scope = ctx
        .snapshot
        .queues
        .iter()
        .find(|q| q.schema == schema)
        .filter(|q| {
            let same = |o: &&crate::probe::queues::Queue| o.schema == schema;
            ctx.snapshot
                .queues
                .iter()
                .filter(same)
                .all(|o| o.system == q.system)
        })
        .map(|q| Scope::home(&q.system, &q.schema))
        .unwrap_or_default();
    Some(
        Trigger::new(table, severity, sentence)
            .brief(format!("{} on {}", waits.len(), name(bare)))
            .culprit(root.and_then(|root| ctx.session_row(root)))
            .began(first.waiting_s)
            .scope(scope)
            .weight(waits.len() as f64)
            .explains(TableLock.explains())
            .only_if(!ctx.short_without(waits.len() + 1), &["connections"]),
    )
}

/// What the session at the root does: ` (idle in tx 6m)`.
fn doing(ctx: &Ctx, pid: i32) -> String {
    let Some(session) = ctx.session(pid) else {
        return String::new();
    };
    if session.idle_in_transaction() {
        let age = session.state_s.map(duration).unwrap_or_default();
        return format!(" (idle in tx {age})");
    }
    match (&session.verb, session.xact_s) {
        (Some(verb), Some(age)) => format!(" ({}, {})", name(verb), duration(age)),
        (None, Some(age)) => format!(" (tx {})", duration(age)),
        (Some(verb), None) => format!(" ({})", name(verb)),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use crate::findings::tests::*;

    const RULE: &str = "table-lock";

    #[test]
    fn the_lock_must_be_waited_for_long_enough_on_a_queue_table() {
        let waits = |s: f64, table: &str| {
            with(|snap| {
                snap.maintenance.tables = example(RULE).maintenance.tables;
                snap.blocked = vec![on_table(2, &[1], s, "AccessExclusiveLock")];
                snap.blocked[0].relation = Some(table.into());
            })
        };
        silent(RULE, &waits(4.9, "agent_queue.tasks"));
        says(RULE, &waits(5.0, "agent_queue.tasks"));
        silent(RULE, &waits(50.0, "public.users"));
        // Rows are another rule's business.
        silent(RULE, &with(|s| s.blocked = vec![blocked(2, &[1], 50.0)]));
    }

    #[test]
    fn before_the_tables_are_known_any_table_counts() {
        let s = with(|s| s.blocked = vec![on_table(2, &[1], 9.0, "AccessExclusiveLock")]);
        assert_eq!(
            says(RULE, &s),
            "nothing can touch tasks: pid 2 waits 9s behind pid 1"
        );
    }

    #[test]
    fn the_root_is_the_culprit_not_the_migration() {
        assert_eq!(of(RULE, &example(RULE))[0].culprit, session_row(5002));
    }

    #[test]
    fn a_prepared_transaction_and_a_deadlock_have_no_session() {
        let mut s = example(RULE);
        s.blocked[0].blocked_by = vec![0];
        assert!(says(RULE, &s).contains("behind a prepared transaction; 12 queue"));
        assert_eq!(of(RULE, &s)[0].culprit, None);
        s.blocked[0].blocked_by = vec![5100];
        says(RULE, &s);
    }

    #[test]
    fn it_reaches_only_the_queues_of_its_schema() {
        let mut s = example(RULE);
        s.queues = example("stalled").queues;
        assert!(of("stalled", &s)[0].explained_by.is_some());
        s.queues.push(queue("mail"));
        s.queues[0].schema = "elsewhere".into();
        assert!(of("stalled", &s)[0].explained_by.is_none());
    }
}
