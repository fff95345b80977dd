//! Ending a session: its query is cancelled or its backend terminated, if it still is the session that was seen; a
//! journal row in the same transaction; then a look at what came of it.

pub mod facts;
pub mod outcome;
pub mod twice;

pub use outcome::{After, Struck, Verdict};

use super::diary::{About, Diary, Loss};
use super::journal::{self, Entry};
use crate::connect::session::Purpose;
use crate::connect::{Cells, Fault, Session};
use crate::journal::Journal;
use crate::log;
use crate::probe::backend::Backend;
use std::time::Duration;
use tokio_postgres::types::Type;
use tracing::{Instrument, info};

/// What jobtop's own sessions are called.
const OURS: [&str; 2] = ["jobtop", "jobtop write"];
/// How often it is looked whether a signal was heeded, and how long before each time but the first.
const LOOKS: u32 = 21;
const PAUSE: Duration = Duration::from_millis(100);

/// Finds the session by pid and start, and signals it in the same statement: a pid is reused. A statement is cancelled
/// only while it is the one that was seen.
fn signal_sql(how: How) -> String {
    format!(
        "SELECT CASE
           WHEN a.pid IN (pg_backend_pid(), $3::int8) OR a.application_name = ANY ($4::text[]) THEN 'ours'
           WHEN a.backend_type = 'walsender' AND NOT $5::bool THEN 'replication'
           WHEN $6::int8 IS NOT NULL AND (a.state IN ('active', 'fastpath function call')
             AND (extract(epoch FROM a.query_start) * 1000000)::int8 = $6) IS NOT TRUE THEN 'moved on'
           WHEN {}(a.pid) THEN 'signalled'
           ELSE 'gone' END::text AS outcome
          FROM pg_stat_activity a
         WHERE a.pid = $1::int8 AND (extract(epoch FROM a.backend_start) * 1000000)::int8 = $2::int8",
        how.function()
    )
}

/// What is done to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Its statement is cancelled; it stays connected.
    Cancel,
    /// It is ended, and its transaction rolled back.
    Terminate,
}

impl How {
    /// As in the journal.
    pub fn name(self) -> &'static str {
        match self {
            How::Cancel => "cancel_query",
            How::Terminate => "terminate",
        }
    }

    fn function(self) -> &'static str {
        match self {
            How::Cancel => "pg_cancel_backend",
            How::Terminate => "pg_terminate_backend",
        }
    }
}

/// A session as the operator saw it, and what is to be done to it. May be carried out once.
#[derive(Clone, Debug, PartialEq)]
pub struct Strike {
    /// Backend pid.
    pub pid: i32,
    /// backend_start in microseconds since 1970: with the pid it names the session.
    pub started_us: i64,
    /// query_start of the statement seen, in microseconds since 1970; a cancel applies to no other.
    pub statement_us: Option<i64>,
    /// What.
    pub how: How,
    /// A replication sender is meant, and the operator has said so.
    pub replication: bool,
    /// Names this action in the journals.
    pub action_id: String,
    /// Why, in the operator's words.
    pub reason: Option<String>,
    /// Its application_name.
    pub application: String,
    /// Its role.
    pub user: String,
}

/// What a strike needs to know besides.
#[derive(Clone, Debug)]
pub struct With {
    /// Pid of our polling session.
    pub poll: i32,
    /// How we call the server.
    pub server: String,
    /// The queue's journal table, quoted, where there is one: a row that cannot be written there stops nothing.
    pub table: Option<String>,
    /// The local journal.
    pub journal: Journal,
}

impl Strike {
    /// To the session as it was read; `None` where privileges hide when it started.
    pub fn new(pid: i32, seen: &Backend, how: How, reason: Option<String>) -> Option<Self> {
        Some(Self {
            pid,
            started_us: seen.started_us?,
            statement_us: seen.statement_us.filter(|_| how == How::Cancel),
            how,
            replication: seen.replicates(),
            action_id: super::plan::new_id(),
            reason,
            application: seen.application.clone(),
            user: seen.role.clone(),
        })
    }

    /// Carries it out on any session of ours that may write, and writes it down in the local journal before and after.
    pub async fn carry_out(self, db: &Session, with: &With) -> Struck {
        let (span, verb, backend) = (log::action(&self.action_id), self.how.name(), self.pid);
        span.in_scope(|| info!(verb, backend, "write begins"));
        let struck = self.struck(db, with).instrument(span.clone()).await;
        let outcome = struck.verdict.name();
        span.in_scope(|| info!(verb, backend, outcome, "write ends"));
        struck
    }

