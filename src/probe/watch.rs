//! Everything that is measured of queues, for one connection: which systems there are, and what each probe last saw of
//! each. The sampler calls the probes one by one, each at its own pace; `fill` writes what they know into a snapshot.

use super::cost::{self, Ledger};
use super::flow::{self, Attempts, Flow, History, failing, history::When};
use super::leases::skew::Skew;
use super::leases::{self, Poison, Worker, poison};
use super::queues::depth::{Depth, later};
use super::queues::{Queue, Violation, estimate, invariants};
use super::stages::Stage;
use super::tasks::{self, Task, TaskDetail, TaskKey, TaskList};
use super::{Bound, Count, ServerTime, Snapshot, State};
use crate::config::Config;
use crate::connect::{Fault, Session};
use crate::queue::{self, Instance, Profile};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One system and what is known about it.
struct Watched {
    instance: Instance,
    depth: Depth,
    estimates: BTreeMap<State, Count>,
    tasks: Vec<Task>,
    history: History,
    attempts: Vec<Attempts>,
    stages: Vec<Stage>,
    usual: Vec<(String, String, f64)>,
    stages_at: f64,
    flow: BTreeMap<String, Flow>,
    claims: BTreeMap<(String, String), ServerTime>,
    look: leases::read::Look,
    skew: Skew,
    ledger: Ledger,
    poison: Vec<Poison>,
    violations: Vec<Violation>,
    slow_at: f64,
    failing_at: f64,
    failing: failing::Failing,
}

impl Watched {
    fn new(instance: Instance) -> Self {
        Self {
            instance,
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
            look: leases::read::Look::default(),
            skew: Skew::default(),
            ledger: Ledger::default(),
            poison: Vec::new(),
            violations: Vec::new(),
            slow_at: 0.0,
            failing_at: 0.0,
            failing: failing::Failing::new(),
        }
    }
}

/// Poison and invariants are looked for so often, in seconds.
const SLOW: f64 = 30.0;
/// Percentiles are made anew so often, in seconds.
const STAGES: f64 = 5.0;
/// What fails is asked about so often, in seconds.
const FAILING: f64 = 15.0;

/// The probes of all queues.
pub struct QueueProbes {
    profiles: Vec<Arc<Profile>>,
    settings: queue::Settings,
    redact: Vec<String>,
    window: f64,
    cost_still: f64,
    watched: Vec<Watched>,
    now: Option<ServerTime>,
}

/// Runs a probe for every system, also when one of them fails; the first fault is returned.
macro_rules! each {
    ($self:ident, $w:ident => $work:expr) => {{
        let mut first = Ok(());
        for $w in &mut $self.watched {
            let result: Result<(), Fault> = $work;
            if result.as_ref().is_err_and(|f| f.closed) {
                return result;
            }
            first = first.and(result);
        }
        first
    }};
}

impl QueueProbes {
    /// Loads the profiles; a wrong one is refused with file, line and reason.
    pub fn new(config: &Config) -> Result<Self, queue::check::Wrong> {
        Ok(Self {
            profiles: queue::profiles(&config.profiles)?,
            settings: config.settings.clone(),
            redact: config.redact.clone(),
            window: f64::from(config.window_minutes) * 60.0,
            cost_still: config.thresholds.cost_still,
            watched: Vec::new(),
            now: None,
        })
    }

    /// Looks for queue systems; what is known about those still there is kept. Now and then, and after reconnecting.
    pub async fn detect(&mut self, session: &Session) -> Result<(), Fault> {
        let found = queue::detect(session, &self.profiles, &self.settings).await?;
        let mut old: Vec<Watched> = std::mem::take(&mut self.watched);
        for instance in found {
            let same = |w: &Watched| {
                (&w.instance.system, &w.instance.schema, &w.instance.anchor)
                    == (&instance.system, &instance.schema, &instance.anchor)
            };
            let watched = match old.iter().position(same) {
                Some(at) => Watched {
                    instance,
                    ..old.swap_remove(at)
                },
                None => Watched::new(instance),
            };
            self.watched.push(watched);
        }
        each!(self, w => match estimate::poll(session, &w.instance).await {
            Ok(estimates) => { w.estimates = estimates; Ok(()) }
            Err(fault) => Err(fault),
        })
    }

