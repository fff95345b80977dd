//! Work is due, nothing forbids taking it, and nobody does: a whole queue, or one kind that no worker knows.

use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Scope, Trigger, USUAL_SAMPLES, queue_row};
use crate::findings::words::{count, duration, name};
use crate::probe::State;
use crate::probe::queues::{Kind, Queue};
use crate::probe::stages::StageName;
use std::collections::BTreeMap;

/// How many times its usual wait a queue may go without a claim.
const WAITS: f64 = 5.0;
/// Due tasks, or thresholds gone by, from which on it is critical.
const MANY_DUE: u64 = 10;
const LONG: f64 = 5.0;
/// How far back the claims of a kind are looked at, in seconds.
const KIND_LOOKBACK: f64 = 3600.0;
/// What has ended is known for so long before the first look, at least, in seconds.
const KNOWN_S: f64 = 60.0;

/// What shows that a queue moves, where it does not record claims.
#[derive(Clone, Copy)]
struct Look {
    ready: u64,
    running: u64,
    oldest_s: f64,
    /// Since when nothing has shown that it does.
    still_since: f64,
}

/// See the module.
#[derive(Default)]
pub struct Stalled {
    looks: BTreeMap<(String, String, String), Look>,
}

impl Rule for Stalled {
    fn name(&self) -> &'static str {
        "stalled"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "Tasks are due and slots are free, but no worker claims: none runs, none can reach the database, or none knows this kind.",
            "See whether the workers run and what they last logged; for one kind, see which release knows it.",
        )
    }

    fn place(&self) -> Place {
        Place::Queue
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let mut looks = BTreeMap::new();
        let mut triggers = Vec::new();
        for queue in &ctx.snapshot.queues {
            let key = (
                queue.system.clone(),
                queue.schema.clone(),
                queue.queue.clone(),
            );
            let look = look(ctx, queue, self.looks.get(&key));
            looks.insert(key, look);
            let slots_free = queue
                .limit
                .is_none_or(|limit| queue.n(State::Running) < u64::from(limit));
            if queue.paused || !slots_free {
                continue;
            }
            match whole(ctx, queue, &look) {
                Some(trigger) => triggers.push(trigger),
                None => triggers.extend(queue.kinds.iter().filter_map(|k| kind(ctx, queue, k))),
            }
        }
        self.looks = looks;
        triggers
    }

    fn forget(&mut self) {
        self.looks.clear();
    }
}

fn look(ctx: &Ctx, queue: &Queue, before: Option<&Look>) -> Look {
    let now = Look {
        ready: queue.n(State::Ready),
        running: queue.n(State::Running),
        oldest_s: queue.oldest_ready_s.unwrap_or_default(),
        still_since: ctx.now,
    };
    match before {
        Some(before)
            if now.ready >= before.ready
                && now.running <= before.running
                && now.oldest_s >= before.oldest_s
                && !ends_work(queue) =>
        {
            Look {
                still_since: before.still_since,
                ..now
            }
        }
        None if queue.finished_per_min.is_some() && !ends_work(queue) => Look {
            still_since: ctx.now - KNOWN_S,
            ..now
        },
        _ => now,
    }
}

fn ends_work(queue: &Queue) -> bool {
    [queue.finished_per_min, queue.failed_attempts_per_min]
        .iter()
        .any(|n| n.is_some_and(|n| n > 0.0))
}

/// Without enough samples to know what is usual, the longest wait seen stands in for it; without any, the
/// threshold stands alone: a queue that nobody has ever claimed from has no samples.
fn patience(ctx: &Ctx, queue: &Queue, kind: Option<&str>) -> f64 {
    let stage = ctx
        .stage(queue, kind, StageName::Wait)
        .filter(|s| s.n > 0)
        .or_else(|| ctx.stage(queue, None, StageName::Wait))
        .filter(|s| s.n > 0);
    let usual = stage.and_then(|s| {
        if s.n >= USUAL_SAMPLES {
            s.p50_s
        } else {
            s.max_s
        }
    });
    (WAITS * usual.unwrap_or_default()).max(ctx.limits().stalled)
}

