//! Live leases whose owners have vanished: nobody works on them, and nobody else may until they end.
//!
//! Evidence only. A missing session proves nothing by itself, since good workers give their connection back while
//! they wait for a model; so the rule speaks only where sessions tell about workers: where most workers were seen
//! by name, and hardly any came back after an absence.

use crate::app::row::RowId;
use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Scope, Trigger};
use crate::findings::words::{count, duration, name, precise};
use crate::probe::State;
use crate::probe::leases::{Seen, Worker};
use std::collections::{BTreeMap, BTreeSet};

/// Share of a system's workers that must have been seen by name.
const MATCHED: f64 = 0.8;
/// Workers that came back from an absence within `REMEMBER` seconds, from which on absence means nothing.
const CAME_BACK: usize = 2;
const REMEMBER: f64 = 600.0;

type Home<'a> = (&'a str, &'a str);

/// See the module.
#[derive(Default)]
pub struct OwnersGone {
    /// Workers that were absent at the last look, by system, schema and name.
    absent: BTreeSet<(String, String, String)>,
    /// When which came back.
    back: BTreeMap<(String, String, String), f64>,
}

impl Rule for OwnersGone {
    fn name(&self) -> &'static str {
        "owners-gone"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "Sessions of workers that hold leases are gone: their tasks rest until the leases end.",
            "See whether the workers crashed or were redeployed; a task can be requeued once its lease has expired, not before.",
        )
    }

    fn place(&self) -> Place {
        Place::Workers
    }

    /// * throttled: the slots are taken by nobody.
    /// * leases-expired, cancel-unheard: where it is the vanished workers' leases that ended, and cancels that they
    ///   will never hear.
    /// * stalled: where at least half of the workers vanished.
    /// * slow-outside: where at least half of what seems to run is theirs, and so never ends.
    fn explains(&self) -> &'static [&'static str] {
        &[
            "leases-expired",
            "slow-outside",
            "stalled",
            "throttled",
            "cancel-unheard",
        ]
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let mut homes: BTreeMap<Home, Vec<&Worker>> = BTreeMap::new();
        for worker in &ctx.snapshot.workers {
            let home = (worker.system.as_str(), worker.schema.as_str());
            homes.entry(home).or_default().push(worker);
        }
        self.watch_returns(ctx);
        homes
            .into_iter()
            .filter(|(home, _)| !self.absence_means_nothing(home))
            .filter_map(|(home, workers)| check(ctx, home, &workers))
            .collect()
    }

    fn forget(&mut self) {
        self.absent.clear();
        self.back.clear();
    }
}

impl OwnersGone {
    fn watch_returns(&mut self, ctx: &Ctx) {
        let mut absent = BTreeSet::new();
        for worker in &ctx.snapshot.workers {
            let key = (
                worker.system.clone(),
                worker.schema.clone(),
                worker.worker.clone(),
            );
            if gone(ctx, worker) {
                absent.insert(key);
            } else if worker.session == Seen::Seen && self.absent.contains(&key) {
                self.back.insert(key, ctx.now);
            }
        }
        self.absent = absent;
        self.back.retain(|_, at| ctx.now - *at <= REMEMBER);
    }

    fn absence_means_nothing(&self, home: &Home) -> bool {
        let here = |key: &&(String, String, String)| (key.0.as_str(), key.1.as_str()) == *home;
        self.back.keys().filter(here).count() >= CAME_BACK
    }
}

fn gone(ctx: &Ctx, worker: &Worker) -> bool {
    worker.session != Seen::Seen
        && worker
            .absent_s
            .is_some_and(|s| s >= ctx.limits().owner_gone)
}

