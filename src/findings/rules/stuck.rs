//! Running tasks that will never end by themselves and have no lease that could: a NULL lease, or a claim older
//! than their system allows.

use super::leases_expired::expired;
use crate::app::row::RowId;
use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Scope, Trigger};
use crate::findings::words::{count, duration, list, name};
use crate::probe::leases::Lease;
use crate::probe::tasks::TaskKey;
use std::collections::BTreeMap;

/// Ids shown in the sentence.
const IDS: usize = 3;

/// See the module.
pub struct Stuck;

impl Rule for Stuck {
    fn name(&self) -> &'static str {
        "stuck"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "Running tasks that their queue's own rule calls stuck, without a lease whose end would free them.",
            "Make sure that no worker still works on them, then requeue them (R).",
        )
    }

    fn place(&self) -> Place {
        Place::Workers
    }

    /// throttled: stuck tasks still take slots.
    fn explains(&self) -> &'static [&'static str] {
        &["throttled"]
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let mut groups: BTreeMap<(&str, &str, &str, &str), Vec<&Lease>> = BTreeMap::new();
        for lease in ctx.snapshot.leases.iter().filter(|l| expired(l).is_none()) {
            groups
                .entry((&lease.system, &lease.schema, &lease.queue, &lease.rule))
                .or_default()
                .push(lease);
        }
        groups
            .into_iter()
            .map(|((system, schema, queue, rule), leases)| {
                let n = leases.len() as u64;
                let overdue = leases.iter().filter_map(|l| l.overdue_s).fold(None, max);
                let since = overdue.map_or(String::new(), |s| format!(" for {}", duration(s)));
                let reason = if rule.is_empty() {
                    "no lease".into()
                } else {
                    name(&rule.replace('_', " "))
                };
                Trigger::new(
                    format!("{system}/{schema}/{queue}/{rule}"),
                    Severity::Warning,
                    format!(
                        "{}: {} stuck{since} ({reason}): {}",
                        ctx.queue_name(system, schema, queue),
                        count(n),
                        list(leases.iter().map(|l| l.task.as_str()), IDS, n)
                    ),
                )
                .brief(format!("{} stuck", count(n)))
                .culprit(leases.first().map(|l| {
                    RowId::Task(TaskKey {
                        system: system.into(),
                        schema: schema.into(),
                        queue: queue.into(),
                        id: l.task.clone(),
                    })
                }))
                .began(overdue)
                .scope(Scope::queue(system, schema, queue))
                .weight(n as f64)
                .explains(Stuck.explains())
            })
            .collect()
    }
}

fn max(a: Option<f64>, b: f64) -> Option<f64> {
    Some(a.map_or(b, |a| a.max(b)))
}

#[cfg(test)]
mod tests {
    use crate::findings::tests::*;

    const RULE: &str = "stuck";

    #[test]
    fn leases_with_an_end_are_not_meant() {
        silent(RULE, &example("leases-expired"));
        says(RULE, &example(RULE));
    }

    #[test]
    fn each_rule_of_each_queue_is_told_apart() {
        let mut s = example(RULE);
        s.leases[0].rule = "claimed_too_long".into();
        s.leases[1].queue = "crawler".into();
        assert_eq!(of(RULE, &s).len(), 3);
    }

    #[test]
    fn the_leases_rule_is_silent_about_them() {
        silent("leases-expired", &example(RULE));
    }
}
