//! The server is nearly out of connections, and not because a pool merely keeps them: they work, or ever more are
//! opened. A pool that idles is calm as long as others still get in; where no slot is left, it is to blame.

use crate::app::row::RowId;
use crate::findings::Severity;
use crate::findings::rule::{Ctx, Held, Place, Rule, Trigger};
use crate::findings::words::{count, duration, name};
use crate::probe::activity;
use std::collections::{BTreeMap, VecDeque};

/// Seconds for which they must have been short, and over which openings are counted.
const FOR: f64 = 10.0;
/// The same, in seconds, where not one is left: somebody is refused already.
const FULL_FOR: f64 = 3.0;
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
            "Nearly all connections that ordinary roles may have are taken and in use, or all are; logins beyond fail, which Postgres does not count.",
            "See who holds them (1) and whether they idle; lower that pool, mend the leak or stop what reconnects in a loop, rather than raising max_connections.",
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
        let usable = c.usable();
        let full = usable > 0 && c.used >= usable;
        let short = ctx.short_without(0);
        self.held.keep(ctx, short.then(String::new));
        // What is hidden may idle or not.
        let hidden = c.states.get("hidden").copied().unwrap_or_default();
        let all = c.states.values().fold(0_u32, |a, n| a.saturating_add(*n));
        let all = all.saturating_sub(hidden);
        let idle = c.states.get("idle").copied().unwrap_or_default();
        let busy = all > hidden && f64::from(idle) < IDLE * f64::from(all);
        let storm = c.logins_per_s.is_some_and(|n| n >= LOGINS);
        let last = if full { FULL_FOR } else { FOR };
        if !short || self.held.for_s(ctx, "") < last || !(busy || storm || full) {
            return Vec::new();
        }
        let mut parts = vec![format!(
            "{} of {} connections{}",
            // a superuser may have one of the others
            count(if full { usable } else { c.used }.into()),
            count(usable.into()),
            if full { ": logins are refused" } else { "" }
        )];
        let opened = self.opened();
        match (&opened, c.logins_per_s) {
            (Some((who, n)), _) => {
                parts.push(format!("{} opened {} in 10s", name(who), count(*n as u64)));
            }
            (None, Some(logins)) if storm => {
                parts.push(format!("{:.0} logins in 10s", (logins * FOR).min(1e9)));
            }
            _ if full && !busy => parts.extend(held_idle(c, idle)),
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
            // until somebody gets in again, nothing else can be mended
            .foremost_if(full)
            .explains(&["stalled"]),
        ]
    }

    fn forget(&mut self) {
        self.held.clear();
        self.looks.clear();
    }
}