fn check(ctx: &Ctx, (system, schema): Home, workers: &[&Worker]) -> Option<Trigger> {
    let matched = |w: &&&Worker| w.session == Seen::Seen || w.absent_s.is_some();
    let matched = workers.iter().filter(matched).count();
    if (matched as f64) < MATCHED * workers.len() as f64 {
        return None;
    }
    let live = |w: &&&Worker| w.holds > 0 && w.next_expiry_s.is_some_and(|s| s > 0.0);
    let vanished: Vec<&Worker> = workers
        .iter()
        .filter(|w| gone(ctx, w))
        .filter(live)
        .copied()
        .collect();
    let worst = vanished.iter().max_by_key(|w| w.holds)?;
    let held: u64 = vanished.iter().map(|w| u64::from(w.holds)).sum();
    let ends = vanished
        .iter()
        .filter_map(|w| w.next_expiry_s)
        .fold(f64::INFINITY, f64::min);
    let longest = vanished
        .iter()
        .filter_map(|w| w.absent_s)
        .fold(0.0, f64::max);

    let here = |q: &&crate::probe::queues::Queue| q.system == system && q.schema == schema;
    let queues: Vec<_> = ctx.snapshot.queues.iter().filter(here).collect();
    let slots: Option<u64> = queues.iter().map(|q| q.limit.map(u64::from)).sum();
    let slots = slots.filter(|n| *n >= held && !queues.is_empty());
    let running = queues.iter().map(|q| q.n(State::Running));
    let running = running.fold(0, u64::saturating_add);
    let running = running.max(held);
    let (of, what) = match slots {
        Some(slots) => (slots, "slots"),
        None => (running, "running tasks"),
    };
    let whose = match vanished.as_slice() {
        [one] => format!(
            "{}, gone {}",
            name(&one.worker),
            duration(one.absent_s.unwrap_or_default())
        ),
        many => format!("{} vanished workers", count(many.len() as u64)),
    };
    let half = 2 * held >= of;
    let is_gone = |who: Option<&str>| {
        workers
            .iter()
            .any(|w| Some(&*w.worker) == who && gone(ctx, w))
    };
    let all_expired = ctx
        .snapshot
        .leases
        .iter()
        .filter(|l| l.system == system && l.schema == schema)
        .all(|l| is_gone(l.worker.as_deref()));
    let all_cancels = ctx
        .snapshot
        .tasks
        .rows
        .iter()
        .filter(|t| t.key.system == system && t.key.schema == schema)
        .filter(|t| t.state == State::Running && t.cancel_requested_at.is_some())
        .all(|t| is_gone(t.worker.as_deref()));
    let workers_gone = workers.iter().filter(|w| gone(ctx, w)).count();
    Some(
        Trigger::new(
            format!("{system}/{schema}"),
            if half {
                Severity::Critical
            } else {
                Severity::Warning
            },
            format!(
                "{} of {} {what} belong to {whose}; first lease ends in {}",
                count(held),
                count(of),
                precise(ends)
            ),
        )
        .brief(format!(
            "{} of {} gone",
            count(workers_gone as u64),
            count(workers.len() as u64)
        ))
        .culprit(RowId::Worker {
            system: system.into(),
            schema: schema.into(),
            worker: worst.worker.clone(),
        })
        .began(longest)
        .scope(Scope::home(system, schema))
        .weight(held as f64)
        .explains(&["throttled"])
        .explains_if(all_expired, &["leases-expired"])
        .explains_if(all_cancels, &["cancel-unheard"])
        .explains_if(2 * held >= running, &["slow-outside"])
        .explains_if(2 * workers_gone >= workers.len(), &["stalled"]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::findings::Tracker;
    use crate::findings::tests::*;
    use crate::probe::Snapshot;

    const RULE: &str = "owners-gone";

    fn one_gone(change: impl FnOnce(&mut Worker)) -> Snapshot {
        with(|s| {
            s.workers[0].session = Seen::None;
            s.workers[0].absent_s = Some(15.0);
            change(&mut s.workers[0]);
        })
    }

    #[test]
    fn a_live_lease_and_a_session_once_seen_and_absent_for_15_s() {
        says(RULE, &one_gone(|_| {}));
        silent(RULE, &one_gone(|w| w.absent_s = Some(14.9)));
        silent(RULE, &one_gone(|w| w.absent_s = None));
        silent(RULE, &one_gone(|w| w.holds = 0));
        // Expired is another rule's business.
        silent(RULE, &one_gone(|w| w.next_expiry_s = Some(-1.0)));
        silent(RULE, &one_gone(|w| w.next_expiry_s = None));
        silent(RULE, &one_gone(|w| w.session = Seen::Seen));
    }

    #[test]
    fn silent_where_too_few_workers_were_ever_seen_by_name() {
        let unmatched = |n: usize| {
            let mut s = one_gone(|_| {});
            s.workers.truncate(10);
            for worker in s.workers.iter_mut().skip(10 - n) {
                worker.session = Seen::Unknown;
            }
            s
        };
        says(RULE, &unmatched(2));
        silent(RULE, &unmatched(3));
    }

    #[test]
    fn silent_where_absent_workers_come_back() {
        let mut tracker = Tracker::new(&Config::default());
        let mut found = Vec::new();
        // Behind a pooler: three workers in turn have no session of their name.
        for n in 0..12_usize {
            let mut s = with(|s| {
                s.workers[n / 3].session = Seen::None;
                s.workers[n / 3].absent_s = Some(20.0);
            });
            s.taken_at = Some(at(n as f64 * 40.0));
            let report = tracker.update(&s);
            found.push(report.findings.iter().any(|f| f.rule == RULE));
        }
        // The first comes back at the fourth look, the second at the seventh.
        assert!(found[1..6].iter().all(|fired| *fired), "{found:?}");
        assert!(!found[6..].contains(&true), "{found:?}");
    }

    #[test]
    fn half_of_the_slots_are_critical() {
        let gravity = |holds: u32| of(RULE, &one_gone(|w| w.holds = holds))[0].severity;
        assert_eq!(gravity(19), Severity::Warning);
        assert_eq!(gravity(20), Severity::Critical);
    }

    #[test]
    fn work_that_never_ends_is_not_slow() {
        let slow = |holds: u32| {
            let mut s = example("slow-outside");
            s.workers = one_gone(|w| w.holds = holds).workers;
            of("slow-outside", &s)[0].explained_by.clone()
        };
        assert_eq!(slow(5), None);
        assert_eq!(slow(20).as_deref(), Some(RULE));
    }

    #[test]
    fn it_explains_only_what_is_of_the_vanished() {
        let mut s = one_gone(|_| {});
        s.leases = vec![lease("1", "agent-1", 60.0)];
        assert!(of("leases-expired", &s)[0].explained_by.is_some());
        s.leases.push(lease("2", "agent-2", 60.0));
        assert!(of("leases-expired", &s)[0].explained_by.is_none());
    }
}
