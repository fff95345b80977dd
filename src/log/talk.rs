//! What one session and its server say to each other.

use super::told;
use crate::connect::session::Purpose;
use crate::connect::{Fault, Param};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tracing::{Level, debug, enabled, error, info, trace};

/// Texts that are remembered to have been written; then all are forgotten, and written once more.
const TEXTS: usize = 2000;

static WRITTEN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// A session's name in the log.
#[derive(Debug)]
pub struct Talk {
    purpose: &'static str,
    pid: AtomicI32,
}

/// A statement that was sent, until it is answered. Nothing where there is no log.
pub struct Sent<'a>(Option<(&'a Talk, &'a str, Instant)>);

impl Talk {
    /// Of a session that is being opened.
    pub fn new(purpose: Purpose, application: &str) -> Arc<Self> {
        let purpose = match purpose {
            _ if application.ends_with(" push") => "push",
            Purpose::Poll => "poll",
            Purpose::Write => "write",
            Purpose::Plain => "plain",
        };
        Arc::new(Self {
            purpose,
            pid: AtomicI32::new(0),
        })
    }

    /// Our backend; `None` before it is known.
    fn pid(&self) -> Option<i32> {
        Some(self.pid.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
    }

    /// The settings that the session asked for, as they arrived.
    pub fn read_back(&self, pid: i32, settings: &str) {
        self.pid.store(pid, Ordering::Relaxed);
        info!(session = self.purpose, pid, settings, "settings read back");
    }

    /// They did not arrive: a pooler is on the way.
    pub fn unsettled(&self) {
        let (session, pid) = (self.purpose, self.pid());
        info!(
            session,
            pid, "settings did not arrive: each statement gets a transaction that has them"
        );
    }

    /// The session can be used, or not.
    pub fn opened(&self, server: Option<&str>, checked: &Result<(), Fault>) {
        let (session, pid) = (self.purpose, self.pid());
        match checked {
            Ok(()) => info!(session, pid, server, "connected"),
            Err(fault) => {
                let (sqlstate, reason) = (fault.code.as_deref(), told(fault));
                error!(
                    session,
                    pid, server, sqlstate, reason, "session cannot be used"
                );
            }
        }
    }

    /// The connection ended, and not by us.
    pub fn lost(&self, fault: &Fault) {
        let (sqlstate, reason) = (fault.code.as_deref(), told(fault));
        error!(
            session = self.purpose,
            pid = self.pid(),
            sqlstate,
            reason,
            "connection lost"
        );
    }

    /// It was closed by us.
    pub fn closed(&self) {
        info!(
            session = self.purpose,
            pid = self.pid(),
            "connection closed"
        );
    }

    /// A statement is about to be sent.
    pub fn sends<'a>(&'a self, sql: &'a str, params: &[Param<'_>]) -> Sent<'a> {
        if !enabled!(Level::ERROR) {
            return Sent(None);
        }
        if enabled!(Level::TRACE) {
            let id = id(sql);
            if first(id) {
                trace!(sql = short(id), text = sql, "statement text");
            }
            let types: Vec<&str> = params.iter().map(|p| p.1.name()).collect();
            let (session, pid, parameters) = (self.purpose, self.pid(), params.len());
            let types = Some(types.join(",")).filter(|t| !t.is_empty());
            trace!(session, pid, sql = short(id), parameters, types, "sends");
        }
        Sent(Some((self, sql, Instant::now())))
    }

    /// A statement that goes along with the one that was just begun, and is answered before it.
    pub fn along(&self, sql: &str) {
        debug!(
            session = self.purpose,
            pid = self.pid(),
            text = sql,
            "sends along"
        );
    }

    /// A statement was prepared, in a round trip of its own.
    pub fn prepared(&self, begun: Instant) {
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        debug!(session = self.purpose, pid = self.pid(), ms, "prepared");
    }
}

impl Sent<'_> {
    /// It was answered: with so many rows, where it returns any, after microseconds of the server's, where it told; or not.
    pub fn answered(self, rows: Result<Option<usize>, &Fault>, server_us: Option<u64>) {
        let Some((talk, sql, begun)) = self.0 else {
            return;
        };
        if rows.is_ok() && !enabled!(Level::DEBUG) {
            return;
        }
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        let (session, pid, what, sql) = (talk.purpose, talk.pid(), verb(sql), short(id(sql)));
        match rows {
            Ok(rows) => debug!(session, pid, what, sql, ms, server_us, rows, "statement"),
            Err(fault) => {
                let (sqlstate, reason) = (fault.code.as_deref(), told(fault));
                error!(
                    session,
                    pid, what, sql, ms, sqlstate, reason, "statement failed"
                );
            }
        }
    }
}

/// The first word.
fn verb(sql: &str) -> &str {
    let sql = sql.trim_start();
    let end = sql.find(|c: char| !c.is_ascii_alphabetic());
    &sql[..end.unwrap_or(sql.len())]
}

/// Names a text, the same in every run.
fn id(sql: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    sql.hash(&mut hasher);
    hasher.finish() as u32
}

fn short(id: u32) -> String {
    format!("{id:08x}")
}

/// Was this text not written yet?
fn first(id: u32) -> bool {
    let mut written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    if written.len() >= TEXTS {
        written.clear();
    }
    written.insert(id)
}
