//! A task that kills whoever works on it: worker after worker vanishes with it.

use crate::app::row::RowId;
use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Scope, Trigger};
use crate::findings::words::{count, duration, name};

/// Different workers that must have been lost: one may have died of something else.
const WORKERS: u32 = 2;

/// See the module.
pub struct Poison;

impl Rule for Poison {
    fn name(&self) -> &'static str {
        "poison"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "Every worker that took this task vanished with it (out of memory, a crash); attempts lost in a deploy don't count.",
            "Park or cancel it before it takes the next worker, then read its payload.",
        )
    }

    fn place(&self) -> Place {
        Place::Workers
    }

    /// leases-expired: only where the expired leases are those of such tasks.
    fn explains(&self) -> &'static [&'static str] {
        &["leases-expired"]
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let least = ctx.limits().poison_attempts;
        let poison: Vec<_> = ctx
            .snapshot
            .poison
            .iter()
            .filter(|p| p.lost_attempts >= least && p.workers >= WORKERS)
            .collect();
        poison
            .iter()
            .map(|p| {
                let lost = if p.workers == p.lost_attempts {
                    format!("{} workers", count(p.workers.into()))
                } else {
                    format!(
                        "{} attempts on {} workers",
                        count(p.lost_attempts.into()),
                        count(p.workers.into())
                    )
                };
                let mut leases = ctx
                    .snapshot
                    .leases
                    .iter()
                    .filter(|l| l.system == p.key.system && l.schema == p.key.schema);
                let all = leases.all(|l| poison.iter().any(|p| p.key.id == l.task));
                let verb = if p.key.system == "agent_queue" {
                    "park it"
                } else {
                    "take it out"
                };
                Trigger::new(
                    format!("{:?}", p.key),
                    Severity::Warning,
                    format!(
                        "task {} lost {lost} in {}: {verb}",
                        name(&p.key.id),
                        duration(p.over_s)
                    ),
                )
                .brief(format!("{} lost to a task", count(p.workers.into())))
                .culprit(RowId::Task(p.key.clone()))
                .scope(Scope::queue(&p.key.system, &p.key.schema, &p.key.queue))
                .weight(f64::from(p.lost_attempts))
                .explains_if(all, &["leases-expired"])
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::tests::*;

    const RULE: &str = "poison";

    #[test]
    fn three_attempts_on_two_workers() {
        let lost = |attempts, workers| {
            let mut s = example(RULE);
            s.poison[0].lost_attempts = attempts;
            s.poison[0].workers = workers;
            s
        };
        silent(RULE, &lost(2, 2));
        silent(RULE, &lost(9, 1));
        assert!(says(RULE, &lost(3, 2)).contains("lost 3 attempts on 2 workers"));
        assert!(says(RULE, &lost(3, 3)).contains("lost 3 workers"));
    }

    #[test]
    fn the_task_is_the_culprit_and_is_parked_only_where_one_can() {
        let mut s = example(RULE);
        assert_eq!(
            of(RULE, &s)[0].culprit,
            Some(RowId::Task(task("47777", "").key))
        );
        s.poison[0].key.system = "agent_jobs".into();
        assert!(says(RULE, &s).ends_with(": take it out"));
    }
}
