//! One refresh: which probes are due, in what order, and the snapshot they make together.
//!
//! The connection half comes first: it reads nothing that a lock on a task table could block.

mod acts;
mod answers;

use super::barred;
use super::clock::{Clock, steady};
use super::listen::Listen;
use super::push::Sent;
use super::slot::Slot;
use super::slots::Slots;
use super::systems::Systems;
use crate::config::Config;
use crate::connect::{Fault, Session, Target};
use crate::log;
use crate::probe::QueueProbes;
use crate::probe::activity::Activity;
use crate::probe::server::Server;
use crate::probe::{ProbeHealth, Snapshot, cost, leases, maintenance};
use crate::queue::Half;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{Instrument, info};

/// In a database without a queue one is looked for so often: somebody may be about to make one.
const NONE_YET: Duration = Duration::from_secs(5);

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
    systems: Systems,
    slots: Slots,
    /// Somebody looks at the failures.
    watched: bool,
    /// The sum of the probes so far, but for the sessions, which are in what was shown last.
    pub snapshot: Snapshot,
    shown: Option<Arc<Snapshot>>,
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
            systems: Systems::default(),
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
        self.slots.renew();
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
            let database = self.snapshot.server.database_oid;
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
            if database != 0 && server.database_oid != database {
                info!("another database of that name answers");
                self.begin_anew();
            }
            Ok(())
        });
        Ok(())
    }

    /// Nothing that was remembered is of this database.
    fn begin_anew(&mut self) {
        self.queues.begin_anew();
        self.systems = Systems::default();
        self.shown = None;
        self.activity = None;
        self.snapshot = Snapshot {
            format: self.snapshot.format,
            server: std::mem::take(&mut self.snapshot.server),
            connections: std::mem::take(&mut self.snapshot.connections),
            ..Snapshot::default()
        };
        self.forget();
        self.slots = Slots::new();
    }

    /// Runs what is due of the connection half. Fails only when the session is gone.
    pub async fn run_database(&mut self, db: &Session) -> Result<(), Fault> {
        self.ask_server(db).await?;
        let s = &mut self.slots;
        let (mut stepped, mut promoted, mut restarted) = (false, false, false);
        probe!(db, s.activity, async {
            let version = self.snapshot.server.version_num;
            let sent = steady();
            let activity = Activity::read(db, version, &self.config.budgets).await?;
            let step = sent
                .zip(steady())
                .and_then(|(sent, came)| self.clock.look(activity.now, sent, came));
            stepped = step.is_some();
            let server = &self.snapshot.server;
            promoted = activity.replay.in_recovery != server.in_recovery;
            restarted = server.started_at.is_some() && activity.started_at != server.started_at;
            self.activity = Some(activity);
            Ok(())
        });
        if restarted {
            // behind a pooler; it may even be another server
            self.slots.renew();
            self.fresh = true;
        }
        if promoted || restarted {
            self.slots.server.retry();
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
        let half = self.queues.halves().next().is_some();
        let amiss = self.slots.queues.failed_with("42") || self.slots.any_newly_failed_with("42");
        if amiss || half || self.systems.missed(Instant::now()) {
            self.slots.detect.hurry();
        }
        probe!(db, self.slots.detect, self.detect(db));
        if self.queues.instances().next().is_none() {
            self.slots.detect.soon(Instant::now(), NONE_YET);
        }
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
            s.retry_queues();
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
        let half =
            |queues: &QueueProbes| -> Vec<String> { queues.halves().map(Half::why).collect() };
        let before = half(&self.queues);
        let found = self.queues.detect(db).await;
        let known = |i: &crate::queue::Instance| self.systems.knows(i);
        barred::by_rights(&mut self.slots, &self.queues, known, &mut self.snapshot)?;
        found?;
        self.systems.look(self.queues.instances(), Instant::now());
        self.systems.fill(&mut self.snapshot);
        let halves = half(&self.queues);
        for system in halves.iter().filter(|h| !before.contains(h)) {
            info!(system, "queue half there");
        }
        if halves != before {
            self.slots.retry_queues();
        }
        let mut channels = Vec::new();
        for instance in self.queues.whole() {
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
        cost::tries(&mut self.snapshot);
        let health = self.slots.all().map(|s| s.health(now));
        let asked = |p: &ProbeHealth| match p.name.as_str() {
            "failures" => self.watched,
            "locks" => p.error.is_some(),
            _ => true,
        };
        self.snapshot.probes = health.into_iter().filter(asked).collect();
        barred::explain(&mut self.snapshot.probes, &self.snapshot.exclusive);
        // what was read before a system lost a part stays
        if self.snapshot.half_there.is_empty() && self.snapshot.unread("cost").is_some() {
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
}
