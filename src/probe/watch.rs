//! Everything that is measured of queues, for one connection: which systems there are, and what each probe last saw of
//! each. The sampler calls the probes one by one, each at its own pace; `fill` writes what they know into a snapshot.

use super::queues::depth::{Depth, later};
use super::queues::{Queue, estimate};
use super::tasks::{self, Task, TaskDetail, TaskKey, TaskList};
use super::{Count, ServerTime, Snapshot, State};
use crate::config::Config;
use crate::connect::{Fault, Session};
use crate::queue::{self, Instance, Profile};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One system and what is known about it.
struct Watched {
    instance: Instance,
    depth: Depth,
    estimates: BTreeMap<State, Count>,
    tasks: Vec<Task>,
}

/// The probes of all queues.
pub struct QueueProbes {
    profiles: Vec<Arc<Profile>>,
    settings: queue::Settings,
    redact: Vec<String>,
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
                None => Watched {
                    instance,
                    depth: Depth::default(),
                    estimates: BTreeMap::new(),
                    tasks: Vec::new(),
                },
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
        snapshot.queues = self.watched.iter().flat_map(|w| w.queues(now)).collect();
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
    fn queues(&self, now: ServerTime) -> Vec<Queue> {
        let age = |t: Option<ServerTime>| t.and_then(|t| now.since(t)).map(|s| s.max(0.0));
        let unknown = &self.instance.profile.unknown;
        let mut out = Vec::new();
        for (name, one) in &self.depth.queues {
            let mut notes = self.instance.notes.clone();
            let mut states: BTreeMap<State, Option<Count>> =
                one.states.iter().map(|(s, c)| (*s, Some(*c))).collect();
            for state in State::ALL {
                if let Some(why) = unknown.get(state.name()) {
                    notes.push(format!("{state}: {why}"));
                    states.entry(state).or_insert(None);
                }
            }
            for (native, n) in &one.natives {
                notes.push(format!("other: {n} {native}"));
            }
            let locked = one
                .locked
                .iter()
                .filter(|l| l.state == State::Ready)
                .count();
            let overdue = if self.instance.profile.retryable_is_ignored {
                one.overdue
            } else {
                0
            };
            out.push(Queue {
                system: self.instance.system.clone(),
                schema: self.instance.schema.clone(),
                queue: name.clone(),
                states,
                limit: one.limit,
                locked: locked as u32,
                oldest_ready_s: age(one.oldest),
                overdue_retryable: overdue as u32,
                last_claim_s: age(later(one.claimed, None)),
                kinds: one.kinds(now, |_| None),
                paused: one.paused,
                notes,
                ..Queue::default()
            });
        }
        out
    }
}
