//! The server is nearly out of connections, and not because a pool merely keeps them: they work, or ever more are
//! opened. A full pool that idles is calm.

use crate::app::row::RowId;
use crate::findings::Severity;
use crate::findings::rule::{Ctx, Held, Place, Rule, Trigger};
use crate::findings::words::{count, duration, name};
use std::collections::{BTreeMap, VecDeque};

/// Seconds for which they must have been short, and over which openings are counted.
const FOR: f64 = 10.0;
/// Idle share below which the connections are in use.
const IDLE: f64 = 0.1;
/// Logins a second from which on somebody opens them in a storm.
const LOGINS: f64 = 5.0;
/// Connections left from which on it is critical.
const LEFT: u32 = 3;
/// Sessions that a budget must have opened to be named.
const OPENED: i64 = 5;
/// Seconds for which the server counts as freshly started.
const FRESH: f64 = 600.0;
/// Looks remembered at most.
const LOOKS: usize = 64;

/// See the module.
#[derive(Default)]
pub struct Connections {
    held: Held,
    looks: VecDeque<(f64, BTreeMap<String, u32>)>,
}

impl Rule for Connections {
    fn name(&self) -> &'static str {
        "connections"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "Nearly all connections that ordinary roles may have are taken and in use; logins beyond fail, which Postgres does not count.",
            "See which budget grew (1); lower its pool or stop what reconnects in a loop, rather than raising max_connections.",
        )
    }

    fn place(&self) -> Place {
        Place::Database
    }

    /// stalled: workers that cannot log in cannot claim.
    fn explains(&self) -> &'static [&'static str] {
        &["stalled"]
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        self.look(ctx);
        let c = &ctx.snapshot.connections;
        let usable = c.max.saturating_sub(c.reserved);
        let short = usable > 0 && f64::from(c.used) >= ctx.limits().connections * f64::from(usable);
        self.held.keep(ctx, short.then(String::new));
        let all: u32 = c.states.values().fold(0, |a, n| a.saturating_add(*n));
        let idle = c.states.get("idle").copied().unwrap_or_default();
        let busy = all > 0 && f64::from(idle) < IDLE * f64::from(all);
        let storm = c.logins_per_s.is_some_and(|n| n >= LOGINS);
        if !short || self.held.for_s(ctx, "") < FOR || !(busy || storm) {
            return Vec::new();
        }
        let mut parts = vec![format!(
            "{} of {} connections",
            count(c.used.into()),
            count(usable.into())
        )];
        let opened = self.opened();
        match (&opened, c.logins_per_s) {
            (Some((who, n)), _) => {
                parts.push(format!("{} opened {} in 10s", name(who), count(*n as u64)));
            }
            (None, Some(logins)) if storm => {
                parts.push(format!("{:.0} logins in 10s", (logins * FOR).min(1e9)));
            }
            _ => parts.push(format!("{} idle", count(idle.into()))),
        }
        let up = ctx
            .snapshot
            .server
            .started_at
            .zip(ctx.snapshot.taken_at)
            .and_then(|(started, now)| now.since(started));
        if let Some(up) = up.filter(|s| (0.0..FRESH).contains(s)) {
            parts.push(format!("server up {}", duration(up)));
        }
        let largest = c
            .budgets
            .iter()
            .filter(|b| b.limit.is_some())
            .max_by_key(|b| b.used);
        let whom = opened.map(|o| o.0).or(largest.map(|b| b.name.clone()));
        vec![
            Trigger::new(
                "",
                if usable.saturating_sub(c.used) <= LEFT {
                    Severity::Critical
                } else {
                    Severity::Warning
                },
                parts.join("; "),
            )
            .brief(format!(
                "{} of {} conns",
                count(c.used.into()),
                count(usable.into())
            ))
            .culprit(whom.map(RowId::Budget))
            .explains(&["stalled"]),
        ]
    }

    fn forget(&mut self) {
        self.held.clear();
        self.looks.clear();
    }
}

impl Connections {
    fn look(&mut self, ctx: &Ctx) {
        let budgets = &ctx.snapshot.connections.budgets;
        let used = budgets.iter().map(|b| (b.name.clone(), b.used)).collect();
        self.looks.push_back((ctx.now, used));
        while self.looks.len() > LOOKS || self.looks.front().is_some_and(|l| ctx.now - l.0 > FOR) {
            self.looks.pop_front();
        }
    }

    /// The budget that grew most over the last ten seconds, and by how much.
    fn opened(&self) -> Option<(String, i64)> {
        let (_, then) = self.looks.front()?;
        let (_, now) = self.looks.back()?;
        now.iter()
            .map(|(name, used)| {
                let before = then.get(name).copied().unwrap_or(*used);
                (name.clone(), i64::from(*used) - i64::from(before))
            })
            .filter(|(_, n)| *n >= OPENED)
            .max_by_key(|(_, n)| *n)
    }
}
