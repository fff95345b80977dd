//! Sessions wait for locks behind one that works: not idle, so nobody forgot it, but everyone else stands still.

use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Trigger};
use crate::findings::words::{count, duration, name, plural};
use crate::probe::activity::Blocked;
use std::collections::BTreeMap;

/// Waiters from which on it is worth a sentence; fewer only after `LONG`.
const MANY: usize = 3;
/// Seconds after which even one waiter is worth a sentence.
const LONG: f64 = 60.0;

/// See the module.
pub struct LockWait;

impl Rule for LockWait {
    fn name(&self) -> &'static str {
        "lock-wait"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "One working session holds locks that others wait for.",
            "Look at what it runs (Enter): let it finish or cancel it; then change fewer rows per transaction.",
        )
    }

    fn place(&self) -> Place {
        Place::Database
    }

    /// Claims, heartbeats and completions wait behind it, and whoever waits keeps a session: connections only where those
    /// make the difference.
    fn explains(&self) -> &'static [&'static str] {
        &[
            "leases-expired",
            "connections",
            "budget",
            "stalled",
            "throttled",
            "cancel-unheard",
        ]
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let mut roots: BTreeMap<i32, Vec<&Blocked>> = BTreeMap::new();
        for wait in &ctx.snapshot.blocked {
            if wait.lock_type != "relation"
                && let Some(root) = ctx.tree.roots(wait.pid).first()
            {
                roots.entry(*root).or_default().push(wait);
            }
        }
        roots
            .into_iter()
            .filter(|(root, _)| !ctx.session(*root).is_some_and(|s| s.idle_in_transaction()))
            .filter_map(|(root, waits)| check(ctx, root, &waits))
            .collect()
    }
}

fn check(ctx: &Ctx, root: i32, waits: &[&Blocked]) -> Option<Trigger> {
    let longest = waits.iter().map(|w| w.waiting_s).fold(0.0, f64::max);
    let least = if waits.len() >= MANY {
        ctx.limits().idle_in_transaction
    } else {
        LONG
    };
    if longest < least {
        return None;
    }
    let session = ctx.session(root);
    let runs = match session.map(|s| (&s.verb, s.query_s)) {
        Some((Some(verb), Some(age))) => {
            format!(", which runs {} {}", name(verb), duration(age))
        }
        _ => String::new(),
    };
    let n = waits.len() as u64;
    Some(
        Trigger::new(
            format!("{root}/{:?}", session.and_then(|s| s.backend_start)),
            Severity::Warning,
            format!(
                "{} up to {} behind {}{runs}",
                plural(n, "session waits", "sessions wait"),
                duration(longest),
                ctx.who(root),
            ),
        )
        .brief(format!("{} on row locks", count(n)))
        .culprit(ctx.session_row(root))
        .began(longest)
        .weight(n as f64)
        .explains(LockWait.explains())
        .only_if(!ctx.short_without(waits.len() + 1), &["connections"]),
    )
}

#[cfg(test)]
mod tests {
    use crate::findings::tests::*;

    const RULE: &str = "lock-wait";

    #[test]
    fn three_waiters_for_ten_seconds_or_one_for_a_minute() {
        let waits = |n: i32, s: f64| {
            let mut snap = example(RULE);
            snap.blocked = (0..n).map(|n| blocked(n + 1, &[4711], s)).collect();
            snap
        };
        silent(RULE, &waits(3, 9.9));
        says(RULE, &waits(3, 10.0));
        silent(RULE, &waits(2, 59.9));
        says(RULE, &waits(1, 60.0));
        assert_eq!(of(RULE, &waits(3, 10.0))[0].culprit, session_row(4711));
    }

    #[test]
    fn other_rules_tell_of_idle_sessions_and_tables() {
        let mut s = example(RULE);
        s.sessions[0].state = Some("idle in transaction".into());
        silent(RULE, &s);
        silent(RULE, &example("table-lock"));
    }
}
