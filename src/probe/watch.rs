//! Everything that is measured of queues, for one connection: which systems there are, and what each probe last saw of
//! each. The sampler calls the probes one by one, each at its own pace; `fill` writes what they know into a snapshot.

use super::cost::{Cost, total};
use super::flow::{self, history::When};
use super::queues::{Totals, estimate};
use super::systems::HalfThere;
use super::tasks::{self, Task, TaskDetail, TaskKey, TaskList};
use super::watched::{PAUSE, Watched};
use super::{ServerTime, Snapshot, failures};
use crate::config::Config;
use crate::connect::{Fault, Session};
use crate::queue::{self, Catalogue, Half, Instance, Profile};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The probes of all queues.
pub struct QueueProbes {
    profiles: Vec<Arc<Profile>>,
    settings: queue::Settings,
    redact: Vec<String>,
    window: f64,
    cost_still: f64,
    watched: Vec<Watched>,
    /// Where no system was found: what is half there.
    strange: Vec<Half>,
    cost: Option<Cost>,
    finished_at: Option<ServerTime>,
    now: Option<ServerTime>,
}

/// Runs a probe for every system that is whole, also when one of them fails; the first fault is returned.
macro_rules! each {
    ($self:ident, $w:ident => $work:expr) => {{
        let mut first = Ok(());
        for $w in $self.watched.iter_mut().filter(|w| w.half.is_none()) {
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
            strange: Vec::new(),
            cost: None,
            finished_at: None,
            now: None,
        })
    }

    /// Looks for queue systems; what is known about those still there is kept, also where they are only half there. Now
    /// and then, and after reconnecting.
    pub async fn detect(&mut self, session: &Session) -> Result<(), Fault> {
        let catalogue = Catalogue::read(session, &self.profiles).await?;
        let found = catalogue.systems(session, &self.profiles, &self.settings);
        let found = found.await?;
        let mut old: Vec<Watched> = std::mem::take(&mut self.watched);
        for instance in found {
            let same = |w: &Watched| {
                (&w.instance.system, &w.instance.schema, &w.instance.anchor)
                    == (&instance.system, &instance.schema, &instance.anchor)
            };
            let watched = match old.iter().position(same) {
                Some(at) => {
                    let mut known = old.swap_remove(at);
                    known.instance = instance;
                    known.half = None;
                    known
                }
                None => Watched::new(instance),
            };
            self.watched.push(watched);
        }
        for mut known in old {
            known.half = catalogue.half_of(&known.instance);
            if known.half.is_some() {
                self.watched.push(known);
            }
        }
        self.strange = match self.watched.is_empty() {
            true => catalogue.half_there(&self.profiles, &[]),
            false => Vec::new(),
        };
        each!(self, w => match estimate::poll(session, &w.instance).await {
            Ok(estimates) => { w.estimates = estimates; Ok(()) }
            Err(fault) => Err(fault),
        })
    }

    /// Forgets everything but which systems there are: the next polls are as the first.
    pub fn forget(&mut self) {
        let old = std::mem::take(&mut self.watched);
        self.watched = old.into_iter().map(|w| Watched::new(w.instance)).collect();
        self.cost = None;
        self.finished_at = None;
    }

    /// Another database answers: not even those.
    pub fn begin_anew(&mut self) {
        self.watched.clear();
        self.strange.clear();
        self.forget();
    }

    /// The systems found, and those that are half there.
    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.watched.iter().map(|w| &w.instance)
    }

    /// Those that can be read.
    pub fn whole(&self) -> impl Iterator<Item = &Instance> {
        let whole = self.watched.iter().filter(|w| w.half.is_none());
        whole.map(|w| &w.instance)
    }

    /// Those that were whole and are half there.
    pub fn halves(&self) -> impl Iterator<Item = &Half> {
        self.watched.iter().filter_map(|w| w.half.as_ref())
    }

    /// The system that a task belongs to.
    pub fn instance(&self, system: &str, schema: &str) -> Option<&Instance> {
        self.instances()
            .find(|i| i.system == system && i.schema == schema)
    }

    /// Reads the depth of every queue.
    pub async fn queues(&mut self, session: &Session, now: ServerTime) -> Result<(), Fault> {
        self.now = Some(now);
        each!(self, w => {
            let read = w.depth.poll(session, &w.instance).await;
            if read.is_ok() {
                w.read_at = Some(now);
            }
            read
        })
    }

    /// Reads the tasks most in need of attention.
    pub async fn tasks(&mut self, session: &Session, now: ServerTime) -> Result<(), Fault> {
        self.now = Some(now);
        let keys = &self.redact;
        each!(self, w => w.tasks(session, keys, now).await)
    }

    /// Reads tries that ended and arrivals: what is new, what may have changed, and some of the past; at most every two
    /// seconds.
    pub async fn finished(&mut self, session: &Session, now: ServerTime) -> Result<(), Fault> {
        self.now = Some(now);
        if self
            .finished_at
            .and_then(|t| now.since(t))
            .is_some_and(|s| (0.0..PAUSE).contains(&s))
        {
            return Ok(());
        }
        let (oldest, hidden) = flow::read::oldest_writer(session).await?;
        let when = When {
            now: now.epoch(),
            oldest,
            hidden: hidden > 0,
            window: self.window.max(3600.0),
        };
        let window = self.window;
        let done = each!(self, w => w.finished(session, when, window).await);
        // a failure is tried again when its breaker says so: a look that reads nothing would pass for a success
        if done.is_ok() {
            self.finished_at = Some(now);
        }
        done
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
        let done = each!(self, w => w.ledger.poll(session, &w.instance, now.epoch(), window).await);
        let (whole, half): (Vec<_>, Vec<_>) = self.watched.iter().partition(|w| w.half.is_none());
        let ledgers = whole.into_iter().map(|w| (&w.instance, &w.ledger));
        match total::total(ledgers, now.epoch(), window, self.cost_still) {
            Some(mut cost) => {
                let why = half.iter().filter_map(|w| w.half.as_ref()).map(Half::why);
                cost.notes
                    .extend(why.map(|why| format!("not counted: {why}")));
                self.cost = Some(cost);
            }
            // what was spent last stays where nothing more can be read
            None if !half.is_empty() => {}
            None => self.cost = None,
        }
        done
    }

    /// Reads failed tasks by kind and error.
    pub async fn failures(&mut self, session: &Session, now: ServerTime) -> Result<(), Fault> {
        self.now = Some(now);
        let keys = &self.redact;
        each!(self, w => match failures::poll(session, &w.instance, keys, now).await {
            Ok(failures) => { w.failures = Some(failures); Ok(()) }
            Err(fault) => Err(fault),
        })
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
            .flat_map(|w| w.queues(w.as_of(now), self.window))
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
        let workers = self.watched.iter().flat_map(|w| w.workers(w.as_of(now)));
        snapshot.workers = workers.collect();
        snapshot.poison = self.watched.iter().flat_map(|w| w.poison.clone()).collect();
        snapshot.violations = self
            .watched
            .iter()
            .flat_map(|w| w.violations.clone())
            .collect();
        snapshot.failures = self
            .watched
            .iter()
            .filter_map(|w| w.failures.clone())
            .collect();
        let known = self.watched.iter().filter_map(|w| w.half(now));
        let strange = self.strange.iter().map(|half| half_there(half, None));
        snapshot.half_there = known.chain(strange).collect();
        snapshot.cost.clone_from(&self.cost);
        snapshot.tasks = self.list();
        let queues = self.watched.iter().flat_map(|w| w.depth.queues.values());
        let mut rows: BTreeMap<i32, u32> = BTreeMap::new();
        for lock in queues.flat_map(|q| &q.locked) {
            *rows.entry(lock.pid).or_default() += 1;
        }
        for session in &mut snapshot.sessions {
            let held = session.pid.and_then(|pid| rows.get(&pid));
            session.task_rows = held.copied().unwrap_or(0);
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

fn half_there(half: &Half, age_s: Option<f64>) -> HalfThere {
    HalfThere {
        system: half.profile.system.get_ref().clone(),
        schema: half.schema.clone(),
        missing: half.missing.clone(),
        why: half.why(),
        advice: half.advice(),
        age_s,
    }
}

impl Watched {
    /// The time that ages are told of: that of the last data, where no more come.
    fn as_of(&self, now: ServerTime) -> ServerTime {
        self.half.as_ref().and(self.read_at).unwrap_or(now)
    }

    fn half(&self, now: ServerTime) -> Option<HalfThere> {
        let age = self.read_at.and_then(|t| now.since(t));
        let half = self.half.as_ref();
        half.map(|half| half_there(half, age.map(|s| s.max(0.0))))
    }

    fn totals(&self) -> Totals {
        Totals {
            system: self.instance.system.clone(),
            schema: self.instance.schema.clone(),
            states: self.estimates.clone(),
            asks_to_stop: self
                .instance
                .profile
                .row
                .contains_key("cancel_requested_at"),
        }
    }
}