    /// The systems found.
    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.watched.iter().map(|w| &w.instance)
    }

    /// The system that a task belongs to.
    pub fn instance(&self, system: &str, schema: &str) -> Option<&Instance> {
        self.instances()
            .find(|i| i.system == system && i.schema == schema)
    }

    /// Reads the depth of every queue.
    pub async fn queues(&mut self, session: &Session, now: ServerTime) -> Result<(), Fault> {
        self.now = Some(now);
        each!(self, w => w.depth.poll(session, &w.instance).await)
    }

    /// Reads the tasks most in need of attention.
    pub async fn tasks(&mut self, session: &Session, now: ServerTime) -> Result<(), Fault> {
        self.now = Some(now);
        let keys = &self.redact;
        each!(self, w => match tasks::list::poll(session, &w.instance, &w.depth, keys, now).await {
            Ok(tasks) => { w.tasks = tasks; Ok(()) }
            Err(fault) => Err(fault),
        })
    }

    /// Reads tries that ended and arrivals: what is new, what may have changed, and some of the past.
    pub async fn finished(&mut self, session: &Session, now: ServerTime) -> Result<(), Fault> {
        self.now = Some(now);
        let (oldest, hidden) = flow::read::oldest_writer(session).await?;
        let when = When {
            now: now.epoch(),
            oldest,
            hidden: hidden > 0,
            window: self.window.max(3600.0),
        };
        each!(self, w => w.finished(session, when).await)
    }

    /// Reads stuck tasks, workers and, now and then, poison and broken invariants.
    pub async fn leases(&mut self, session: &Session, now: ServerTime) -> Result<(), Fault> {
        self.now = Some(now);
        let keys = &self.redact;
        each!(self, w => w.leases(session, keys, now).await)
    }

    /// Reads spend, at most every five seconds.
    pub async fn cost(&mut self, session: &Session, now: ServerTime) -> Result<(), Fault> {
        self.now = Some(now);
        let window = self.window;
        each!(self, w => w.ledger.poll(session, &w.instance, now.epoch(), window).await)
    }

    /// Everything about one task; `None` where it is gone.
    pub async fn detail(
        &self,
        session: &Session,
        key: &TaskKey,
        now: ServerTime,
    ) -> Result<Option<TaskDetail>, Fault> {
        match self.instance(&key.system, &key.schema) {
            Some(instance) => tasks::detail(session, instance, key, &self.redact, now).await,
            None => Err(Fault::own(format!(
                "{} ({}) is not there any more",
                key.system, key.schema
            ))),
        }
    }

    /// Tasks by state and queue, over all systems.
    pub async fn query(
        &self,
        session: &Session,
        filter: &tasks::Filter,
        now: ServerTime,
    ) -> Result<Vec<Task>, Fault> {
        let mut all = Vec::new();
        for instance in self.instances() {
            all.extend(tasks::query(session, instance, filter, &self.redact, now).await?);
        }
        all.truncate(filter.limit as usize);
        Ok(all)
    }

    /// Writes what is known into a snapshot. Ages are those at its time.
    pub fn fill(&self, snapshot: &mut Snapshot) {
        let Some(now) = snapshot.taken_at.or(self.now) else {
            return;
        };
        snapshot.queues = self
            .watched
            .iter()
            .flat_map(|w| w.queues(now, self.window))
            .collect();
        snapshot.totals = self.watched.iter().map(|w| w.totals()).collect();
        snapshot.stages = self.watched.iter().flat_map(|w| w.stages.clone()).collect();
        snapshot.flow = self
            .watched
            .iter()
            .flat_map(|w| w.flow.values().cloned())
            .collect();
        snapshot.attempts = self
            .watched
            .iter()
            .flat_map(|w| w.attempts.clone())
            .collect();
        snapshot.leases = self
            .watched
            .iter()
            .flat_map(|w| w.look.stuck.clone())
            .collect();
        snapshot.workers = self.watched.iter().flat_map(|w| w.workers(now)).collect();
        snapshot.poison = self.watched.iter().flat_map(|w| w.poison.clone()).collect();
        snapshot.violations = self
            .watched
            .iter()
            .flat_map(|w| w.violations.clone())
            .collect();
        let ledgers = self.watched.iter().map(|w| (&w.instance, &w.ledger));
        snapshot.cost = cost::total::total(ledgers, now.epoch(), self.window, self.cost_still);
        snapshot.tasks = self.list();
        for session in &mut snapshot.sessions {
            let Some(pid) = session.pid else { continue };
            let locks = self
                .watched
                .iter()
                .flat_map(|w| w.depth.queues.values())
                .flat_map(|q| &q.locked);
            session.task_rows = locks.filter(|l| l.pid == pid).count() as u32;
        }
    }

    fn list(&self) -> TaskList {
        let mut rows: Vec<Task> = Vec::new();
        // systems take turns, so that none hides the others
        let longest = self
            .watched
            .iter()
            .map(|w| w.tasks.len())
            .max()
            .unwrap_or(0);
        for n in 0..longest {
            rows.extend(self.watched.iter().filter_map(|w| w.tasks.get(n)).cloned());
        }
        let whole = rows.len();
        rows.truncate(tasks::list::LIST);
        let note = (whole >= tasks::list::LIST / 4).then(|| {
            "the most urgent tasks only: filter by state and queue for others".to_string()
        });
        TaskList { rows, note }
    }
}

impl Watched {
    async fn finished(&mut self, session: &Session, when: When) -> Result<(), Fault> {
        self.history.poll(session, &self.instance, when).await?;
        self.attempts = self.history.attempts(&self.instance, when.now);
        let names = self.names();
        if when.now - self.stages_at >= STAGES || self.stages.is_empty() {
            self.stages_at = when.now;
            (self.stages, self.usual) = self.history.stages(&self.instance, &names, when.now);
        }
        if let Some(now) = ServerTime::from_epoch(when.now) {
            let flow = |q: String| (q.clone(), self.history.flow(&self.instance, &q, now));
            self.flow = names.into_iter().map(flow).collect();
        }
        self.claims = self.history.claims();
        if when.now - self.failing_at >= FAILING && self.attempts.iter().any(failing::fails) {
            self.failing_at = when.now;
            self.failing = failing::poll(session, &self.instance, &self.attempts, when.now).await?;
        }
        failing::apply(&self.failing, &mut self.attempts);
        Ok(())
    }

