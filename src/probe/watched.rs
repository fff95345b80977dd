//! One queue system and what each probe last saw of it, as rows of a snapshot.

use super::cost::Ledger;
use super::failures::Failures;
use super::flow::report::Rates;
use super::flow::slots::{Cell, Name};
use super::flow::{Attempts, Flow, History, failing, history::When};
use super::leases::skew::Skew;
use super::leases::{self, Poison, Worker, poison};
use super::queues::depth::{Depth, One, later};
use super::queues::{KINDS, Kind, Queue, Violation, invariants};
use super::stages::Stage;
use super::tasks::{Task, list};
use super::{Count, ServerTime, State};
use crate::connect::{Fault, Session};
use crate::queue::{Branch, Half, Instance};
use std::collections::{BTreeMap, BTreeSet};

mod states;

/// One system and what is known about it.
pub(super) struct Watched {
    pub(super) instance: Instance,
    /// What is missing since it was read, so that it is not read any more.
    pub(super) half: Option<Half>,
    /// When its queues were last read.
    pub(super) read_at: Option<ServerTime>,
    pub(super) depth: Depth,
    pub(super) estimates: BTreeMap<State, Count>,
    pub(super) tasks: Vec<Task>,
    history: History,
    pub(super) attempts: Vec<Attempts>,
    pub(super) stages: Vec<Stage>,
    usual: Vec<(String, String, f64)>,
    stages_at: f64,
    pub(super) flow: BTreeMap<String, Flow>,
    claims: BTreeMap<(Name, Name), ServerTime>,
    by_queue: BTreeMap<String, Digest>,
    tries: (BTreeMap<String, Cell>, f64),
    pub(super) look: leases::read::Look,
    skew: Skew,
    pub(super) ledger: Ledger,
    pub(super) poison: Vec<Poison>,
    pub(super) violations: Vec<Violation>,
    pub(super) failures: Option<Failures>,
    priced_at: f64,
    whole_at: f64,
    slow_at: f64,
    broken_at: f64,
    failing_at: f64,
    failing: failing::Failing,
}

impl Watched {
    pub(super) fn new(instance: Instance) -> Self {
        Self {
            instance,
            half: None,
            read_at: None,
            depth: Depth::default(),
            estimates: BTreeMap::new(),
            tasks: Vec::new(),
            history: History::default(),
            attempts: Vec::new(),
            stages: Vec::new(),
            usual: Vec::new(),
            stages_at: 0.0,
            flow: BTreeMap::new(),
            claims: BTreeMap::new(),
            by_queue: BTreeMap::new(),
            tries: (BTreeMap::new(), 0.0),
            look: leases::read::Look::default(),
            skew: Skew::default(),
            ledger: Ledger::default(),
            poison: Vec::new(),
            violations: Vec::new(),
            failures: None,
            priced_at: 0.0,
            whole_at: 0.0,
            slow_at: 0.0,
            broken_at: 0.0,
            failing_at: 0.0,
            failing: failing::Failing::new(),
        }
    }
}

/// What history says of one queue.
#[derive(Clone, Debug, Default)]
struct Digest {
    rates: Rates,
    final_states: Option<[u64; 3]>,
    failed_1h: Option<u32>,
    last_arrival: Option<ServerTime>,
    longest_gap: Option<f64>,
}

/// Nothing but depth, stuck tasks and the list is read more often than this, in seconds.
pub(super) const PAUSE: f64 = 1.9;
/// Spend of listed tasks is looked up so often, in seconds.
const PRICED: f64 = 9.9;
/// Poison is looked for so often, in seconds.
const SLOW: f64 = 30.0;
/// Broken invariants are looked for so often, in seconds.
const BROKEN: f64 = 120.0;
/// Percentiles, and tries by kind and tenant, are made anew so often, in seconds.
const STAGES: f64 = 5.0;
/// What fails is asked about so often, in seconds.
const FAILING: f64 = 60.0;

impl Watched {
    pub(super) async fn finished(
        &mut self,
        session: &Session,
        when: When,
        window: f64,
    ) -> Result<(), Fault> {
        self.history.poll(session, &self.instance, when).await?;
        let names = self.names();
        // sums of all that is remembered
        if (when.now - self.stages_at).abs() >= STAGES || self.stages.is_empty() {
            self.stages_at = when.now;
            (self.stages, self.usual) = self.history.stages(&self.instance, &names, when.now);
            self.attempts = self.history.attempts(&self.instance, when.now);
            self.claims = self.history.claims();
        }
        if let Some(now) = ServerTime::from_epoch(when.now) {
            let flow = |q: &String| (q.clone(), self.history.flow(&self.instance, q, now));
            self.flow = names.iter().map(flow).collect();
        }
        self.by_queue = names
            .into_iter()
            .map(|q| (q.clone(), self.digest(&q, when.now, window)))
            .collect();
        self.tries = self.history.workers(when.now);
        if when.now - self.failing_at >= FAILING && self.attempts.iter().any(failing::fails) {
            self.failing_at = when.now;
            self.failing = failing::poll(session, &self.instance, &self.attempts, when.now).await?;
        }
        failing::apply(&self.failing, &mut self.attempts);
        Ok(())
    }

