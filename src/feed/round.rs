//! One refresh: which probes are due, in what order, and the snapshot they make together.
//!
//! The connection half comes first: it reads nothing that a lock on a task table could block.

mod answers;

use super::barred;
use super::clock::{Clock, steady};
use super::listen::Listen;
use super::push::Sent;
use super::slot::Slot;
use super::slots::Slots;
use crate::action::strike::With;
use crate::action::{Asker, Choice, Outcome, Plan, Run, Verb};
use crate::config::Config;
use crate::connect::{Fault, Session, Target};
use crate::journal::Journal;
use crate::log;
use crate::probe::QueueProbes;
use crate::probe::activity::Activity;
use crate::probe::server::Server;
use crate::probe::{ProbeHealth, Snapshot, leases, maintenance};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use tracing::{Instrument, info};

/// The probes, their slots, and what they know.
pub struct Round {
    target: Target,
    config: Arc<Config>,
    queues: QueueProbes,
    maintenance: maintenance::Memory,
    owners: leases::Memory,
    activity: Option<Activity>,
    /// What is listened to on this session.
    listen: Listen,
    clock: Clock,
    /// The session is new: the server may be another one.
    fresh: bool,
    /// Systems that were found at any time.
    systems: BTreeSet<String>,
    slots: Slots,
    /// Somebody looks at the failures.
    watched: bool,
    /// The sum of the probes so far, but for the sessions, which are in what was shown last.
    pub snapshot: Snapshot,
    shown: Option<Arc<Snapshot>>,
}

/// Tries a task, which are counted with the attempts, for the tenants that spend.
fn tries(snapshot: &mut Snapshot) {
    let tenants = snapshot.cost.iter_mut().flat_map(|c| &mut c.by_tenant);
    for tenant in tenants {
        let mut of = snapshot.attempts.iter();
        let found = of.find(|a| a.by == "tenant" && a.name == tenant.name);
        tenant.tries_per_task = found.and_then(|a| a.tries_per_task);
    }
}

/// Runs a probe if it is due and notes how it went.
macro_rules! probe {
    ($db:expr, $slot:expr, $work:expr) => {
        if $slot.due(Instant::now()) {
            $db.within($slot.deadline());
            let span = log::probe($slot.name());
            let result = $work.instrument(span).await;
            $slot.done(Instant::now(), result)?;
        }
    };
}

impl Round {
    /// No probe has run yet.
    pub fn new(target: Target, config: Arc<Config>) -> anyhow::Result<Self> {
        info!(allowed = config.allow_writes, "writes");
        Ok(Self {
            queues: QueueProbes::new(&config)?,
            target,
            config,
            maintenance: maintenance::Memory::default(),
            owners: leases::Memory::default(),
            activity: None,
            listen: Listen::default(),
            clock: Clock::default(),
            fresh: true,
            systems: BTreeSet::new(),
            slots: Slots::new(),
            watched: false,
            snapshot: Snapshot {
                format: 1,
                ..Snapshot::default()
            },
            shown: None,
        })
    }

    /// A new session: everything is due, nothing is listened to.
    pub fn connected(&mut self) {
        self.slots = Slots::new();
        self.listen.connected();
        self.fresh = true;
    }

    /// There is something to listen to, and a server that can.
    pub fn may_be_pushed(&self) -> bool {
        self.listen.has_channels() && !self.snapshot.server.in_recovery
    }

    /// When the rows that this refresh left as they were will be due, so that a notification is followed by them also
    /// where the next refresh is far away.
    pub fn owed(&self) -> Option<Instant> {
        let slots = [&self.slots.leases, &self.slots.tasks];
        slots.into_iter().filter_map(Slot::next).max()
    }

    /// A notification was sent to ourselves.
    pub fn pushed(&mut self, sent: Sent) {
        self.listen.tried(sent);
    }

    /// Somebody looks at the failures, or does so no more.
    pub fn watch(&mut self, failures: bool) {
        self.watched = failures;
    }

    /// All probes without an open breaker are due.
    pub fn hurry(&mut self) {
        for slot in self.slots.all() {
            slot.hurry();
        }
    }

