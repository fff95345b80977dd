//! Leases that ended long enough ago that somebody should have taken their tasks back.

use crate::app::row::RowId;
use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Scope, Trigger};
use crate::findings::words::{count, duration, name, plural};
use crate::probe::State;
use crate::probe::leases::{Lease, Seen};
use crate::probe::tasks::TaskKey;
use std::collections::{BTreeMap, BTreeSet};

/// From so many on it is critical when half of the running tasks, of a queue or of all, are nobody's any more.
const MANY: u64 = 3;

/// See the module.
pub struct LeasesExpired;

/// Is it a lease with an end that has passed? (The others are `stuck` by a rule of their system's own.)
pub fn expired(lease: &Lease) -> Option<f64> {
    let rule = lease.rule.to_lowercase();
    let by_lease = rule.is_empty() || rule.contains("lease") || rule.contains("expire");
    lease.overdue_s.filter(|_| by_lease)
}

impl Rule for LeasesExpired {
    fn name(&self) -> &'static str {
        "leases-expired"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "Leases ended and nobody took the tasks back: whoever reclaims them is not running, or too slow.",
            "See whether the worker lives; requeue the tasks (R), then see to the reclaimer.",
        )
    }

    fn place(&self) -> Place {
        Place::Workers
    }

    /// throttled: expired leases still take slots.
    fn explains(&self) -> &'static [&'static str] {
        &["throttled"]
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let mut homes: BTreeMap<(&str, &str), Vec<(&Lease, f64)>> = BTreeMap::new();
        for lease in &ctx.snapshot.leases {
            if let Some(overdue) = expired(lease).filter(|s| *s > ctx.limits().reclaim_interval) {
                let home = (lease.system.as_str(), lease.schema.as_str());
                homes.entry(home).or_default().push((lease, overdue));
            }
        }
        homes
            .into_values()
            .filter_map(|leases| check(ctx, &leases))
            .collect()
    }
}

fn check(ctx: &Ctx, leases: &[(&Lease, f64)]) -> Option<Trigger> {
    let (oldest, overdue) = leases.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let n = leases.len() as u64;
    let whose = match (&oldest.worker, oldest.session) {
        (Some(worker), Seen::None) => format!(" ({}, gone)", name(worker)),
        (Some(worker), Seen::Seen) => format!(" ({}, connected)", name(worker)),
        (Some(worker), Seen::Unknown) => format!(" ({})", name(worker)),
        (None, _) => String::new(),
    };
    let age = if n == 1 {
        format!("{} ago", duration(*overdue))
    } else {
        format!("oldest {}", duration(*overdue))
    };
    let verb = plural(n, "lease expired", "leases expired");
    let owners: BTreeSet<_> = leases
        .iter()
        .filter_map(|(l, _)| l.worker.as_ref())
        .collect();
    let workers = ctx
        .snapshot
        .workers
        .iter()
        .filter(|w| w.system == oldest.system && w.schema == oldest.schema)
        .count();
    let brief = if owners.is_empty() || workers < owners.len() {
        format!("{} expired", count(n))
    } else {
        format!(
            "{} of {} expired",
            count(owners.len() as u64),
            count(workers as u64)
        )
    };
    let one_queue = leases.iter().all(|(l, _)| l.queue == oldest.queue);
    Some(
        Trigger::new(
            format!("{}/{}", oldest.system, oldest.schema),
            severity(ctx, oldest),
            if n == 1 {
                format!("{verb} {age}{whose}")
            } else {
                format!("{verb}, {age}{whose}")
            },
        )
        .brief(brief)
        .culprit(RowId::Task(TaskKey {
            system: oldest.system.clone(),
            schema: oldest.schema.clone(),
            queue: oldest.queue.clone(),
            id: oldest.task.clone(),
        }))
        .began(*overdue)
        .scope(if one_queue {
            Scope::queue(&oldest.system, &oldest.schema, &oldest.queue)
        } else {
            Scope::home(&oldest.system, &oldest.schema)
        })
        .weight(n as f64)
        .explains(LeasesExpired.explains()),
    )
}

/// Once one is overdue for too long, those that have just ended count too: the same incident does not become less grave
/// as its leases end one after another.
fn severity(ctx: &Ctx, one: &Lease) -> Severity {
    let home = |system: &str, schema: &str| (system, schema) == (&one.system, &one.schema);
    let mut all = (0, 0_u64);
    for queue in &ctx.snapshot.queues {
        if !home(&queue.system, &queue.schema) {
            continue;
        }
        let leases = ctx.snapshot.leases.iter().filter(|l| {
            home(&l.system, &l.schema) && l.queue == queue.queue && expired(l).is_some()
        });
        let Some(running) = queue.count(State::Running).map(|c| c.count) else {
            return Severity::Warning;
        };
        let ended = leases.count() as u64;
        all = (all.0 + ended, all.1.saturating_add(running));
        if most(ended, running) {
            return Severity::Critical;
        }
    }
    if most(all.0, all.1) {
        Severity::Critical
    } else {
        Severity::Warning
    }
}

fn most(ended: u64, running: u64) -> bool {
    ended >= MANY && ended.saturating_mul(2) >= running
}

#[cfg(test)]
mod tests {
    use super::{RowId, Seen, Severity, State};
    use crate::findings::tests::*;
    use crate::probe::Snapshot;

    const RULE: &str = "leases-expired";

    fn expired(overdue: f64) -> Snapshot {
        with(|s| s.leases = vec![lease("1", "agent-1", overdue)])
    }

    #[test]
    fn older_than_the_reclaim_interval() {
        silent(RULE, &expired(30.0));
        says(RULE, &expired(30.1));
        let mut young_and_old = expired(5.0);
        young_and_old.leases.push(lease("2", "agent-2", 45.0));
        assert_eq!(
            says(RULE, &young_and_old),
            "1 lease expired 45s ago (agent-2, gone)"
        );
    }

    #[test]
    fn the_owner_is_called_gone_only_where_that_is_known() {
        let whose = |session: Seen| {
            let mut s = expired(60.0);
            s.leases[0].session = session;
            says(RULE, &s)
        };
        assert!(whose(Seen::None).ends_with("(agent-1, gone)"));
        assert!(whose(Seen::Seen).ends_with("(agent-1, connected)"));
        assert!(whose(Seen::Unknown).ends_with("(agent-1)"));
        let mut s = expired(60.0);
        s.leases[0].worker = None;
        assert_eq!(says(RULE, &s), "1 lease expired 1m ago");
    }

    #[test]
    fn critical_where_half_of_what_runs_is_nobodys() {
        let gravity = |ended: usize, running: u64, elsewhere: u64| {
            let s = with(|s| {
                count(&mut s.queues[0], State::Running, running);
                let mut other = queue("crawler");
                count(&mut other, State::Running, elsewhere);
                s.queues.push(other);
                s.leases = (0..ended)
                    .map(|n| lease(&n.to_string(), "agent-1", if n == 0 { 60.0 } else { 1.0 }))
                    .collect();
            });
            of(RULE, &s)[0].severity
        };
        assert_eq!(gravity(3, 6, 50), Severity::Critical);
        assert_eq!(gravity(3, 7, 0), Severity::Warning);
        assert_eq!(gravity(2, 2, 0), Severity::Warning);
        assert_eq!(gravity(7, 20, 0), Severity::Warning);
    }

    #[test]
    fn the_oldest_is_the_culprit() {
        let key = task("48000", "").key;
        assert_eq!(of(RULE, &example(RULE))[0].culprit, Some(RowId::Task(key)));
    }
}