fn whole(ctx: &Ctx, queue: &Queue, look: &Look) -> Option<Trigger> {
    let due = queue.n(State::Ready).saturating_sub(queue.locked.into());
    let oldest = queue.oldest_ready_s?;
    let still = match queue.last_claim_s {
        Some(since) => since,
        None if ctx.lasts && !ends_work(queue) => f64::INFINITY,
        None => ctx.now - look.still_since,
    };
    let patience = patience(ctx, queue, None);
    if due == 0 || oldest < patience || still < patience {
        return None;
    }
    let workers = ctx
        .snapshot
        .workers
        .iter()
        .filter(|w| w.system == queue.system && w.schema == queue.schema)
        .count();
    let claim = match queue.last_claim_s {
        Some(since) => format!("no claim in {}", duration(since)),
        None => "nobody claims".into(),
    };
    let nobody = if workers == 0 { ", no worker seen" } else { "" };
    let still = still.min(oldest);
    Some(
        Trigger::new(
            format!("{}/{}/{}", queue.system, queue.schema, queue.queue),
            if due >= MANY_DUE || still >= LONG * patience {
                Severity::Critical
            } else {
                Severity::Warning
            },
            format!(
                "{}: {}{} due, oldest {}; {claim}{nobody}",
                ctx.queue_name(&queue.system, &queue.schema, &queue.queue),
                count(due),
                queue.plus(State::Ready),
                duration(oldest)
            ),
        )
        .brief(format!("no claim in {}", duration(still)))
        .culprit(queue_row(queue, None))
        .began(still)
        .scope(Scope::queue(&queue.system, &queue.schema, &queue.queue))
        .weight(due as f64),
    )
}

/// A kind waits although no other kind that is being claimed has older tasks: it is not merely its turn that has
/// not come.
fn kind(ctx: &Ctx, queue: &Queue, kind: &Kind) -> Option<Trigger> {
    let oldest = kind.oldest_ready_s?;
    let still = kind.last_claim_s.unwrap_or(KIND_LOOKBACK);
    let patience = patience(ctx, queue, Some(&kind.kind));
    if kind.ready == 0 || oldest < patience || still < patience {
        return None;
    }
    let its_turn_comes = queue.kinds.iter().any(|other| {
        other.kind != kind.kind
            && other.last_claim_s.is_some_and(|s| s < still)
            && other.oldest_ready_s.is_some_and(|s| s > oldest)
    });
    if its_turn_comes {
        return None;
    }
    let label = if ctx.snapshot.queues.len() > 1 {
        let queue = ctx.queue_name(&queue.system, &queue.schema, &queue.queue);
        format!("{queue}: ")
    } else {
        String::new()
    };
    Some(
        Trigger::new(
            format!(
                "{}/{}/{}/{}",
                queue.system, queue.schema, queue.queue, kind.kind
            ),
            Severity::Warning,
            format!(
                "{label}{} {} due {}; no worker claimed this kind in {}",
                count(kind.ready.into()),
                name(&kind.kind),
                duration(oldest),
                duration(still)
            ),
        )
        .brief(format!("no {} claimed", name(&kind.kind)))
        .culprit(queue_row(queue, Some(&kind.kind)))
        .began(still.min(oldest))
        .scope(Scope::queue(&queue.system, &queue.schema, &queue.queue))
        .weight(f64::from(kind.ready)),
    )
}

#[cfg(test)]
mod tests {
    use super::{Kind, Queue, Severity, State, queue_row};
    use crate::config::Config;
    use crate::findings::Tracker;
    use crate::findings::tests::*;
    use crate::probe::Snapshot;

    const RULE: &str = "stalled";

    fn stalled(change: impl FnOnce(&mut Queue)) -> Snapshot {
        let mut s = example(RULE);
        change(&mut s.queues[0]);
        s
    }

    fn kinds(change: impl FnOnce(&mut Vec<Kind>)) -> Snapshot {
        let mut s = example("stalled kind");
        change(&mut s.queues[0].kinds);
        s
    }

    #[test]
    fn a_minute_without_a_claim_while_unlocked_work_is_due_and_slots_are_free() {
        says(
            RULE,
            &stalled(|q| (q.oldest_ready_s, q.last_claim_s) = (Some(60.0), Some(60.0))),
        );
        silent(RULE, &stalled(|q| q.last_claim_s = Some(59.0)));
        silent(RULE, &stalled(|q| q.oldest_ready_s = Some(59.0)));
        silent(RULE, &stalled(|q| q.oldest_ready_s = None));
        silent(RULE, &stalled(|q| q.paused = true));
        silent(RULE, &stalled(|q| q.locked = 5012));
        silent(RULE, &stalled(|q| count(q, State::Ready, 0)));
        silent(RULE, &stalled(|q| count(q, State::Running, 40)));
        says(RULE, &stalled(|q| count(q, State::Running, 39)));
        says(RULE, &stalled(|q| q.limit = None));
    }