/// Who holds a server that is full without being busy: `api holds 20; 26 idle: a leak or a pool too large`.
fn held_idle(c: &activity::Connections, idle: u32) -> Vec<String> {
    let most = c.applications.first();
    let most = most.map(|a| format!("{} holds {}", name(&a.who()), count(a.used.into())));
    let idle = (idle > 0).then(|| {
        let why = match idle >= c.used.div_ceil(2) {
            true => ": a leak or a pool too large",
            false => "",
        };
        format!("{} idle{why}", count(idle.into()))
    });
    most.into_iter().chain(idle).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::findings::Tracker;
    use crate::findings::tests::*;
    use crate::probe::Snapshot;
    use crate::probe::slots::Application;

    const RULE: &str = "connections";

    fn used(used: u32, idle: u32, logins: Option<f64>) -> Snapshot {
        with(|s| {
            s.connections.used = used;
            s.connections.states = [("active".into(), used - idle), ("idle".into(), idle)].into();
            s.connections.logins_per_s = logins;
        })
    }

    #[test]
    fn nine_tenths_taken_and_in_use_or_stormed() {
        silent(RULE, &used(87, 0, None));
        says(RULE, &used(88, 8, None));
        silent(RULE, &used(88, 9, None));
        silent(RULE, &used(88, 80, Some(4.9)));
        assert_eq!(
            says(RULE, &used(88, 80, Some(5.0))),
            "88 of 97 connections; 50 logins in 10s"
        );
    }

    #[test]
    fn a_full_server_is_told_whoever_holds_it() {
        let idle = |n: u32| {
            let mut s = used(n, n - 1, Some(0.0));
            s.connections.applications = vec![
                Application {
                    name: "leaky-api".into(),
                    used: 70,
                },
                Application {
                    name: "psql".into(),
                    used: 2,
                },
            ];
            s
        };
        silent(RULE, &idle(96));
        let said = &of(RULE, &idle(97))[0];
        assert_eq!(
            said.sentence,
            "97 of 97 connections: logins are refused; leaky-api holds 70; 96 idle: a leak or a pool too large"
        );
        assert_eq!(said.severity, Severity::Critical);

        // other databases hold most: their states are not known here
        let mut s = idle(97);
        s.connections.states = [("hidden".into(), 90), ("idle".into(), 7)].into();
        assert_eq!(
            says(RULE, &s),
            "97 of 97 connections: logins are refused; leaky-api holds 70; 7 idle"
        );

        let mut tracker = Tracker::new(&Config::default());
        for s in 0..=11 {
            let mut snap = idle(97);
            snap.taken_at = Some(at(f64::from(s)));
            let told = !tracker.update(&snap).findings.is_empty();
            assert_eq!(told, s >= 4, "{s}");
        }
    }

    #[test]
    fn states_that_are_hidden_prove_nothing() {
        let mut s = used(95, 0, None);
        s.connections.states = [("active".into(), 40), ("hidden".into(), 41)].into();
        silent(RULE, &s);
        s.connections.states = [("active".into(), 40), ("hidden".into(), 39)].into();
        says(RULE, &s);
    }

    #[test]
    fn three_left_are_critical() {
        assert_eq!(of(RULE, &used(93, 0, None))[0].severity, Severity::Warning);
        assert_eq!(of(RULE, &used(94, 0, None))[0].severity, Severity::Critical);
    }

    #[test]
    fn it_must_last_ten_seconds() {
        let mut tracker = Tracker::new(&Config::default());
        let mut see = |s: f64, mut snap: Snapshot| {
            snap.taken_at = Some(at(s));
            !tracker.update(&snap).findings.is_empty()
        };
        for s in 0..=10 {
            assert!(!see(f64::from(s), used(95, 0, None)), "{s}");
        }
        assert!(see(11.0, used(95, 0, None)));

        let mut tracker = Tracker::new(&Config::default());
        let mut see = |s: f64, mut snap: Snapshot| {
            snap.taken_at = Some(at(s));
            !tracker.update(&snap).findings.is_empty()
        };
        for s in 0..30 {
            // Every eighth look it is not short: never ten seconds on end.
            let n = if s % 8 == 7 { 50 } else { 95 };
            assert!(!see(f64::from(s), used(n, 0, None)), "{s}");
        }
    }

    #[test]
    fn the_budget_that_grew_is_named() {
        let mut tracker = Tracker::new(&Config::default());
        let mut said = String::new();
        for s in 0..=12 {
            let mut snap = used(95, 0, None);
            snap.connections.budgets = vec![budget("api", 90, 30), budget("agents", 90, 5 + 5 * s)];
            snap.taken_at = Some(at(f64::from(s)));
            said = tracker.update(&snap).verdict;
        }
        assert_eq!(said, "95 of 97 connections; agents opened 50 in 10s");
    }

    #[test]
    fn a_budget_that_hardly_grew_is_not_named() {
        let grew = |by: u32| {
            let mut tracker = Tracker::new(&Config::default());
            let mut said = String::new();
            for s in 0..=12 {
                let mut snap = used(95, 0, None);
                let agents = if s == 12 { 5 + by } else { 5 };
                snap.connections.budgets = vec![budget("agents", 90, agents)];
                snap.taken_at = Some(at(f64::from(s)));
                said = tracker.update(&snap).verdict;
            }
            said
        };
        assert!(grew(4).ends_with("; 0 idle"));
        assert!(grew(5).ends_with("; agents opened 5 in 10s"));
    }

    #[test]
    fn a_server_up_for_long_is_not_news() {
        let mut s = example(RULE);
        s.server.started_at = Some(at(-600.0));
        assert!(!says(RULE, &s).contains("server up"));
    }
}
