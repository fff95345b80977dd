//! Nothing arrives any more: whoever enqueues has stopped, and an empty queue looks like a healthy one.

use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Scope, Trigger, queue_row};
use crate::findings::words::duration;
use crate::probe::queues::Queue;

/// How many times the longest gap must have passed.
const GAPS: f64 = 3.0;
/// History below which nothing is said, in seconds: a day, so that nights are known. No more than that is kept, by the
/// minute: what is known may be a moment short of it.
const HISTORY: f64 = 86_400.0 - 60.0;

/// See the module.
pub struct InflowStopped;

impl Rule for InflowStopped {
    fn name(&self) -> &'static str {
        "inflow-stopped"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "No task arrived for three times the longest gap of the last day.",
            "See whether the enqueuer runs: the scheduler, the webhook, the API before it.",
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
    let (last, gap) = (queue.last_arrival_s?, queue.longest_gap_s?);
    // The gap that is open now is not one of the usual ones.
    if queue.arrival_history_s < HISTORY
        || last <= GAPS * gap
        || last < ctx.limits().inflow_stopped
        || queue.paused
    {
        return None;
    }
    Some(
        Trigger::new(
            format!("{}/{}/{}", queue.system, queue.schema, queue.queue),
            Severity::Warning,
            format!(
                "{}: last task in {} ago; longest usual gap {}",
                ctx.queue_name(&queue.system, &queue.schema, &queue.queue),
                duration(last),
                duration(gap)
            ),
        )
        .brief(format!("last in {} ago", duration(last)))
        .culprit(queue_row(queue, None))
        .began(last)
        .scope(Scope::queue(&queue.system, &queue.schema, &queue.queue)),
    )
}

#[cfg(test)]
mod tests {
    use crate::findings::tests::*;
    use crate::probe::Snapshot;

    const RULE: &str = "inflow-stopped";

    fn stopped(last: f64, gap: f64, history: f64) -> Snapshot {
        with(|s| {
            let q = &mut s.queues[0];
            (q.last_arrival_s, q.longest_gap_s) = (Some(last), Some(gap));
            q.arrival_history_s = history;
        })
    }

    #[test]
    fn three_times_the_longest_gap_and_five_minutes_of_a_known_day() {
        says(RULE, &stopped(901.0, 300.0, 86_400.0));
        silent(RULE, &stopped(900.0, 300.0, 86_400.0));
        silent(RULE, &stopped(299.0, 1.0, 86_400.0));
        says(RULE, &stopped(300.0, 1.0, 86_400.0));
        silent(RULE, &stopped(9e4, 300.0, 86_339.0));
    }

    #[test]
    fn unknown_or_paused_is_silent() {
        let mut s = stopped(901.0, 300.0, 86_400.0);
        s.queues[0].paused = true;
        silent(RULE, &s);
        let mut s = stopped(901.0, 300.0, 86_400.0);
        s.queues[0].longest_gap_s = None;
        silent(RULE, &s);
    }
}