    #[test]
    fn a_queue_that_usually_waits_long_is_given_five_times_that() {
        let usual = |p50: f64, n: u64| {
            let mut s = stalled(|q| q.last_claim_s = Some(300.0));
            s.stages[0].p50_s = Some(p50);
            s.stages[0].max_s = Some(10.0 * p50);
            s.stages[0].n = n;
            s
        };
        says(RULE, &usual(60.0, 50));
        silent(RULE, &usual(61.0, 50));
        // Too few samples: the longest of them stands for the usual.
        silent(RULE, &usual(60.0, 49));
        says(RULE, &usual(6.0, 49));
        says(RULE, &usual(61.0, 0));
    }

    #[test]
    fn few_and_young_is_not_critical_yet() {
        let gravity = |due: u64, claim: f64| {
            let s = stalled(|q| {
                count(q, State::Ready, due);
                q.last_claim_s = Some(claim);
            });
            of(RULE, &s)[0].severity
        };
        assert_eq!(gravity(9, 299.0), Severity::Warning);
        assert_eq!(gravity(10, 299.0), Severity::Critical);
        assert_eq!(gravity(9, 300.0), Severity::Critical);
    }

    #[test]
    fn where_claims_are_not_recorded_only_what_stands_still_is_stalled() {
        let fires = |change: fn(u32, &mut Queue)| {
            let mut tracker = Tracker::new(&Config::default());
            let mut first = None;
            for s in 0..100 {
                let mut snap = stalled(|q| {
                    q.last_claim_s = None;
                    q.finished_per_min = Some(0.0);
                    q.failed_attempts_per_min = None;
                    q.oldest_ready_s = Some(100.0 + f64::from(s));
                    change(s, q);
                });
                snap.taken_at = Some(at(f64::from(s)));
                if !tracker.update(&snap).findings.is_empty() {
                    first.get_or_insert(s);
                }
            }
            first
        };
        let once = |done| stalled(|q| (q.last_claim_s, q.finished_per_min) = (None, done));
        silent(RULE, &once(Some(0.2)));
        let mut still = once(Some(0.0));
        still.queues[0].failed_attempts_per_min = None;
        says(RULE, &still);
        // The minute before the first look is known where it is known what ended in it.
        assert_eq!(fires(|_, _| {}), Some(1));
        assert_eq!(fires(|_, q| q.finished_per_min = None), Some(61));
        assert_eq!(
            fires(|s, q| {
                q.finished_per_min = None;
                if s == 30 {
                    count(q, State::Ready, 5000);
                }
            }),
            Some(91)
        );
        assert_eq!(
            fires(|s, q| q.oldest_ready_s = Some(100.0 - f64::from(s) / 10.0)),
            None
        );
        assert_eq!(fires(|_, q| q.finished_per_min = Some(0.2)), None);
        assert_eq!(
            fires(|s, q| count(q, State::Running, u64::from(s % 30))),
            None
        );
    }

    #[test]
    fn a_kind_that_nobody_takes_while_others_go() {
        says(RULE, &kinds(|_| {}));
        silent(RULE, &kinds(|k| k[0].oldest_ready_s = Some(59.0)));
        silent(RULE, &kinds(|k| k[0].last_claim_s = Some(59.0)));
        says(RULE, &kinds(|k| k[0].last_claim_s = Some(60.0)));
        silent(RULE, &kinds(|k| k[0].ready = 0));
        // First come, first served, and its turn has not come.
        silent(RULE, &kinds(|k| k[1].oldest_ready_s = Some(1300.0)));
        let culprit = of(RULE, &kinds(|_| {}))[0].culprit.clone();
        assert_eq!(culprit, Some(queue_row(&queue("parser"), Some("pdf_v2"))));
    }

    #[test]
    fn the_whole_queue_speaks_for_its_kinds() {
        let mut s = example("stalled kind");
        s.queues[0].oldest_ready_s = Some(1200.0);
        s.queues[0].last_claim_s = Some(1200.0);
        assert!(says(RULE, &s).starts_with("parser: 4 due"));
    }
}
