//! One refresh: which probes are due, in what order, and the snapshot they make together.
//!
//! The connection half comes first: it reads nothing that a lock on a task table could block.

use super::slot::Slot;
use crate::action::strike::With;
use crate::action::{Asker, Choice, Outcome, Plan, Run, Verb};
use crate::app::row::RowId;
use crate::app::state::Detail;
use crate::config::Config;
use crate::connect::{Fault, Session, Target};
use crate::journal::Journal;
use crate::probe::QueueProbes;
use crate::probe::activity::Activity;
use crate::probe::backend::Backend;
use crate::probe::server::Server;
use crate::probe::tasks::Filter;
use crate::probe::tasks::Task;
use crate::probe::{ProbeHealth, Snapshot, leases, maintenance};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The probes, their slots, and what they know.
pub struct Round {
    target: Target,
    config: Arc<Config>,
    queues: QueueProbes,
    maintenance: maintenance::Memory,
    owners: leases::Memory,
    activity: Option<Activity>,
    /// What `LISTEN` was said for on this session; `None` before it was tried.
    listening: Option<Vec<String>>,
    /// Systems that were found at any time.
    systems: BTreeSet<String>,
    /// Channels of the systems found.
    channels: Vec<String>,
    slots: Slots,
    /// Somebody looks at the failures.
    watched: bool,
    /// The sum of the probes so far.
    pub snapshot: Snapshot,
}

struct Slots {
    server: Slot,
    activity: Slot,
    database: Slot,
    tables: Slot,
    detect: Slot,
    queues: Slot,
    leases: Slot,
    tasks: Slot,
    finished: Slot,
    cost: Slot,
    failures: Slot,
}

impl Slots {
    fn new() -> Self {
        let seconds = Duration::from_secs;
        // at every other refresh of a second: rows that a person reads, and what is done about them takes longer
        let every_other = Duration::from_millis(1500);
        // the queues' statements cost most; those about the server must answer also when it is in trouble
        let (long, short) = (seconds(3), seconds(2));
        Self {
            server: Slot::new("server", seconds(30), long),
            activity: Slot::new("activity", Duration::ZERO, long),
            database: Slot::new("maintenance", seconds(5), long),
            tables: Slot::new("tables", seconds(5), long),
            detect: Slot::new("detect", seconds(30), long),
            queues: Slot::new("queues", Duration::ZERO, short),
            leases: Slot::new("leases", every_other, short),
            tasks: Slot::new("tasks", every_other, short),
            finished: Slot::new("finished", Duration::ZERO, short),
            cost: Slot::new("cost", seconds(5), short),
            failures: Slot::new("failures", seconds(15), long),
        }
    }

    fn all(&mut self) -> [&mut Slot; 11] {
        [
            &mut self.server,
            &mut self.activity,
            &mut self.database,
            &mut self.tables,
            &mut self.detect,
            &mut self.queues,
            &mut self.leases,
            &mut self.tasks,
            &mut self.finished,
            &mut self.cost,
            &mut self.failures,
        ]
    }
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
            let result = $work.await;
            $slot.done(Instant::now(), result)?;
        }
    };
}

impl Round {
    /// No probe has run yet.
    pub fn new(target: Target, config: Arc<Config>) -> anyhow::Result<Self> {
        Ok(Self {
            queues: QueueProbes::new(&config)?,
            target,
            config,
            maintenance: maintenance::Memory::default(),
            owners: leases::Memory::default(),
            activity: None,
            listening: None,
            systems: BTreeSet::new(),
            channels: Vec::new(),
            slots: Slots::new(),
            watched: false,
            snapshot: Snapshot {
                format: 1,
                ..Snapshot::default()
            },
        })
    }

