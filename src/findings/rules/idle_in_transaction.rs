//! A session that waits for its own client with a transaction open, and in somebody's way: it blocks sessions,
//! holds task rows, stops vacuum, or fills a budget.

use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Scope, Trigger, session_row};
use crate::findings::words::{duration, plural};
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
    /// * connections, budget: those who wait keep their sessions, and so does it.
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
        let idle = |s: &&Session| s.idle_in_transaction() && !s.own;
        ctx.snapshot
            .sessions
            .iter()
            .filter(idle)
            .filter_map(|session| check(ctx, session))
            .collect()
    }
}

fn check(ctx: &Ctx, session: &Session) -> Option<Trigger> {
    let (pid, age) = (session.pid?, session.state_s?);
    if age < ctx.limits().idle_in_transaction {
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
    if let (true, Some(budget)) = (effects.is_empty(), budget) {
        effects.push(format!(
            "{} of {} {} are taken",
            budget.used,
            budget.limit.unwrap_or_default(),
            crate::findings::words::name(&budget.name)
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
    let in_the_way = blocks > 0 || session.task_rows > 0;
    let maintenance = &ctx.snapshot.maintenance;
    let holds_xmin = maintenance.xmin_holder.as_ref().and_then(|h| h.pid) == Some(pid);
    let fills_notify = maintenance.notify_blame.as_ref().map(|b| b.0) == Some(pid);
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
        .explains_if(holds_xmin, &["xmin-held"])
        .explains_if(fills_notify, &["notify-queue"]),
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
