//! What a rule is, what it is given, and what it says.

use super::tree::Tree;
use super::{Severity, words};
use crate::app::row::RowId;
use crate::config::{Config, Thresholds};
use crate::probe::Snapshot;
use crate::probe::activity::Session;
use crate::probe::queues::Queue;
use crate::probe::stages::{Stage, StageName};
use std::collections::BTreeMap;

/// Samples below which nothing is called usual.
pub const USUAL_SAMPLES: u64 = 50;

/// The layer of the `where` line that a rule speaks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Is work being finished?
    Queue,
    /// Are the workers alive and claiming?
    Workers,
    /// Are sessions waiting in Postgres?
    Database,
    /// Does work take longer than usual while Postgres is idle?
    Outside,
    /// None: it speaks about jobtop's own sight.
    Nowhere,
}

/// One kind of trouble.
pub trait Rule: Send {
    /// Its name, as in findings and in the documentation.
    fn name(&self) -> &'static str;
    /// What it means and what to do next, one line each.
    fn doc(&self) -> (&'static str, &'static str);
    /// The layer it speaks about.
    fn place(&self) -> Place;
    /// Rules whose findings one of this rule may explain. Only rules further down the list, so that no two explain
    /// each other.
    fn explains(&self) -> &'static [&'static str] {
        &[]
    }
    /// What holds now. Called once a refresh.
    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger>;
    /// Time was lost or went back: whatever was remembered about durations is no longer true.
    fn forget(&mut self) {}
}

/// What a finding, or the rules, are about; a wider one contains a narrower one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// System and schema; `None` for the whole database.
    pub home: Option<(String, String)>,
    /// One queue of it.
    pub queue: Option<String>,
}

impl Scope {
    /// One queue.
    pub fn queue(system: &str, schema: &str, queue: &str) -> Self {
        Self {
            home: Some((system.into(), schema.into())),
            queue: Some(queue.into()),
        }
    }

    /// All queues of a system in a schema.
    pub fn home(system: &str, schema: &str) -> Self {
        Self {
            home: Some((system.into(), schema.into())),
            queue: None,
        }
    }

    /// May what happens in the one be felt in the other?
    pub fn touches(&self, other: &Scope) -> bool {
        fn meet<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> bool {
            a.is_none() || b.is_none() || a == b
        }
        meet(&self.home, &other.home) && meet(&self.queue, &other.queue)
    }
}

/// A rule's trigger holds.
#[derive(Clone, Debug)]
pub struct Trigger {
    /// Tells it from others of the same rule, from refresh to refresh.
    pub key: String,
    /// How grave.
    pub severity: Severity,
    /// What is wrong, with the figures.
    pub sentence: String,
    /// The same in a few words, for the `where` line.
    pub brief: String,
    /// The row to act on.
    pub culprit: Option<RowId>,
    /// Seconds since the cause began, where that is known.
    pub began_s: Option<f64>,
    /// What it is about.
    pub scope: Scope,
    /// Rules whose findings this one explains, out of those the rule may.
    pub explains: Vec<&'static str>,
    /// First of all that are as grave, whatever their rules.
    pub foremost: bool,
    /// Larger first among equals in gravity.
    pub weight: f64,
}

