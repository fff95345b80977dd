//! A cancel was asked for, and the worker has not said that it heard.

use crate::app::row::RowId;
use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Scope, Trigger};
use crate::findings::words::{count, duration, name};
use crate::probe::State;
use crate::probe::tasks::TaskKey;
use std::collections::BTreeMap;

/// A task, how long ago its cancel was asked for, and whose it is.
type Asked<'a> = (TaskKey, f64, Option<&'a str>);

/// See the module.
pub struct CancelUnheard;

impl Rule for CancelUnheard {
    fn name(&self) -> &'static str {
        "cancel-unheard"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "Cancelling a running task is a request; this worker has not acknowledged it.",
            "See whether the worker lives and sends heartbeats: their answer carries the request.",
        )
    }

    fn place(&self) -> Place {
        Place::Workers
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let mut asked: BTreeMap<TaskKey, (f64, Option<&str>)> = BTreeMap::new();
        for task in &ctx.snapshot.tasks.rows {
            let age = task
                .cancel_requested_at
                .zip(ctx.snapshot.taken_at)
                .and_then(|(at, now)| now.since(at));
            if let (State::Running, Some(age)) = (task.state, age) {
                asked.insert(task.key.clone(), (age, task.worker.as_deref()));
            }
        }
        for lease in &ctx.snapshot.leases {
            if let Some(age) = lease.cancel_requested_s {
                let key = TaskKey {
                    system: lease.system.clone(),
                    schema: lease.schema.clone(),
                    queue: lease.queue.clone(),
                    id: lease.task.clone(),
                };
                asked.insert(key, (age, lease.worker.as_deref()));
            }
        }
        asked.retain(|_, (age, _)| *age >= ctx.limits().cancel_unheard);
        let mut homes: BTreeMap<(String, String), Vec<Asked>> = BTreeMap::new();
        for (key, (age, worker)) in asked {
            let home = (key.system.clone(), key.schema.clone());
            homes.entry(home).or_default().push((key, age, worker));
        }
        homes.into_values().filter_map(|a| trigger(&a)).collect()
    }
}

fn trigger(asked: &[Asked]) -> Option<Trigger> {
    let (key, age, worker) = asked.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let by = worker.map_or(String::new(), |w| format!(" by {}", name(w)));
    let more = match asked.len() - 1 {
        0 => String::new(),
        n => format!("; {} more", count(n as u64)),
    };
    Some(
        Trigger::new(
            format!("{}/{}", key.system, key.schema),
            Severity::Warning,
            format!(
                "cancel of {} asked {} ago, not acknowledged{by}{more}",
                name(&key.id),
                duration(*age)
            ),
        )
        .brief(format!("{} cancel unheard", count(asked.len() as u64)))
        .culprit(RowId::Task(key.clone()))
        .began(*age)
        .scope(Scope::home(&key.system, &key.schema))
        .weight(asked.len() as f64),
    )
}

#[cfg(test)]
mod tests {
    use super::{RowId, State};
    use crate::findings::tests::*;
    use crate::probe::Snapshot;

    const RULE: &str = "cancel-unheard";

    fn asked(s: f64) -> Snapshot {
        let mut snap = example(RULE);
        snap.tasks.rows[0].cancel_requested_at = Some(at(-s));
        snap
    }

    #[test]
    fn a_minute_without_an_answer() {
        silent(RULE, &asked(59.9));
        says(RULE, &asked(60.0));
        let mut done = asked(90.0);
        done.tasks.rows[0].state = State::Cancelled;
        silent(RULE, &done);
    }

    #[test]
    fn expired_leases_are_asked_about_too_and_no_task_counts_twice() {
        let mut s = asked(90.0);
        s.leases = vec![lease("48031", "agent-2", 5.0), lease("7", "agent-3", 5.0)];
        s.leases[0].cancel_requested_s = Some(90.0);
        s.leases[1].cancel_requested_s = Some(130.0);
        assert_eq!(
            says(RULE, &s),
            "cancel of 7 asked 2m ago, not acknowledged by agent-3; 1 more"
        );
    }

    #[test]
    fn the_task_is_the_culprit() {
        let culprit = of(RULE, &example(RULE))[0].culprit.clone();
        assert_eq!(culprit, Some(RowId::Task(task("48031", "").key)));
    }
}
