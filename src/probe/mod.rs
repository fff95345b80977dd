//! What is measured: one file a measurement (its SQL, its row type, its decoding). [`Snapshot`] is their sum.
//!
//! A snapshot is plain data: the same value feeds the screen, `--once --json` and the tests.

pub mod activity;
pub mod backend;
pub mod cost;
pub mod failures;
pub mod flow;
pub mod leases;
pub mod locks;
pub mod maintenance;
pub mod queues;
pub mod replay;
pub mod rights;
pub mod server;
pub mod slots;
pub mod stages;
pub mod systems;
pub mod tasks;
pub mod units;
pub mod watch;
mod watched;

use serde::{Deserialize, Serialize};
pub use units::{Bound, Count, ServerTime, State, Usd};
pub use watch::QueueProbes;

/// Everything that one refresh knows. Parts whose probe failed or was not due keep their last value; `probes`
/// tells their age.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Version of this shape. Fields are added, never renamed.
    pub format: u32,
    /// The server's clock when the activity probe ran.
    pub taken_at: Option<ServerTime>,
    /// The server and how we reached it.
    pub server: server::Server,
    /// Who holds how many connections.
    pub connections: activity::Connections,
    /// What active sessions of this database wait for.
    pub waits: Vec<activity::Wait>,
    /// Who waits behind whom.
    pub blocked: Vec<activity::Blocked>,
    /// Who keeps everybody from a table of a queue; asked only while our own statements wait for it in vain.
    #[serde(default)]
    pub exclusive: Vec<locks::Exclusive>,
    /// Tables of the queues that our role may not read.
    #[serde(default)]
    pub denied: Vec<rights::Denied>,
    /// Client sessions of this database: each one that is not idle, and idle ones grouped.
    pub sessions: Vec<activity::Session>,
    /// What vacuum, snapshots and the notification queue are doing.
    pub maintenance: maintenance::Maintenance,
    /// Depth of every queue.
    pub queues: Vec<queues::Queue>,
    /// Estimated numbers of finished tasks, by system.
    #[serde(default)]
    pub totals: Vec<queues::Totals>,
    /// Time spent per stage and queue, over the window.
    pub stages: Vec<stages::Stage>,
    /// Arrivals, finished and failed attempts by minute.
    pub flow: Vec<flow::Flow>,
    /// Attempts by kind and by tenant, now against before.
    pub attempts: Vec<flow::Attempts>,
    /// Running tasks whose lease has expired, or that are stuck by their system's own rule.
    pub leases: Vec<leases::Lease>,
    /// Workers, and what they hold.
    pub workers: Vec<leases::Worker>,
    /// Tasks that lost worker after worker.
    #[serde(default)]
    pub poison: Vec<leases::Poison>,
    /// Rows that no sound queue holds.
    #[serde(default)]
    pub violations: Vec<queues::Violation>,
    /// Spend over the window; `None` where no queue records any.
    pub cost: Option<cost::Cost>,
    /// The tasks most in need of attention, and how many live tasks there are.
    pub tasks: tasks::TaskList,
    /// Failed tasks by kind and error; read only while somebody looks.
    #[serde(default)]
    pub failures: Vec<failures::Failures>,
    /// Queue systems that were here and are not any more.
    #[serde(default)]
    pub gone: Vec<String>,
    /// Queue systems that went elsewhere a few minutes ago.
    #[serde(default)]
    pub moved: Vec<systems::Moved>,
    /// Queue systems that lack a table or a column: those that were read, or any where no other is found.
    #[serde(default)]
    pub half_there: Vec<systems::HalfThere>,
    /// Health of each probe.
    pub probes: Vec<ProbeHealth>,
    /// What jobtop itself costs the server.
    #[serde(rename = "self")]
    pub own: Own,
}

/// A queue system that is gone is missed for so long, in seconds; later that is a note.
pub const GONE_S: f64 = 3600.0;

/// How one probe is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeHealth {
    /// Its name, as in the source tree.
    pub name: String,
    /// Seconds since it last succeeded, at the time of the snapshot; `None` before the first success.
    pub age_s: Option<f64>,
    /// Why it failed the last time; `None` when it did not.
    pub error: Option<String>,
    /// After a failure: seconds from then until it is tried again.
    #[serde(default)]
    pub retry_s: Option<f64>,
}

impl ProbeHealth {
    /// Does it fail for want of a table, column or right? That does not pass by itself: no need to wait and see.
    pub fn lasting(&self) -> bool {
        let error = self.error.as_deref().unwrap_or_default();
        ["(42P01)", "(42703)", "(42501)"]
            .iter()
            .any(|code| error.contains(code))
    }
}

