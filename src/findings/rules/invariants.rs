//! Rows that a sound queue never holds: a bug in a worker or a hand-written UPDATE.

use crate::app::row::RowId;
use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Scope, Trigger, queue_row};
use crate::findings::words::{count, list, plural};
use crate::probe::queues::{Invariant, Queue, Violation};
use crate::probe::tasks::TaskKey;
use crate::probe::{Bound, State};
use std::collections::BTreeMap;

/// Ids shown in the sentence.
const IDS: usize = 3;

/// See the module.
#[derive(Default)]
pub struct Invariants {
    /// By queue: its limit, and whether it was ever kept since that limit was seen. A limit that is lowered leaves
    /// more running than it allows until they end.
    kept: BTreeMap<(String, String, String), (u32, bool)>,
}

impl Rule for Invariants {
    fn name(&self) -> &'static str {
        "invariants"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "Rows contradict each other in a way that no correct worker leaves behind.",
            "Look at the tasks named: a worker that bypasses the functions, or an UPDATE by hand, wrote them.",
        )
    }

    fn place(&self) -> Place {
        Place::Queue
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let mut kept = BTreeMap::new();
        let mut triggers = Vec::new();
        for queue in &ctx.snapshot.queues {
            let Some(limit) = queue.limit else { continue };
            let key = (
                queue.system.clone(),
                queue.schema.clone(),
                queue.queue.clone(),
            );
            let before = self.kept.get(&key).copied();
            let within = queue.n(State::Running) <= u64::from(limit);
            let was_kept = ctx.lasts || before.is_some_and(|(l, kept)| l == limit && kept);
            kept.insert(key, (limit, within || was_kept));
            let exact = queue
                .count(State::Running)
                .is_some_and(|c| c.bound != Bound::Estimate);
            if !within && was_kept && exact {
                triggers.push(above(ctx, queue, limit));
            }
        }
        self.kept = kept;
        let broken = ctx.snapshot.violations.iter().filter(|v| v.n > 0);
        triggers.extend(broken.map(|v| violation(ctx, v)));
        triggers
    }

    fn forget(&mut self) {
        self.kept.clear();
    }
}

fn above(ctx: &Ctx, queue: &Queue, limit: u32) -> Trigger {
    let name = ctx.queue_name(&queue.system, &queue.schema, &queue.queue);
    let running = count(queue.n(State::Running));
    Trigger::new(
        format!("limit/{}/{}/{}", queue.system, queue.schema, queue.queue),
        Severity::Warning,
        format!(
            "{name} runs {running}, above its limit of {}",
            count(limit.into())
        ),
    )
    .brief(format!("{running} above limit"))
    .culprit(queue_row(queue, None))
    .scope(Scope::queue(&queue.system, &queue.schema, &queue.queue))
}

fn violation(ctx: &Ctx, v: &Violation) -> Trigger {
    let tasks = |one: &str, many: &str| {
        format!(
            "{} {}",
            plural(v.n, "task", "tasks"),
            if v.n == 1 { one } else { many }
        )
    };
    let what = match v.rule {
        Invariant::RunsWithoutLease => tasks("runs without a lease", "run without a lease"),
        Invariant::RunsWithoutOwner => tasks("runs without an owner", "run without an owner"),
        Invariant::RunsWithoutAttempt => {
            tasks("runs with no open attempt", "run with no open attempt")
        }
        Invariant::ManyOpenAttempts => {
            tasks("has several open attempts", "have several open attempts")
        }
        Invariant::SucceededTwice => tasks("succeeded twice", "succeeded twice"),
        Invariant::UsageWithoutTask => plural(
            v.n,
            "usage report names no task",
            "usage reports name no task",
        ),
        Invariant::ClaimedBeforeCreated => tasks(
            "was claimed before it was created",
            "were claimed before they were created",
        ),
    };
    let ids = list(v.ids.iter().map(String::as_str), IDS, v.n);
    let sentence = if ids.is_empty() {
        what
    } else {
        format!("{what}: {ids}")
    };
    let of_tasks = v.rule != Invariant::UsageWithoutTask;
    // The queue is not told; where the row is listed, that row tells it.
    let culprit = v.ids.first().filter(|_| of_tasks).map(|id| {
        let listed = ctx
            .snapshot
            .tasks
            .rows
            .iter()
            .map(|t| &t.key)
            .find(|k| k.id == *id && k.system == v.system && k.schema == v.schema);
        RowId::Task(listed.cloned().unwrap_or_else(|| TaskKey {
            system: v.system.clone(),
            schema: v.schema.clone(),
            queue: String::new(),
            id: id.clone(),
        }))
    });
    Trigger::new(
        format!("{:?}/{}/{}", v.rule, v.system, v.schema),
        Severity::Warning,
        sentence,
    )
    .brief(format!("{} broken rows", count(v.n)))
    .culprit(culprit)
    .scope(Scope::home(&v.system, &v.schema))
    .weight(v.n as f64)
}

#[cfg(test)]
mod tests {
    use super::{Invariant, RowId, State};
    use crate::config::Config;
    use crate::findings::Tracker;
    use crate::findings::tests::*;
    use crate::probe::Snapshot;

    const RULE: &str = "invariants";

    fn see(tracker: &mut Tracker, s: f64, limit: u32, running: u64) -> bool {
        let mut snap = with(|s| {
            s.queues[0].limit = Some(limit);
            count(&mut s.queues[0], State::Running, running);
        });
        snap.taken_at = Some(at(s));
        !tracker.update(&snap).findings.is_empty()
    }

    #[test]
    fn running_above_the_limit_once_it_was_kept() {
        let mut tracker = Tracker::new(&Config::default());
        assert!(!see(&mut tracker, 0.0, 40, 40));
        assert!(!see(&mut tracker, 1.0, 40, 41));
        assert!(see(&mut tracker, 2.0, 40, 41));
    }

    #[test]
    fn a_limit_that_was_lowered_is_not_broken_by_what_runs() {
        let mut tracker = Tracker::new(&Config::default());
        see(&mut tracker, 0.0, 40, 40);
        for s in 1..20 {
            assert!(!see(&mut tracker, f64::from(s), 20, 40 - s as u64));
        }
        assert!(!see(&mut tracker, 20.0, 20, 20));
        see(&mut tracker, 21.0, 20, 22);
        assert!(see(&mut tracker, 22.0, 20, 22));
    }

    #[test]
    fn the_first_task_named_is_the_culprit_with_its_queue_where_listed() {
        let mut s = example(RULE);
        let culprit = |s: &Snapshot| of(RULE, s)[0].culprit.clone();
        let mut key = task("47101", "").key;
        key.queue.clear();
        assert_eq!(culprit(&s), Some(RowId::Task(key)));
        s.tasks.rows.push(task("47101", ""));
        assert_eq!(culprit(&s), Some(RowId::Task(task("47101", "").key)));
        s.violations[0].rule = Invariant::UsageWithoutTask;
        assert_eq!(culprit(&s), None);
        s.violations[0].n = 0;
        silent(RULE, &s);
    }
}
