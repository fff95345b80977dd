//! Everything that is measured of queues, for one connection: which systems there are, and what each probe last saw of
//! each. The sampler calls the probes one by one, each at its own pace; `fill` writes what they know into a snapshot.

use super::cost::{Cost, total};
use super::flow::{self, history::When};
use super::queues::{Totals, estimate};
use super::tasks::{self, Task, TaskDetail, TaskKey, TaskList};
use super::watched::{PAUSE, Watched};
use super::{ServerTime, Snapshot, failures};
use crate::config::Config;
use crate::connect::{Fault, Session};
use crate::queue::{self, Instance, Profile};
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
    cost: Option<Cost>,
    finished_at: Option<ServerTime>,
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
            cost: None,
            finished_at: None,
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
                Some(at) => {
                    let mut known = old.swap_remove(at);
                    known.instance = instance;
                    known
                }
                None => Watched::new(instance),
            };
            self.watched.push(watched);
        }
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
        let ledgers = self.watched.iter().map(|w| (&w.instance, &w.ledger));
        self.cost = total::total(ledgers, now.epoch(), window, self.cost_still);
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
        snapshot.failures = self
            .watched
            .iter()
            .filter_map(|w| w.failures.clone())
            .collect();
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

impl Watched {
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
