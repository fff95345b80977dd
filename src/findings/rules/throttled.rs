//! A queue runs as much as it may, and that is not enough.

use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Scope, Trigger, queue_row};
use crate::findings::words::{count, duration};
use crate::probe::State;
use crate::probe::queues::Queue;
use crate::probe::stages::StageName;

/// Seconds of waiting below which nobody minds: a batch that just came in.
const SHORT: f64 = 5.0;
/// Share of the slots that live workers must hold; where it is less, the leases are the story.
const LIVE: f64 = 0.8;

/// See the module.
pub struct Throttled;

impl Rule for Throttled {
    fn name(&self) -> &'static str {
        "throttled"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "All slots of the queue are taken by live workers and tasks wait longer than usual: the limit sets the pace.",
            "Raise the queue's limit if the provider and the connections allow it, or let it drain.",
        )
    }

    fn place(&self) -> Place {
        Place::Queue
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        ctx.snapshot
            .queues
            .iter()
            .filter_map(|queue| check(ctx, queue))
            .collect()
    }
}

fn check(ctx: &Ctx, queue: &Queue) -> Option<Trigger> {
    let limit = queue.limit.filter(|limit| *limit > 0)?;
    let dead = ctx
        .snapshot
        .leases
        .iter()
        .filter(|l| l.system == queue.system && l.schema == queue.schema && l.queue == queue.queue)
        .count();
    let live = f64::from(limit) - dead as f64;
    let ready = queue.n(State::Ready);
    if queue.paused
        || ready == 0
        || queue.n(State::Running) < u64::from(limit)
        || live < LIVE * f64::from(limit)
    {
        return None;
    }
    let usual = ctx.usual(queue, None, StageName::Wait)?.p95_s?;
    if queue.oldest_ready_s? <= usual.max(SHORT) {
        return None;
    }
    let drain = drain_s(queue);
    let pace = match (drain, queue.finished_per_min) {
        (Some(seconds), _) => format!("drain {}", duration(seconds)),
        (None, Some(done)) if done > 0.0 => "more arrive than are done".into(),
        _ => "no drain in sight".into(),
    };
    let name = ctx.queue_name(&queue.system, &queue.schema, &queue.queue);
    Some(
        Trigger::new(
            format!("{}/{}/{}", queue.system, queue.schema, queue.queue),
            Severity::Warning,
            format!(
                "{name} runs at its limit of {}; {} wait, {pace}",
                count(limit.into()),
                count(ready)
            ),
        )
        .brief(format!("{} wait at the limit", count(ready)))
        .culprit(queue_row(queue, None))
        .scope(Scope::queue(&queue.system, &queue.schema, &queue.queue))
        .weight(ready as f64),
    )
}

/// Seconds until nothing is ready at the present pace; `None` where that never happens.
fn drain_s(queue: &Queue) -> Option<f64> {
    let net = queue.finished_per_min? - queue.in_per_min.unwrap_or_default();
    let seconds = queue.n(State::Ready) as f64 / net * 60.0;
    (net > 0.0 && seconds.is_finite()).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::{Queue, State};
    use crate::findings::tests::*;
    use crate::probe::Snapshot;

    const RULE: &str = "throttled";

    fn throttled(change: impl FnOnce(&mut Queue)) -> Snapshot {
        let mut s = example(RULE);
        change(&mut s.queues[0]);
        s
    }

    #[test]
    fn at_the_limit_and_waiting_longer_than_usual() {
        says(RULE, &throttled(|q| q.oldest_ready_s = Some(8.1)));
        silent(RULE, &throttled(|q| q.oldest_ready_s = Some(8.0)));
        silent(RULE, &throttled(|q| count(q, State::Running, 39)));
        silent(RULE, &throttled(|q| q.limit = None));
        silent(RULE, &throttled(|q| count(q, State::Ready, 0)));
        silent(RULE, &throttled(|q| q.paused = true));
    }

    #[test]
    fn silent_below_50_samples() {
        let mut s = example(RULE);
        s.stages[0].n = 49;
        silent(RULE, &s);
    }

    #[test]
    fn slots_that_expired_leases_take_are_not_the_limits_fault() {
        let dead = |n: usize| {
            let mut s = example(RULE);
            s.leases = (0..n).map(|n| lease(&n.to_string(), "a", 1.0)).collect();
            s
        };
        says(RULE, &dead(8));
        silent(RULE, &dead(9));
    }

    #[test]
    fn the_forecast_is_honest() {
        let pace = |done, arrive| {
            says(
                RULE,
                &throttled(|q| (q.finished_per_min, q.in_per_min) = (done, arrive)),
            )
        };
        assert!(pace(Some(212.0), Some(26.0)).ends_with("drain 26m"));
        assert!(pace(Some(212.0), None).ends_with("drain 23m"));
        assert!(pace(Some(212.0), Some(212.0)).ends_with("more arrive than are done"));
        assert!(pace(Some(0.0), Some(5.0)).ends_with("no drain in sight"));
        assert!(pace(None, None).ends_with("no drain in sight"));
    }
}