/// What jobtop costs the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Own {
    /// Connections held.
    pub connections: u32,
    /// Statements sent for the last refresh.
    pub statements_per_refresh: u32,
    /// Server time of the last refresh, in milliseconds.
    pub server_ms_per_refresh: f64,
    /// Share of one core of the server over the last ten seconds, 0 to 1.
    pub share_of_server_time: f64,
    /// Seconds between refreshes now; more than asked for when the server is slow.
    pub interval_s: f64,
    /// Our backend's pid.
    pub pid: i32,
}

impl Snapshot {
    /// Why nothing is known of what a probe of the queues reads, where it never succeeded or cannot any more: unknown is
    /// not 0.
    pub fn unread(&self, probe: &str) -> Option<String> {
        let health = |name: &str| self.probes.iter().find(|p| p.name == name);
        if let Some(why) = self.all_gone() {
            return Some(why);
        }
        if let Some(half) = self.all_half() {
            return Some(format!("not read: {}", half.why));
        }
        let undetected = health("detect").filter(|_| self.totals.is_empty());
        if let Some(error) = undetected.and_then(|p| p.error.as_ref()) {
            return Some(format!("not read: {error}"));
        }
        let probe = health(probe)?;
        if probe.age_s.is_some() && !probe.lasting() {
            return None;
        }
        Some(match &probe.error {
            Some(error) => format!("not read: {error}"),
            None => "being read".into(),
        })
    }

    /// Which system is gone, where no queue is left to show.
    pub fn all_gone(&self) -> Option<String> {
        let system = self.gone.first().filter(|_| self.queues.is_empty())?;
        Some(match self.gone.len() {
            1 => format!("{system} is gone"),
            n => format!("{system} is gone, and {} more", n - 1),
        })
    }

    /// Why there is no queue to show; `None` where there is one.
    pub fn no_queue(&self) -> Option<String> {
        if !self.queues.is_empty() {
            return None;
        }
        let error = |name: &str| {
            let probe = self.probes.iter().find(|p| p.name == name)?;
            probe.error.as_deref()
        };
        if let Some(error) = error("detect").or(error("queues")) {
            return Some(format!("the queue tables cannot be read: {error}"));
        }
        if let Some(why) = self.all_gone() {
            return Some(why);
        }
        if let Some(half) = self.all_half() {
            return Some(half.why.clone());
        }
        let reading = |p: &ProbeHealth| p.name == "queues" && p.age_s.is_none();
        if self.probes.iter().any(reading) {
            return Some("reading the queues for the first time".into());
        }
        Some(match self.totals.first() {
            Some(t) if t.system == t.schema => format!("{} has no tasks yet", t.system),
            Some(t) => format!("{} in schema {} has no tasks yet", t.system, t.schema),
            None => "no queue found in this database".into(),
        })
    }

    /// The same for somebody who wants to work with a queue: with what can be done where one is half there.
    pub fn no_system(&self) -> Option<String> {
        match self.all_half() {
            Some(half) => Some(format!("{}; {}", half.why, half.advice)),
            None => self.no_queue(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(name: &str, age_s: Option<f64>, error: Option<&str>) -> ProbeHealth {
        ProbeHealth {
            name: name.into(),
            age_s,
            error: error.map(String::from),
            ..ProbeHealth::default()
        }
    }

    #[test]
    fn what_is_gone_or_cannot_be_read_any_more_is_unread() {
        const DENIED: &str = "permission denied for table tasks (42501)";
        let mut s = Snapshot {
            queues: vec![queues::Queue::default()],
            totals: vec![queues::Totals::default()],
            probes: vec![probe("leases", Some(1.0), None)],
            ..Snapshot::default()
        };
        assert_eq!(s.unread("leases"), None);
        s.probes[0].error = Some("canceling statement due to lock timeout (55P03)".into());
        assert_eq!(s.unread("leases"), None, "it passes");
        s.probes[0].error = Some(DENIED.into());
        let denied = Some(format!("not read: {DENIED}"));
        assert_eq!(s.unread("leases"), denied);

        s.probes = vec![
            probe("leases", Some(1.0), None),
            probe("detect", Some(9.0), Some(DENIED)),
        ];
        assert_eq!(s.unread("leases"), None, "the systems are known");
        s.queues.clear();
        s.totals.clear();
        assert_eq!(s.unread("leases"), denied);

        s.probes[1].error = None;
        assert_eq!(s.unread("leases"), None);
        s.gone = vec!["agent_queue in schema agent_queue".into()];
        let gone = Some("agent_queue in schema agent_queue is gone".to_string());
        assert_eq!((s.unread("leases"), s.no_queue()), (gone.clone(), gone));
        s.gone.push("tasks in schema public".into());
        assert!(
            s.no_queue()
                .is_some_and(|why| why.ends_with("is gone, and 1 more"))
        );
        s.queues = vec![queues::Queue::default()];
        assert_eq!(s.unread("leases"), None, "another system is here");
    }
}