    /// What tasks have spent is looked up every ten seconds, and kept in between.
    pub(super) async fn tasks(
        &mut self,
        session: &Session,
        keys: &[String],
        now: ServerTime,
    ) -> Result<(), Fault> {
        let priced = now.epoch() - self.priced_at >= PRICED;
        let mut tasks = list::poll(session, &self.instance, &self.depth, priced, keys, now).await?;
        if priced {
            self.priced_at = now.epoch();
        } else {
            let known = |t: &Task| {
                self.tasks
                    .iter()
                    .find(|k| k.key == t.key && k.attempt == t.attempt)
            };
            for task in &mut tasks {
                task.cost_usd = known(task).and_then(|k| k.cost_usd);
            }
        }
        self.tasks = tasks;
        Ok(())
    }

    pub(super) async fn leases(
        &mut self,
        session: &Session,
        keys: &[String],
        now: ServerTime,
    ) -> Result<(), Fault> {
        let whole = now.epoch() - self.whole_at >= PAUSE;
        let look =
            leases::read::look(session, &self.instance, &self.usual, whole, keys, now).await?;
        if whole {
            self.whole_at = now.epoch();
            self.look = look;
            self.skew.take(&self.look.claims, now);
        } else {
            self.look.stuck = look.stuck;
        }
        if now.epoch() - self.slow_at >= SLOW {
            self.slow_at = now.epoch();
            let workers = self.workers(now).len();
            self.poison = poison::poll(session, &self.instance, workers, now).await?;
        }
        if now.epoch() - self.broken_at >= BROKEN {
            self.broken_at = now.epoch();
            self.violations = invariants::poll(session, &self.instance, now.epoch()).await?;
        }
        Ok(())
    }

    fn digest(&self, queue: &str, now: f64, window: f64) -> Digest {
        let (last, longest_gap) = self.history.arrivals.gaps(queue);
        let finals = |seconds| {
            self.history
                .final_states(&self.instance, queue, now, seconds)
        };
        Digest {
            rates: self.history.rates(&self.instance, queue, now),
            final_states: finals(window),
            failed_1h: finals(3600.0).map(|f| f[1] as u32),
            last_arrival: last.and_then(ServerTime::from_epoch),
            longest_gap,
        }
    }

    fn names(&self) -> BTreeSet<String> {
        let mut names = self.history.queues();
        names.extend(self.depth.queues.keys().cloned());
        names
    }

    fn claimed(&self, queue: &str, kind: &str) -> Option<ServerTime> {
        self.claims.get(&(queue.into(), kind.into())).copied()
    }

    pub(super) fn workers(&self, now: ServerTime) -> Vec<Worker> {
        let (tries, minutes) = &self.tries;
        let mut names: BTreeSet<&String> = self.look.workers.keys().collect();
        names.extend(tries.keys());
        let row = |name: &String| {
            let held = self.look.workers.get(name).cloned().unwrap_or_default();
            let done = tries.get(name).copied().unwrap_or_default();
            let skew = self.skew.of(name);
            let tells = !tries.is_empty();
            Worker {
                system: self.instance.system.clone(),
                schema: self.instance.schema.clone(),
                worker: name.clone(),
                version: held.version,
                holds: held.holds as u32,
                done_per_min: tells.then(|| done.n as f64 / minutes.max(1.0 / 6.0)),
                fail_share: (done.n >= 5).then(|| done.failed as f64 / done.n as f64),
                clock_skew_s: skew.map(|(s, _)| s),
                clock_samples: skew.map_or(0, |(_, n)| n),
                next_expiry: held.next_expiry,
                next_expiry_s: held.next_expiry.and_then(|t| t.since(now)),
                heartbeat_s: held
                    .heartbeat
                    .and_then(|t| now.since(t))
                    .map(|s| s.max(0.0)),
                ..Worker::default()
            }
        };
        names.into_iter().take(2000).map(row).collect()
    }

    pub(super) fn queues(&self, now: ServerTime, window: f64) -> Vec<Queue> {
        // the history's names are in `by_queue` since it was last read
        let names: BTreeSet<&String> = self
            .by_queue
            .keys()
            .chain(self.depth.queues.keys())
            .collect();
        names
            .into_iter()
            .map(|name| self.queue(name.clone(), now, window))
            .collect()
    }