    async fn struck(self, db: &Session, with: &With) -> Struck {
        let about = About {
            id: &self.action_id,
            action: self.how.name().into(),
            home: ("", ""),
            reason: self.reason.as_deref(),
            server: &with.server,
            of: 1,
        };
        let pid = self.pid.to_string();
        let diary = match Diary::open(with.journal.clone(), db, about).await {
            Ok(diary) => diary,
            Err(fault) => return self.not_begun(&fault),
        };
        let sql = signal_sql(self.how);
        if let Err(why) = diary.begun(&self.action_id, &sql, vec![pid.clone()]) {
            return self.not_begun(&Fault::own(why));
        }
        let mut struck = self.signalled(db, &sql, with).await;
        let strike = &struck.strike;
        let lost = match &struck.verdict {
            Verdict::Failed(why) => Some((why, Loss::Undone)),
            Verdict::Unknown(why) => Some((why, Loss::Unknown)),
            _ => None,
        };
        let noted = match lost {
            Some((why, loss)) => diary.failed(&strike.action_id, vec![pid], why, loss),
            None => diary.ended(&strike.row(&pid, &sql, &struck.verdict)),
        };
        struck.unwritten = struck.unwritten.or(noted.err());
        struck
    }

    /// What the journals say about it.
    fn row<'a>(&'a self, pid: &'a str, sql: &'a str, verdict: &Verdict) -> Entry<'a> {
        Entry {
            id: &self.action_id,
            action: self.how.name().into(),
            outcomes: vec![(pid, verdict.name())],
            changed: usize::from(matches!(verdict, Verdict::Signalled(_))),
            reason: self.reason.as_deref(),
            sql,
        }
    }

    async fn signalled(self, db: &Session, sql: &str, with: &With) -> Struck {
        let verdict = match self.signal(db, sql, with.poll).await {
            Ok(verdict) => verdict,
            Err(fault) => {
                if !fault.closed {
                    // fails only where the session does, and then nothing is left to roll back
                    let _ = db.end("ROLLBACK").await;
                }
                return match fault.closed {
                    true => self.ended(Verdict::Unknown(fault.to_string())),
                    false => self.not_begun(&fault),
                };
            }
        };
        let mut unwritten = None;
        if let Some(table) = &with.table {
            let pid = self.pid.to_string();
            let entry = self.row(&pid, sql, &verdict);
            unwritten = noted(db, table, &entry).await.err();
        }
        let unwritten = unwritten.or(db.end("COMMIT").await.err());
        let verdict = match verdict {
            Verdict::Signalled(_) => Verdict::Signalled(self.look(db).await),
            other => other,
        };
        Struck {
            strike: self,
            verdict,
            unwritten: unwritten.map(|f| f.to_string()),
        }
    }

    /// Nothing was signalled: there was no session of ours to do it, or it could not.
    pub fn not_begun(self, fault: &Fault) -> Struck {
        self.ended(Verdict::Failed(fault.to_string()))
    }

    fn ended(self, verdict: Verdict) -> Struck {
        Struck {
            strike: self,
            verdict,
            unwritten: None,
        }
    }

    async fn signal(&self, db: &Session, sql: &str, poll: i32) -> Result<Verdict, Fault> {
        db.begin(Purpose::Write).await?;
        db.execute("SAVEPOINT jobtop").await?;
        let (pid, poll) = (i64::from(self.pid), i64::from(poll));
        let ours: &[&str] = &OURS;
        let params = [
            (&pid as _, Type::INT8),
            (&self.started_us as _, Type::INT8),
            (&poll as _, Type::INT8),
            (&ours as _, Type::TEXT_ARRAY),
            (&self.replication as _, Type::BOOL),
            (&self.statement_us as _, Type::INT8),
        ];
        let rows = match db.write(sql, &params).await {
            Err(fault) if fault.is("42501") => {
                db.execute("ROLLBACK TO SAVEPOINT jobtop").await?;
                let backend = Backend::read(db, self.pid, Some(self.started_us)).await?;
                let lacks = backend.and_then(|b| b.lacks());
                return Ok(Verdict::NotPermitted(lacks.unwrap_or(fault.to_string())));
            }
            rows => rows?,
        };
        let outcome = rows.first().map(|row| row.word("outcome")).transpose()?;
        Ok(match outcome.as_deref() {
            Some("signalled") => Verdict::Signalled(After::Still),
            Some("ours") => Verdict::Ours,
            Some("replication") => Verdict::Replication,
            Some("moved on") => Verdict::MovedOn,
            _ => Verdict::Gone,
        })
    }

    /// Whether the session (or, for a cancel, its statement) is over, for up to two seconds.
    async fn look(&self, db: &Session) -> After {
        for n in 0..LOOKS {
            if n > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let now = match Backend::read(db, self.pid, Some(self.started_us)).await {
                Ok(now) => now,
                Err(fault) if fault.closed => return After::Unseen,
                Err(_) => continue,
            };
            match now {
                None => return After::Gone,
                Some(b) if self.how == How::Cancel => {
                    if !(b.active() && b.statement_us == self.statement_us) {
                        return After::Ended(b.state.unwrap_or_default());
                    }
                }
                Some(_) => {}
            }
        }
        After::Still
    }
}

/// Writes the journal row behind a savepoint, so that the signal's transaction goes on without it.
async fn noted(db: &Session, table: &str, entry: &Entry<'_>) -> Result<(), Fault> {
    db.execute("SAVEPOINT jobtop").await?;
    match journal::write(db, table, entry).await {
        Err(fault) if !fault.closed => {
            db.execute("ROLLBACK TO SAVEPOINT jobtop").await?;
            Err(fault)
        }
        result => result,
    }
}