    async fn leases(
        &mut self,
        session: &Session,
        keys: &[String],
        now: ServerTime,
    ) -> Result<(), Fault> {
        self.look = leases::read::look(session, &self.instance, &self.usual, keys, now).await?;
        self.skew.take(&self.look.claims, now);
        if now.epoch() - self.slow_at >= SLOW {
            self.slow_at = now.epoch();
            let workers = self.workers(now).len();
            self.poison = poison::poll(session, &self.instance, workers, now).await?;
            self.violations = invariants::poll(session, &self.instance, now.epoch()).await?;
        }
        Ok(())
    }

    fn names(&self) -> BTreeSet<String> {
        let mut names = self.history.queues();
        names.extend(self.depth.queues.keys().cloned());
        names
    }

    fn claimed(&self, queue: &str, kind: &str) -> Option<ServerTime> {
        self.claims
            .get(&(queue.to_string(), kind.to_string()))
            .copied()
    }

    fn totals(&self) -> super::queues::Totals {
        super::queues::Totals {
            system: self.instance.system.clone(),
            schema: self.instance.schema.clone(),
            states: self.estimates.clone(),
        }
    }

    fn workers(&self, now: ServerTime) -> Vec<Worker> {
        let (tries, minutes) = self.history.workers(now.epoch());
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

    fn queues(&self, now: ServerTime, window: f64) -> Vec<Queue> {
        self.names()
            .into_iter()
            .map(|name| self.queue(name, now, window))
            .collect()
    }

    fn queue(&self, name: String, now: ServerTime, window: f64) -> Queue {
        let age = |t: Option<ServerTime>| t.and_then(|t| now.since(t)).map(|s| s.max(0.0));
        let (instance, history) = (&self.instance, &self.history);
        let one = self.depth.queues.get(&name).cloned().unwrap_or_default();
        let mut notes = instance.notes.clone();
        let none = crate::queue::Branch::new();
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
        let rates = history.rates(instance, &name, now.epoch());
        let (last_arrival, longest_gap) = history.arrivals.gaps(&name);
        let arrivals_from = history
            .arrivals
            .known_from
            .filter(|_| rates.arrived.is_some());
        let over = self.look.over.get(&name).copied().unwrap_or_default();
        let locked = one
            .locked
            .iter()
            .filter(|l| l.state == State::Ready)
            .count();
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
            failed_1h: history
                .final_states(instance, &name, now.epoch(), 3600.0)
                .map(|f| f[1] as u32),
            last_claim_s: age(later(one.claimed, self.claimed(&name, ""))),
            last_arrival_s: last_arrival
                .and_then(ServerTime::from_epoch)
                .and_then(|t| age(Some(t))),
            longest_gap_s: longest_gap,
            arrival_history_s: arrivals_from.map_or(0.0, |t| (now.epoch() - t).max(0.0)),
            over_usual: (over.of > 0).then_some(over.over as u32),
            over_usual_of: over.of as u32,
            kinds: one.kinds(now, |kind| self.claimed(&name, kind)),
            paused: one.paused,
            notes,
            queue: name,
        }
    }

    /// Live states as counted, final ones as finished within the window, else as estimated where this is the only
    /// queue of its table, else unknown with the reason.
    fn states(
        &self,
        name: &str,
        one: &super::queues::depth::One,
        now: ServerTime,
        window: f64,
        notes: &mut Vec<String>,
    ) -> BTreeMap<State, Option<Count>> {
        let unknown = &self.instance.profile.unknown;
        let mut states: BTreeMap<State, Option<Count>> =
            one.states.iter().map(|(s, c)| (*s, Some(*c))).collect();
        let finished = self
            .history
            .final_states(&self.instance, name, now.epoch(), window);
        let whole = self
            .history
            .known_from
            .is_some_and(|t| t <= now.epoch() - window + 61.0);
        let alone = !self.instance.fans_out() && self.depth.queues.len() == 1;
        for (i, state) in [State::Succeeded, State::Failed, State::Cancelled]
            .into_iter()
            .enumerate()
        {
            let count = match (finished, self.estimates.get(&state)) {
                (Some(counts), _) => Some(Count {
                    count: counts[i],
                    bound: if whole { Bound::Exact } else { Bound::AtLeast },
                }),
                (None, Some(estimate)) if alone => Some(*estimate),
                _ => None,
            };
            if count.is_none() {
                let why = unknown
                    .get(state.name())
                    .map_or("it is not recorded when tasks end", String::as_str);
                notes.push(format!("{state}: {why}"));
            }
            states.insert(state, count);
        }
        states
    }
}