    /// A new session: everything is due, nothing is listened to.
    pub fn connected(&mut self) {
        self.slots = Slots::new();
        self.listening = None;
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

    /// Runs what is due of the connection half. Fails only when the session is gone.
    pub async fn run_database(&mut self, db: &Session) -> Result<(), Fault> {
        let s = &mut self.slots;
        probe!(db, s.server, async {
            Server::read(db, &mut self.snapshot).await?;
            let server = &mut self.snapshot.server;
            server.read_only = !self.config.allow_writes || server.in_recovery;
            Ok(())
        });
        probe!(db, s.activity, async {
            let version = self.snapshot.server.version_num;
            self.activity = Some(Activity::read(db, version).await?);
            Ok(())
        });
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
        if self.slots.queues.failed_with("42") || !self.snapshot.gone.is_empty() {
            self.slots.detect.hurry();
        }
        probe!(db, self.slots.detect, self.detect(db));
        self.listen(db).await?;
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
            let result = self.queues.failures(db, now).await;
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
        Ok(())
    }

    async fn detect(&mut self, db: &Session) -> Result<(), Fault> {
        let names = |queues: &QueueProbes| -> BTreeSet<String> {
            let name = |i: &crate::queue::Instance| format!("{} in schema {}", i.system, i.schema);
            queues.instances().map(name).collect()
        };
        self.systems.extend(names(&self.queues));
        self.queues.detect(db).await?;
        let here = names(&self.queues);
        self.snapshot.gone = self.systems.difference(&here).cloned().collect();
        self.channels.clear();
        for instance in self.queues.instances() {
            self.channels.extend(instance.channels(db).await?);
        }
        Ok(())
    }

    /// The snapshot as it stands.
    pub fn assemble(&mut self) -> Snapshot {
        let now = Instant::now();
        if let Some(activity) = &self.activity {
            activity.fill(&mut self.snapshot, &self.config.budgets);
        }
        self.queues.fill(&mut self.snapshot);
        let s = &mut self.snapshot;
        if let Some(now) = s.taken_at {
            let owners = &mut self.owners;
            leases::match_sessions(&mut s.workers, &mut s.leases, &s.sessions, owners, now);
        }
        tries(&mut self.snapshot);
        let health = self.slots.all().map(|s| s.health(now));
        let asked = |p: &ProbeHealth| self.watched || p.name != "failures";
        self.snapshot.probes = health.into_iter().filter(asked).collect();
        if self.snapshot.unread("cost").is_some() {
            self.snapshot.cost = None;
        }
        // they may be thousands, and each refresh makes them anew
        let sessions = std::mem::take(&mut self.snapshot.sessions);
        let rest = self.snapshot.clone();
        Snapshot { sessions, ..rest }
    }

    /// Listens to the queues' channels; stops when the notification queue fills, since a listener that lags
    /// makes other people's commits fail.
    async fn listen(&mut self, db: &Session) -> Result<(), Fault> {
        let server = &mut self.snapshot.server;
        let usage = self.snapshot.maintenance.notify_queue.unwrap_or(0.0);
        if usage > self.config.thresholds.notify_unlisten {
            if self.listening.as_ref().is_some_and(|l| !l.is_empty()) {
                db.execute("UNLISTEN *").await?;
            }
            self.listening = None;
            server.push = format!("off: the notification queue is {:.0}% full", usage * 100.0);
            return Ok(());
        }
        let channels = if server.in_recovery {
            Vec::new()
        } else {
            self.channels.clone()
        };
        if self.listening.as_ref() == Some(&channels) {
            return Ok(());
        }
        let mut sql = String::from("UNLISTEN *");
        for channel in &channels {
            sql.push_str(&format!("; LISTEN \"{}\"", channel.replace('"', "\"\"")));
        }
        if !server.in_recovery {
            match db.execute(&sql).await {
                Err(fault) if fault.closed => return Err(fault),
                Err(fault) => {
                    server.push = format!("off: {fault}");
                    self.listening = Some(channels);
                    return Ok(());
                }
                Ok(()) => {}
            }
        }
        server.push = if channels.is_empty() {
            "polling"
        } else {
            "listen"
        }
        .into();
        self.listening = Some(channels);
        Ok(())
    }

    /// Fetches what the detail layer asks for.
    pub async fn fetch(&mut self, db: &Session, row: &RowId) -> Result<Arc<Detail>, String> {
        let detail = match row {
            RowId::Task(key) => {
                let now = self.activity.as_ref().map(|a| a.now).ok_or("no data yet")?;
                let task = self.queues.detail(db, key, now).await;
                let task = task.map_err(|f| f.to_string())?;
                Detail::Task(Box::new(task.ok_or("this task is gone")?))
            }
            RowId::Session { pid, started_us } => {
                // one that is not listed is known by its pid only
                let started = (*started_us != 0).then_some(*started_us);
                let backend = Backend::read(db, *pid, started).await;
                let backend = backend.map_err(|f| f.to_string())?;
                Detail::Session(Box::new(backend.ok_or("this session has ended")?))
            }
            _ => return Err("there is nothing more to fetch for this row".into()),
        };
        Ok(Arc::new(detail))
    }

    /// Task rows by state and queue.
    pub async fn list(&mut self, db: &Session, filter: &Filter) -> Result<Vec<Task>, Fault> {
        self.queues.detect(db).await?;
        if let Some(activity) = &self.activity {
            activity.fill(&mut self.snapshot, &self.config.budgets);
        }
        let now = self.activity.as_ref().map(|a| a.now);
        let now = now.ok_or_else(|| Fault::own("the server's clock is not known"))?;
        self.queues.query(db, filter, now).await
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
                let why = format!("nothing was written: {why}");
                Err(Outcome::nothing(plan.verb, plan.targets.len(), why))
            }
        }
    }
}
