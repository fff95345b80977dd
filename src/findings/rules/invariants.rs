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
            let was_kept = ctx.once || before.is_some_and(|(l, kept)| l == limit && kept);
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
