//! Work takes longer than usual while Postgres has nothing to do: whatever the workers wait for is elsewhere.

use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Scope, Trigger, USUAL_SAMPLES, queue_row};
use crate::findings::words::{count, duration};
use crate::probe::queues::Queue;
use crate::probe::stages::StageName;

/// Tasks that must be running, and the share of them over their usual.
const RUNNING: u32 = 5;
const SHARE: f64 = 0.5;
/// Cores assumed where the server's machine is another one: few, so that the rule stays silent rather than wrong.
const CORES: u32 = 4;

/// See the module.
pub struct SlowOutside;

/// Does the database have nothing to do with it: no lock waited for, and at most half the cores busy?
pub fn postgres_is_idle(ctx: &Ctx) -> bool {
    let waits = &ctx.snapshot.waits;
    let locks = waits.iter().any(|w| w.kind == "Lock" && w.sessions > 0);
    let active: u64 = waits.iter().map(|w| u64::from(w.sessions)).sum();
    let cores = ctx.snapshot.server.cores.unwrap_or(CORES).max(2);
    !locks && ctx.snapshot.blocked.is_empty() && active <= u64::from(cores / 2)
}

/// Are there enough runs to call any of them usual?
fn known(ctx: &Ctx, queue: &Queue) -> bool {
    ctx.stage(queue, None, StageName::Run)
        .is_none_or(|run| run.n >= USUAL_SAMPLES)
}

/// Do most tasks of a queue run longer than usual? How many, of how many.
pub fn over_usual(queue: &Queue) -> Option<(u32, u32)> {
    let (over, of) = (queue.over_usual?, queue.over_usual_of);
    (of >= RUNNING && f64::from(over) >= SHARE * f64::from(of)).then_some((over, of))
}

impl Rule for SlowOutside {
    fn name(&self) -> &'static str {
        "slow-outside"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "Most running tasks are past their usual time while Postgres is idle: the wait is in a model provider, an API or the network.",
            "Look at the provider's status and the workers' own traces; more workers or connections will not help.",
        )
    }

    fn place(&self) -> Place {
        Place::Outside
    }

    /// * throttled: slots are held longer, so fewer tasks pass.
    /// * failing: only where the commonest error is a time-out.
    fn explains(&self) -> &'static [&'static str] {
        &["failing", "throttled"]
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        if !postgres_is_idle(ctx) {
            return Vec::new();
        }
        ctx.snapshot
            .queues
            .iter()
            .filter(|queue| known(ctx, queue))
            .filter_map(|queue| {
                let (over, of) = over_usual(queue)?;
                let usual = ctx
                    .usual(queue, None, StageName::Run)
                    .and_then(|s| s.p95_s)
                    .map_or(String::new(), |p95| format!(" {}", duration(p95)));
                let label = if ctx.snapshot.queues.len() > 1 {
                    let name = ctx.queue_name(&queue.system, &queue.schema, &queue.queue);
                    format!("{name}: ")
                } else {
                    String::new()
                };
                let times_out = ctx.snapshot.attempts.iter().any(|a| {
                    let error = a.error.as_deref().unwrap_or_default().to_lowercase();
                    a.schema == queue.schema
                        && a.system == queue.system
                        && ["timeout", "timed out", "deadline"]
                            .iter()
                            .any(|word| error.contains(word))
                });
                Some(
                    Trigger::new(
                        format!("{}/{}/{}", queue.system, queue.schema, queue.queue),
                        Severity::Warning,
                        format!(
                            "{label}{} of {} run past their usual{usual} while Postgres is idle: look outside",
                            count(over.into()),
                            count(of.into())
                        ),
                    )
                    .brief(format!("{over} of {of} runs over usual"))
                    .culprit(queue_row(queue, None))
                    .scope(Scope::queue(&queue.system, &queue.schema, &queue.queue))
                    .weight(f64::from(over))
                    .explains(&["throttled"])
                    .explains_if(times_out, &["failing"]),
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::findings::tests::*;
    use crate::probe::Snapshot;

    const RULE: &str = "slow-outside";

    fn slow(over: u32, of: u32) -> Snapshot {
        with(|s| {
            s.queues[0].over_usual = Some(over);
            s.queues[0].over_usual_of = of;
        })
    }

    #[test]
    fn half_of_at_least_five() {
        silent(RULE, &slow(4, 4));
        says(RULE, &slow(3, 5));
        silent(RULE, &slow(2, 5));
        says(RULE, &slow(20, 40));
        silent(RULE, &slow(19, 40));
    }

    #[test]
    fn silent_while_postgres_has_a_hand_in_it() {
        let mut s = slow(38, 40);
        s.waits = vec![wait("CPU", 2)];
        says(RULE, &s);
        s.waits = vec![wait("CPU", 2), wait("IO", 1)];
        silent(RULE, &s);
        s.waits = vec![wait("Lock", 1)];
        silent(RULE, &s);
        s.waits.clear();
        s.blocked = vec![blocked(2, &[1], 1.0)];
        silent(RULE, &s);
    }

    #[test]
    fn where_the_cores_are_unknown_few_are_assumed() {
        let mut s = slow(38, 40);
        s.server.cores = None;
        s.waits = vec![wait("CPU", 3)];
        silent(RULE, &s);
        s.waits = vec![wait("CPU", 2)];
        says(RULE, &s);
    }

    #[test]
    fn nothing_is_usual_below_50_runs() {
        let mut s = slow(38, 40);
        s.stages[1].n = 49;
        silent(RULE, &s);
        s.stages[1].n = 50;
        assert!(says(RULE, &s).contains("their usual 19s"));
        s.queues[0].over_usual = None;
        silent(RULE, &s);
    }
}
