//! A session that waits for its own client with a transaction open, and in somebody's way: it blocks sessions,
//! holds task rows, stops vacuum, or fills a budget.

use super::table_lock::closed;
use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Scope, Trigger, session_row};
use crate::findings::words::{duration, name, plural};
use crate::probe::activity::Session;

/// Share of a budget from which on its sessions idle in transaction are in the way.
const BUDGET_SHARE: f64 = 0.9;
/// Blocked sessions, or seconds for which task rows are held, from which on it is critical.
const MANY_BLOCKED: usize = 3;
const LONG_HELD: f64 = 60.0;

/// See the module.
pub struct IdleInTransaction;

impl Rule for IdleInTransaction {
    fn name(&self) -> &'static str {
        "idle-in-transaction"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "A client opened a transaction, then went away to do something else; its locks and its snapshot stay until it ends.",
            "Let the client commit or end its session (pg_terminate_backend); then call models outside transactions and set idle_in_transaction_session_timeout.",
        )
    }

    fn place(&self) -> Place {
        Place::Database
    }

    /// * table-lock: where the sessions behind it wait for a relation, it is the root of that tree.
    /// * leases-expired, stalled, throttled, cancel-unheard: claims, heartbeats and completions wait behind its
    ///   rows, or its own tasks go nowhere.
    /// * connections, budget: those who wait keep their sessions, and so does it and its like; connections only where
    ///   those make the difference.
    /// * xmin-held, notify-queue: only where that very session is the one to blame.
    /// * limited-view: jobtop's own reading of a table waits behind its lock.
    fn explains(&self) -> &'static [&'static str] {
        &[
            "table-lock",
            "leases-expired",
            "xmin-held",
            "notify-queue",
            "connections",
            "budget",
            "stalled",
            "throttled",
            "cancel-unheard",
            "limited-view",
        ]
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        ctx.snapshot
            .sessions
            .iter()
            .filter(idle)
            .filter_map(|session| check(ctx, session))
            .collect()
    }
}

fn idle(session: &&Session) -> bool {
    session.idle_in_transaction() && !session.own
}

