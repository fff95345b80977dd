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

/// Seconds without data from which on the tasks seen before and after are no longer held to their usual.
const GAP: f64 = 10.0;
/// Seconds beyond a usual run that tasks from before an interruption are given to end.
const GRACE: f64 = 10.0;

/// See the module. Tasks that ran through an outage are late because of it: until they have had time to end, the rule is
/// silent.
#[derive(Default)]
pub struct SlowOutside {
    /// The time and our backend's pid at the last look.
    last: Option<(f64, i32)>,
    /// Since when data has come without interruption; `None` where it always has.
    back_at: Option<f64>,
    /// Time was lost before the next look.
    torn: bool,
}

impl SlowOutside {
    /// When the last interruption ended: data came again, over another session, or from a server that had just started.
    fn look(&mut self, ctx: &Ctx) -> Option<f64> {
        let pid = ctx.snapshot.own.pid;
        let gap = GAP.max(3.0 * ctx.config.interval.max(ctx.snapshot.own.interval_s));
        let cut = |(at, before): (f64, i32)| ctx.now - at > gap || before != pid;
        if std::mem::take(&mut self.torn) || self.last.is_some_and(cut) {
            self.back_at = Some(ctx.now);
        }
        self.last = Some((ctx.now, pid));
        let started = ctx.snapshot.server.started_at.map(|t| t.epoch());
        let started = started.filter(|at| *at <= ctx.now);
        self.back_at.into_iter().chain(started).reduce(f64::max)
    }
}

/// The longest usual run of a queue's kinds, in seconds.
fn longest_usual(ctx: &Ctx, queue: &Queue) -> f64 {
    let of_queue = ctx.snapshot.stages.iter().filter(|s| {
        s.stage == StageName::Run
            && s.queue == queue.queue
            && s.system == queue.system
            && s.schema == queue.schema
    });
    of_queue.filter_map(|s| s.p95_s).fold(0.0, f64::max)
}

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
        let back_at = self.look(ctx);
        if !postgres_is_idle(ctx) {
            return Vec::new();
        }
        ctx.snapshot
            .queues
            .iter()
            .filter(|queue| known(ctx, queue))
            .filter(|queue| {
                back_at.is_none_or(|at| ctx.now - at > longest_usual(ctx, queue) + GRACE)
            })
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

    fn forget(&mut self) {
        self.last = None;
        self.torn = true;
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::findings::Tracker;
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

    /// Looks once a second from `from` to `to`, over the session of that pid; when did it speak first and last?
    fn watch(tracker: &mut Tracker, from: i32, to: i32, pid: i32) -> Option<(i32, i32)> {
        let spoke = (from..=to).filter(|s| {
            let mut snap = slow(3, 6);
            snap.taken_at = Some(at(f64::from(*s)));
            snap.own.pid = pid;
            let said = tracker.update(&snap).findings;
            said.iter()
                .any(|f| f.rule == RULE && f.severity > crate::findings::Severity::Info)
        });
        let spoke: Vec<i32> = spoke.collect();
        Some((*spoke.first()?, *spoke.last()?))
    }

    #[test]
    fn tasks_that_ran_through_an_outage_prove_nothing() {
        // the usual is 19 s, and ten more; believed at the second look
        let mut tracker = Tracker::new(&Config::default());
        assert_eq!(watch(&mut tracker, 0, 20, 1), Some((1, 20)));
        let mut tracker = Tracker::new(&Config::default());
        watch(&mut tracker, 0, 0, 1);
        assert_eq!(watch(&mut tracker, 3, 40, 2), Some((34, 40)), "reconnected");
        let mut tracker = Tracker::new(&Config::default());
        watch(&mut tracker, 0, 0, 1);
        assert_eq!(watch(&mut tracker, 11, 50, 1), Some((42, 50)), "no data");
        let mut tracker = Tracker::new(&Config::default());
        watch(&mut tracker, 0, 0, 1);
        assert_eq!(watch(&mut tracker, 100, 140, 1), Some((131, 140)), "torn");

        let mut fresh = slow(3, 6);
        fresh.server.started_at = Some(at(-29.0));
        silent(RULE, &fresh);
        fresh.server.started_at = Some(at(-29.5));
        says(RULE, &fresh);
        fresh.server.started_at = Some(at(60.0));
        says(RULE, &fresh);
    }
}