impl Trigger {
    /// A trigger with what every one has.
    pub fn new(key: impl Into<String>, severity: Severity, sentence: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            severity,
            sentence: sentence.into(),
            brief: String::new(),
            culprit: None,
            began_s: None,
            scope: Scope::default(),
            explains: Vec::new(),
            foremost: false,
            weight: 0.0,
        }
    }

    /// Says it in a few words, for the `where` line.
    pub fn brief(mut self, brief: impl Into<String>) -> Self {
        self.brief = brief.into();
        self
    }

    /// Names the row to act on.
    pub fn culprit(mut self, row: impl Into<Option<RowId>>) -> Self {
        self.culprit = row.into();
        self
    }

    /// Tells how long ago the cause began.
    pub fn began(mut self, seconds: impl Into<Option<f64>>) -> Self {
        self.began_s = seconds.into().filter(|s| *s >= 0.0 && s.is_finite());
        self
    }

    /// Narrows what it is about.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Explains the findings of these rules.
    pub fn explains(mut self, rules: &[&'static str]) -> Self {
        self.explains.extend(rules);
        self
    }

    /// Explains the findings of these rules, if so.
    pub fn explains_if(self, so: bool, rules: &[&'static str]) -> Self {
        if so { self.explains(rules) } else { self }
    }

    /// Does not explain the findings of these rules, unless so.
    pub fn only_if(mut self, so: bool, rules: &[&'static str]) -> Self {
        self.explains.retain(|rule| so || !rules.contains(rule));
        self
    }

    /// Puts it before all that are as grave, if so.
    pub fn foremost_if(mut self, so: bool) -> Self {
        self.foremost = so;
        self
    }

    /// Sorts it among its like.
    pub fn weight(mut self, weight: f64) -> Self {
        self.weight = weight;
        self
    }
}

/// What a rule is given.
pub struct Ctx<'a> {
    /// The newest data.
    pub snapshot: &'a Snapshot,
    /// Settings.
    pub config: &'a Config,
    /// The server's clock, in seconds.
    pub now: f64,
    /// A question, not a verdict: durations that only several refreshes can tell count as reached.
    pub lasts: bool,
    /// Who waits behind whom.
    pub tree: Tree<'a>,
}

impl<'a> Ctx<'a> {
    /// A context for one snapshot.
    pub fn new(snapshot: &'a Snapshot, config: &'a Config, now: f64, lasts: bool) -> Self {
        Self {
            snapshot,
            config,
            now,
            lasts,
            tree: Tree::new(&snapshot.blocked),
        }
    }

    /// The thresholds.
    pub fn limits(&self) -> &'a Thresholds {
        &self.config.thresholds
    }

    /// The session of that pid.
    pub fn session(&self, pid: i32) -> Option<&'a Session> {
        self.snapshot.sessions.iter().find(|s| s.pid == Some(pid))
    }

    /// Its name and pid: `agent-7 (pid 4711)`.
    pub fn who(&self, pid: i32) -> String {
        match (pid, self.session(pid)) {
            (0, _) => "a prepared transaction".into(),
            (_, Some(session)) => format!("{} (pid {pid})", session_name(session)),
            (_, None) => format!("pid {pid}"),
        }
    }

    /// Its name, or its pid where it has none.
    pub fn short(&self, pid: i32) -> String {
        match (pid, self.session(pid)) {
            (0, _) => "a prepared transaction".into(),
            (_, Some(session)) => session_name(session),
            (_, None) => format!("pid {pid}"),
        }
    }

    /// Its row, where the session is seen.
    pub fn session_row(&self, pid: i32) -> Option<RowId> {
        session_row(self.session(pid)?)
    }

    /// Would the server be short of connections without so many of its sessions?
    pub fn short_without(&self, sessions: usize) -> bool {
        let c = &self.snapshot.connections;
        let sessions = u32::try_from(sessions).unwrap_or(u32::MAX);
        let (used, usable) = (c.used.saturating_sub(sessions), c.usable());
        let share = self.limits().connections * f64::from(usable);
        usable > 0 && (used >= usable || f64::from(used) >= share)
    }

    /// Is it this session that keeps vacuum from removing rows?
    pub fn holds_xmin(&self, pid: i32) -> bool {
        let holder = self.snapshot.maintenance.xmin_holder.as_ref();
        holder.and_then(|h| h.pid) == Some(pid)
    }

    /// Is it this session that fills the notification queue?
    pub fn fills_notify(&self, pid: i32) -> bool {
        let blame = self.snapshot.maintenance.notify_blame.as_ref();
        blame.is_some_and(|b| b.0 == pid)
    }

    /// A queue's name, with as much before it as tells it from others.
    pub fn queue_name(&self, system: &str, schema: &str, queue: &str) -> String {
        let others = |q: &&Queue| q.queue == queue && (q.system != system || q.schema != schema);
        let others: Vec<&Queue> = self.snapshot.queues.iter().filter(others).collect();
        if queue.is_empty() {
            words::name(system)
        } else if others.iter().any(|q| q.system == system) {
            format!("{}.{}", words::name(schema), words::name(queue))
        } else if !others.is_empty() {
            format!("{} {}", words::name(system), words::name(queue))
        } else {
            words::name(queue)
        }
    }

    /// How long a stage of a queue or of one kind takes, whatever the number of samples.
    pub fn stage(&self, queue: &Queue, kind: Option<&str>, stage: StageName) -> Option<&'a Stage> {
        self.snapshot.stages.iter().find(|s| {
            s.stage == stage
                && s.queue == queue.queue
                && s.kind.as_deref() == kind
                && s.system == queue.system
                && s.schema == queue.schema
        })
    }

    /// The same, where there are enough samples to call it usual.
    pub fn usual(&self, queue: &Queue, kind: Option<&str>, stage: StageName) -> Option<&'a Stage> {
        self.stage(queue, kind, stage)
            .filter(|s| s.n >= USUAL_SAMPLES)
    }

    /// The longest step between two refreshes over which durations may be carried on.
    pub fn patience(&self) -> f64 {
        let interval = self.config.interval.max(self.snapshot.own.interval_s);
        (3.0 * interval).max(60.0)
    }
}

fn session_name(session: &Session) -> String {
    if session.application.trim().is_empty() {
        words::name(&session.user)
    } else {
        words::name(&session.application)
    }
}

/// A session's row.
pub fn session_row(session: &Session) -> Option<RowId> {
    Some(RowId::Session {
        pid: session.pid?,
        started_us: (session.backend_start?.epoch() * 1e6).round() as i64,
    })
}

/// A queue's row.
pub fn queue_row(queue: &Queue, kind: Option<&str>) -> RowId {
    RowId::Queue {
        system: queue.system.clone(),
        schema: queue.schema.clone(),
        queue: queue.queue.clone(),
        kind: kind.map(String::from),
    }
}

/// Since when conditions have held at every refresh.
#[derive(Debug, Default)]
pub struct Held(BTreeMap<String, f64>);

impl Held {
    /// Exactly these hold now: others are forgotten, new ones start.
    pub fn keep(&mut self, ctx: &Ctx, keys: impl IntoIterator<Item = String>) {
        self.0 = keys
            .into_iter()
            .map(|key| {
                let since = self.0.get(&key).copied().unwrap_or(ctx.now);
                (key, since)
            })
            .collect();
    }

    /// For how long this one has held, in seconds; for ever where that is only assumed.
    pub fn for_s(&self, ctx: &Ctx, key: &str) -> f64 {
        match self.0.get(key) {
            Some(_) if ctx.lasts => f64::INFINITY,
            Some(since) => (ctx.now - since).max(0.0),
            None => 0.0,
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
