//! Leases that ended long enough ago that somebody should have taken their tasks back.

use crate::app::row::RowId;
use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Scope, Trigger};
use crate::findings::words::{count, duration, name, plural};
use crate::probe::leases::{Lease, Seen};
use crate::probe::tasks::TaskKey;
use std::collections::{BTreeMap, BTreeSet};

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
            Severity::Warning,
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