fn check(ctx: &Ctx, session: &Session) -> Option<Trigger> {
    let (pid, age) = (session.pid?, session.state_s?);
    if age < ctx.limits().idle_in_transaction {
        return None;
    }
    // table-lock tells of it, and more
    if (ctx.snapshot.exclusive.iter()).any(|lock| lock.granted && lock.pid == pid) {
        return None;
    }
    let waits = ctx.tree.waits_behind(pid);
    let blocks = waits.len();
    let open_s = session.xact_s.unwrap_or(age).max(age);
    let pins = session.xmin_age.is_some() && open_s >= ctx.limits().idle_pins_xmin;
    let budget = ctx.snapshot.connections.budgets.iter().find(|b| {
        b.name == session.budget
            && b.limit
                .is_some_and(|l| l > 0 && f64::from(b.used) >= BUDGET_SHARE * f64::from(l))
    });
    if blocks == 0 && session.task_rows == 0 && !pins && budget.is_none() {
        return None;
    }
    let mut effects = Vec::new();
    if session.task_rows > 0 {
        effects.push(format!(
            "holds {}",
            plural(session.task_rows.into(), "task", "tasks")
        ));
    }
    if blocks > 0 {
        effects.push(format!("blocks {blocks}"));
    }
    if let Some(table) = closed(ctx, &waits) {
        effects.push(format!("nothing can touch {}", name(table)));
    }
    if let (true, Some(budget)) = (effects.is_empty(), budget) {
        effects.push(format!(
            "its budget is at {} of {}",
            budget.used,
            budget.limit.unwrap_or_default()
        ));
    }
    if pins && effects.len() < 2 {
        effects.push("stops vacuum".into());
    }
    let severity = if blocks >= MANY_BLOCKED || (session.task_rows > 0 && open_s >= LONG_HELD) {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let on_relation = waits.iter().any(|w| w.lock_type == "relation");
    let alike = ctx.snapshot.sessions.iter().filter(idle).count();
    let in_the_way = blocks > 0 || session.task_rows > 0;
    let brief = match (blocks, on_relation) {
        (0, _) => "1 idle in tx".into(),
        (n, true) => format!("{n} on table locks"),
        (n, false) => format!("{n} on row locks"),
    };
    Some(
        Trigger::new(
            format!("{pid}/{:?}", session.backend_start.map(|t| t.epoch())),
            severity,
            format!(
                "{} waits for its client inside a transaction {}; {}",
                ctx.who(pid),
                duration(age),
                effects.join(", ")
            ),
        )
        .brief(brief)
        .culprit(session_row(session))
        .began(age)
        .scope(scope(ctx, pid, blocks))
        .weight((blocks * 1000 + session.task_rows as usize) as f64)
        .explains_if(on_relation, &["table-lock", "limited-view"])
        .explains_if(
            in_the_way,
            &["leases-expired", "stalled", "throttled", "cancel-unheard"],
        )
        .explains_if(blocks > 0 || budget.is_some(), &["connections", "budget"])
        .only_if(!ctx.short_without(blocks + alike), &["connections"])
        .explains_if(ctx.holds_xmin(pid), &["xmin-held"])
        .explains_if(ctx.fills_notify(pid), &["notify-queue"]),
    )
}

/// One queue, where nobody waits behind the session and all task rows it is seen to hold are of that queue.
fn scope(ctx: &Ctx, pid: i32, blocks: usize) -> Scope {
    let mut held = ctx
        .snapshot
        .tasks
        .rows
        .iter()
        .filter(|t| t.locked_by_pid == Some(pid))
        .map(|t| Scope::queue(&t.key.system, &t.key.schema, &t.key.queue));
    match held.next() {
        Some(first) if blocks == 0 && held.all(|other| other == first) => first,
        _ => Scope::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::Severity;
    use crate::findings::tests::*;
    use crate::probe::Snapshot;

    const RULE: &str = "idle-in-transaction";

    /// A session idle in transaction for `s` seconds, in nobody's way.
    fn idle(s: f64, change: impl FnOnce(&mut Snapshot)) -> Snapshot {
        with(|snap| {
            snap.sessions = vec![session(4711, "agent-7", "idle in transaction", s)];
            change(snap);
        })
    }

    #[test]
    fn it_must_be_old_enough_and_in_somebodys_way() {
        let one = |s: &mut Snapshot| s.blocked = vec![blocked(2, &[4711], 1.0)];
        silent(RULE, &idle(9.9, one));
        says(RULE, &idle(10.0, one));
        silent(RULE, &idle(500.0, |_| {}));
        says(RULE, &idle(10.0, |s| s.sessions[0].task_rows = 1));
        silent(RULE, &idle(59.9, |s| s.sessions[0].xmin_age = Some(1)));
        says(RULE, &idle(60.0, |s| s.sessions[0].xmin_age = Some(1)));
        silent(
            RULE,
            &idle(20.0, |s| {
                s.connections.budgets = vec![budget("agents", 40, 35)]
            }),
        );
        says(
            RULE,
            &idle(20.0, |s| {
                s.connections.budgets = vec![budget("agents", 40, 36)]
            }),
        );
        silent(
            RULE,
            &idle(20.0, |s| {
                s.connections.budgets = vec![budget("api", 40, 40)]
            }),
        );
    }

    #[test]
    fn a_session_that_works_or_is_our_own_is_not_meant() {
        let one = |s: &mut Snapshot| s.blocked = vec![blocked(2, &[4711], 1.0)];
        let active = idle(20.0, |s| {
            one(s);
            s.sessions[0].state = Some("active".into());
        });
        silent(RULE, &active);
        let own = idle(20.0, |s| {
            one(s);
            s.sessions[0].own = true;
        });
        silent(RULE, &own);
        let aborted = idle(20.0, |s| {
            one(s);
            s.sessions[0].state = Some("idle in transaction (aborted)".into());
        });
        says(RULE, &aborted);
    }

    #[test]
    fn three_blocked_or_rows_held_for_a_minute_are_critical() {
        let gravity = |s: &Snapshot| of(RULE, s)[0].severity;
        let blocks = |n: i32| {
            idle(20.0, |s| {
                s.blocked = (0..n).map(|n| blocked(n + 1, &[4711], 9.0)).collect()
            })
        };
        assert_eq!(gravity(&blocks(2)), Severity::Warning);
        assert_eq!(gravity(&blocks(3)), Severity::Critical);
        let holds = |s: f64| idle(s, |s| s.sessions[0].task_rows = 1);
        assert_eq!(gravity(&holds(59.0)), Severity::Warning);
        assert_eq!(gravity(&holds(60.0)), Severity::Critical);
    }

    #[test]
    fn those_behind_the_blocked_count_too_and_the_session_is_the_culprit() {
        let s = idle(20.0, |s| {
            s.blocked = vec![blocked(2, &[4711], 9.0), blocked(3, &[2], 8.0)];
        });
        assert!(says(RULE, &s).ends_with("; blocks 2"));
        assert_eq!(of(RULE, &s)[0].culprit, session_row(4711));
    }

    #[test]
    fn it_says_when_a_whole_table_is_closed() {
        let pending = |s: f64, mode: &str| {
            says(
                RULE,
                &idle(20.0, |snap| {
                    snap.blocked = vec![on_table(2, &[4711], s, mode)]
                }),
            )
        };
        assert!(pending(5.0, "AccessExclusiveLock").ends_with("blocks 1, nothing can touch tasks"));
        assert!(pending(4.0, "AccessExclusiveLock").ends_with("; blocks 1"));
        assert!(pending(5.0, "ShareLock").ends_with("; blocks 1"));
    }

    #[test]
    fn it_explains_the_snapshot_only_if_it_holds_it() {
        let explained = |pid: i32| {
            let mut s = example("xmin-held");
            s.sessions
                .push(session(4711, "agent-7", "idle in transaction", 400.0));
            s.blocked = vec![blocked(2, &[4711], 9.0)];
            s.maintenance.xmin_holder.as_mut().expect("a holder").pid = Some(pid);
            of("xmin-held", &s)[0].explained_by.is_some()
        };
        assert!(explained(4711));
        assert!(!explained(6100));
    }
}