    async fn ask_server(&mut self, db: &Session) -> Result<(), Fault> {
        probe!(db, self.slots.server, async {
            let before = (
                self.snapshot.server.version.clone(),
                self.snapshot.server.in_recovery,
            );
            Server::read(db, &mut self.snapshot).await?;
            let server = &mut self.snapshot.server;
            if before != (server.version.clone(), server.in_recovery) {
                info!(
                    server = server.version,
                    standby = server.in_recovery,
                    "server"
                );
            }
            server.read_only = !self.config.allow_writes || server.in_recovery;
            Ok(())
        });
        Ok(())
    }

    /// Runs what is due of the connection half. Fails only when the session is gone.
    pub async fn run_database(&mut self, db: &Session) -> Result<(), Fault> {
        self.ask_server(db).await?;
        let s = &mut self.slots;
        let (mut stepped, mut promoted) = (false, false);
        probe!(db, s.activity, async {
            let version = self.snapshot.server.version_num;
            let sent = steady();
            let activity = Activity::read(db, version, &self.config.budgets).await?;
            let step = sent
                .zip(steady())
                .and_then(|(sent, came)| self.clock.look(activity.now, sent, came));
            stepped = step.is_some();
            promoted = activity.in_recovery != self.snapshot.server.in_recovery;
            self.activity = Some(activity);
            Ok(())
        });
        if promoted {
            s.server.retry();
            self.ask_server(db).await?;
        }
        if stepped {
            self.forget();
        }
        if std::mem::take(&mut self.fresh) {
            self.clock.another();
        }
        self.snapshot.server.clock_step = steady().and_then(|at| self.clock.told(at));
        let s = &mut self.slots;
        probe!(
            db,
            s.database,
            self.maintenance.read_database(db, &mut self.snapshot)
        );
        Ok(())
    }

    /// Runs what is due of the queue half.
    pub async fn run_queues(&mut self, db: &Session) -> Result<(), Fault> {
        // a missing table or column, or a whole system: look again at what is there
        let amiss = self.slots.queues.failed_with("42") || self.slots.any_newly_failed_with("42");
        if amiss || !self.snapshot.gone.is_empty() {
            self.slots.detect.hurry();
        }
        probe!(db, self.slots.detect, self.detect(db));
        let limit = self.config.thresholds.notify_unlisten;
        self.listen.follow(db, &mut self.snapshot, limit).await?;
        let Some(now) = self.activity.as_ref().map(|a| a.now) else {
            return Ok(());
        };
        let s = &mut self.slots;
        let failed = s.queues.failing();
        probe!(db, s.queues, self.queues.queues(db, now));
        if failed && !s.queues.failing() {
            // what kept these tables from being read is over for all that read them
            for slot in [&mut s.leases, &mut s.tasks, &mut s.finished, &mut s.cost] {
                slot.retry();
            }
        }
        probe!(db, s.leases, self.queues.leases(db, now));
        probe!(db, s.tasks, self.queues.tasks(db, now));
        probe!(db, s.finished, self.queues.finished(db, now));
        probe!(db, s.cost, self.queues.cost(db, now));
        if self.watched && s.failures.due(Instant::now()) {
            let (begun, before) = (Instant::now(), db.spent());
            db.within(s.failures.deadline());
            let work = self.queues.failures(db, now);
            let result = work.instrument(log::probe(s.failures.name())).await;
            let done = Instant::now();
            let cost = match &result {
                Ok(()) => db.spent().saturating_sub(before),
                Err(_) => done - begun,
            };
            s.failures.done(done, result)?;
            // the usual cost of a refresh does not show what comes this seldom: it keeps to the share by itself
            let pause = cost.div_f64(self.config.max_server_share);
            s.failures.rest(done, pause);
        }
        let tables: Vec<_> = self.queues.instances().flat_map(|i| i.tables()).collect();
        probe!(
            db,
            s.tables,
            self.maintenance
                .read_tables(db, &tables, &mut self.snapshot)
        );
        barred::by_locks(db, s, &self.queues, &mut self.snapshot).await
    }

    /// The server's clock was set: whatever was remembered by it is read again.
    fn forget(&mut self) {
        self.queues.forget();
        self.maintenance.forget();
        self.owners = leases::Memory::default();
        for slot in self.slots.all() {
            slot.hurry();
        }
    }