    fn queue(&self, name: String, now: ServerTime, window: f64) -> Queue {
        let age = |t: Option<ServerTime>| t.and_then(|t| now.since(t)).map(|s| s.max(0.0));
        let (instance, history) = (&self.instance, &self.history);
        let one = self.depth.queues.get(&name).cloned().unwrap_or_default();
        let mut notes = instance.notes.clone();
        let none = Branch::new();
        let branch = instance.branch_of(&name).unwrap_or(&none);
        for list in [&instance.profile.attempts, &instance.profile.arrivals] {
            notes.extend(
                instance
                    .source(list, branch)
                    .ok()
                    .and_then(|s| s.note.clone()),
            );
        }
        if history.slots.full {
            notes.push("history: too many kinds, tenants or errors to keep apart".into());
        }
        notes.extend(history.cut.clone());
        let states = self.states(&name, &one, now, window, &mut notes);
        for (native, n) in &one.natives {
            notes.push(format!("other: {n} {native}"));
        }
        let digest = self.by_queue.get(&name).cloned().unwrap_or_default();
        let rates = digest.rates;
        let arrivals_from = history
            .arrivals
            .known_from
            .filter(|_| rates.arrived.is_some());
        let running = self.running(&name);
        let locked = one
            .locked
            .iter()
            .filter(|l| l.state == State::Ready)
            .count();
        let mut kinds = self.kinds(&name, &one, now);
        let more_kinds = kinds.len().saturating_sub(KINDS) as u32;
        kinds.truncate(KINDS);
        let ignored = instance.profile.retryable_is_ignored;
        Queue {
            system: instance.system.clone(),
            schema: instance.schema.clone(),
            states,
            limit: one.limit,
            locked: locked as u32,
            oldest_ready_s: age(one.oldest),
            overdue_retryable: if ignored { one.overdue as u32 } else { 0 },
            in_per_min: rates.arrived,
            finished_per_min: rates.finished,
            failed_attempts_per_min: rates.failed,
            failed_1h: digest.failed_1h,
            last_claim_s: age(later(running.claimed, self.claimed(&name, ""))),
            last_arrival_s: age(digest.last_arrival),
            longest_gap_s: digest.longest_gap,
            arrival_history_s: arrivals_from.map_or(0.0, |t| (now.epoch() - t).max(0.0)),
            over_usual: (running.of > 0).then_some(running.over as u32),
            over_usual_of: running.of as u32,
            kinds,
            more_kinds,
            paused: one.paused,
            notes,
            queue: name,
        }
    }

    /// Running tasks of a queue, all kinds together.
    fn running(&self, queue: &str) -> leases::read::Running {
        let mut sum = leases::read::Running::default();
        for (_, r) in self.running_kinds(queue) {
            sum.of += r.of;
            sum.over += r.over;
            sum.claimed = later(sum.claimed, r.claimed);
        }
        sum
    }

    /// Running tasks of a queue by kind.
    fn running_kinds(
        &self,
        queue: &str,
    ) -> impl Iterator<Item = (&String, &leases::read::Running)> {
        let from = self.look.kinds.range((queue.to_string(), String::new())..);
        from.take_while(move |((q, _), _)| q == queue)
            .map(|((_, kind), running)| (kind, running))
    }

    /// Kinds of a queue, largest first.
    fn kinds(&self, queue: &str, one: &One, now: ServerTime) -> Vec<Kind> {
        let age = |t: Option<ServerTime>| t.and_then(|t| now.since(t)).map(|s| s.max(0.0));
        let mut names: BTreeSet<&String> = one.kinds.keys().collect();
        names.extend(self.running_kinds(queue).map(|(kind, _)| kind));
        let row = |name: &String| {
            let ready = one.kinds.get(name).cloned().unwrap_or_default();
            let running = self
                .look
                .kinds
                .get(&(queue.to_string(), name.clone()))
                .copied()
                .unwrap_or_default();
            let claimed = later(running.claimed, self.claimed(queue, name));
            Kind {
                kind: name.clone(),
                ready: ready.ready as u32,
                running: running.running as u32,
                oldest_ready_s: age(ready.oldest),
                last_claim_s: age(claimed).filter(|s| *s <= 3600.0),
            }
        };
        let named = names.into_iter().filter(|n| !n.is_empty());
        let mut kinds: Vec<Kind> = named.map(row).collect();
        kinds.sort_by_key(|k| std::cmp::Reverse(k.ready + k.running));
        kinds
    }
}