    async fn detect(&mut self, db: &Session) -> Result<(), Fault> {
        let name = |i: &crate::queue::Instance| format!("{} in schema {}", i.system, i.schema);
        let names =
            |queues: &QueueProbes| -> BTreeSet<String> { queues.instances().map(name).collect() };
        self.systems.extend(names(&self.queues));
        let found = self.queues.detect(db).await;
        let known = |i: &crate::queue::Instance| self.systems.contains(&name(i));
        barred::by_rights(&mut self.slots, &self.queues, known, &mut self.snapshot)?;
        found?;
        let here = names(&self.queues);
        for system in here.difference(&self.systems) {
            info!(system, "queue found");
        }
        let gone: Vec<String> = self.systems.difference(&here).cloned().collect();
        for system in gone.iter().filter(|g| !self.snapshot.gone.contains(g)) {
            info!(system, "queue gone");
        }
        self.snapshot.gone = gone;
        let mut channels = Vec::new();
        for instance in self.queues.instances() {
            channels.extend(instance.channels(db).await?);
        }
        self.listen.want(channels);
        Ok(())
    }

    /// The snapshot as it stands.
    pub fn assemble(&mut self) -> Arc<Snapshot> {
        let now = Instant::now();
        if let Some(activity) = &mut self.activity {
            activity.fill(&mut self.snapshot);
        }
        if let (true, Some(shown)) = (self.snapshot.sessions.is_empty(), &self.shown) {
            // they were not read anew
            self.snapshot.sessions.clone_from(&shown.sessions);
        }
        self.queues.fill(&mut self.snapshot);
        let s = &mut self.snapshot;
        if let Some(now) = s.taken_at {
            let owners = &mut self.owners;
            leases::match_sessions(&mut s.workers, &mut s.leases, &s.sessions, owners, now);
        }
        tries(&mut self.snapshot);
        let health = self.slots.all().map(|s| s.health(now));
        let asked = |p: &ProbeHealth| match p.name.as_str() {
            "failures" => self.watched,
            "locks" => p.error.is_some(),
            _ => true,
        };
        self.snapshot.probes = health.into_iter().filter(asked).collect();
        barred::explain(&mut self.snapshot.probes, &self.snapshot.exclusive);
        if self.snapshot.unread("cost").is_some() {
            self.snapshot.cost = None;
        }
        // they may be thousands, and each refresh makes them anew
        let sessions = std::mem::take(&mut self.snapshot.sessions);
        let rest = self.snapshot.clone();
        let whole = Arc::new(Snapshot { sessions, ..rest });
        self.shown = Some(whole.clone());
        whole
    }

    /// Profile and schema of the systems found.
    pub fn systems(&self) -> Vec<(String, String)> {
        let instances = self.queues.instances();
        instances
            .map(|i| (i.system.clone(), i.schema.clone()))
            .collect()
    }

    /// What reads the tasks that an action is about, on any session.
    pub fn asker(&self, verb: Verb, choice: Choice) -> Result<Asker, String> {
        let (system, schema) = choice.home().ok_or("no task was chosen")?;
        let instance = self.queues.instance(system, schema);
        let instance = instance.ok_or_else(|| format!("{system} is not there any more"))?;
        Asker::new(instance, verb, choice)
    }

    /// What ending a session needs to know: among it the journal table of the first system that has one. `poll` is the
    /// pid of our polling session.
    pub fn with(&self, poll: i32) -> Result<With, String> {
        let mut tables = self.queues.instances().map(crate::queue::action::journal);
        Ok(With {
            poll,
            server: self.target.host.clone(),
            table: tables.find_map(|table| table.ok().flatten()),
            journal: self.local_journal()?,
        })
    }

    fn local_journal(&self) -> Result<Journal, String> {
        Journal::open(&self.config).map_err(|e| format!("{e:#}: set journal_file"))
    }

    /// What carries a plan out, on any session.
    pub fn prepare(&self, plan: Plan) -> Result<Run, Outcome> {
        let steps = match plan.targets.first() {
            None => Err("no task was chosen".to_string()),
            Some(t) => match self.queues.instance(&t.key.system, &t.key.schema) {
                None => Err(format!("{} is not there any more", t.key.system)),
                Some(instance) => instance.steps(&plan),
            },
        };
        match steps.and_then(|s| Ok((s, self.local_journal()?))) {
            Ok(((steps, table), journal)) => {
                let rate = self.config.rows_per_second;
                Ok(Run::new(plan, steps, table, journal, rate))
            }
            Err(why) => {
                info!(
                    action = plan.action_id,
                    verb = plan.verb.name(),
                    reason = why,
                    "write refused"
                );
                let why = format!("nothing was written: {why}");
                Err(Outcome::nothing(plan.verb, plan.targets.len(), why))
            }
        }
    }
}
