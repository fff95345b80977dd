//! The local journal's lines about one action: before each transaction and after it.

use super::journal::Entry as Row;
use crate::connect::{Cells, Fault, Session};
use crate::journal::{Entry, FORMAT, Journal, Phase, host, person};
use chrono::Utc;

/// What the lines of an action have in common.
pub(super) struct About<'a> {
    /// Names the action.
    pub id: &'a str,
    /// `requeue`, `terminate`, ….
    pub action: String,
    /// Profile and schema; empty where it is not about a queue.
    pub home: (&'a str, &'a str),
    /// Why, in the operator's words.
    pub reason: Option<&'a str>,
    /// How we call the server.
    pub server: &'a str,
    /// How many it asks for, in all its transactions.
    pub of: u64,
}

/// What is known of the targets of a transaction that nobody saw written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// It was not written.
    Undone,
    /// It was not written, and is not tried again: the server would not change its target.
    Refused,
    /// Only the server knows.
    Unknown,
}

/// Writes them.
pub(super) struct Diary {
    journal: Journal,
    /// What all lines share.
    line: Entry,
}

impl Diary {
    /// Asks the server who and where we are to it.
    pub async fn open(journal: Journal, db: &Session, about: About<'_>) -> Result<Self, Fault> {
        let sql = "SELECT session_user::text AS db_user, host(inet_client_addr())::text AS client, \
                   current_database()::text AS database";
        let rows = db.query(sql, &[]).await?;
        let row = rows.first();
        let row = row.ok_or_else(|| Fault::own("the server returned no row"))?;
        Ok(Self {
            journal,
            line: Entry {
                format: FORMAT,
                at: Utc::now(),
                phase: Phase::Begun,
                action_id: about.id.into(),
                action: about.action,
                who: person(),
                db_user: row.word("db_user")?,
                host: host(),
                client_addr: row.text("client")?,
                server: about.server.into(),
                database: row.word("database")?,
                system: about.home.0.into(),
                schema: about.home.1.into(),
                reason: about.reason.map(Into::into),
                sql: None,
                of: Some(about.of),
                ids: Vec::new(),
                asked: None,
                changed: None,
                skipped: None,
                unknown: None,
                outcomes: Default::default(),
                error: None,
            },
        })
    }

    /// A transaction is about to be sent.
    pub fn begun(&self, id: &str, sql: &str, ids: Vec<String>) -> Result<(), String> {
        self.append(Entry {
            action_id: id.into(),
            sql: Some(sql.into()),
            ids,
            ..self.line.clone()
        })
    }

    /// It was written, and did this.
    pub fn ended(&self, row: &Row<'_>) -> Result<(), String> {
        let asked = row.outcomes.len() as u64;
        let outcome = |(id, outcome): &(&str, &str)| (id.to_string(), outcome.to_string());
        self.append(Entry {
            action_id: row.id.into(),
            phase: Phase::Ended,
            ids: row.outcomes.iter().map(|(id, _)| id.to_string()).collect(),
            asked: Some(asked),
            changed: Some(row.changed as u64),
            skipped: Some(asked - row.changed as u64),
            unknown: Some(0),
            outcomes: row.outcomes.iter().map(outcome).collect(),
            ..self.line.clone()
        })
    }

    /// It was not written, or nobody knows.
    pub fn failed(&self, id: &str, ids: Vec<String>, why: &str, loss: Loss) -> Result<(), String> {
        let asked = ids.len() as u64;
        let those = |kind: Loss| if loss == kind { asked } else { 0 };
        self.append(Entry {
            action_id: id.into(),
            phase: Phase::Ended,
            asked: Some(asked),
            changed: (loss != Loss::Unknown).then_some(0),
            skipped: (loss != Loss::Unknown).then_some(those(Loss::Refused)),
            unknown: Some(those(Loss::Unknown)),
            ids,
            error: Some(why.into()),
            ..self.line.clone()
        })
    }

    fn append(&self, entry: Entry) -> Result<(), String> {
        let entry = Entry {
            at: Utc::now(),
            ..entry
        };
        let appended = self.journal.append(&entry);
        appended.map_err(|e| format!("{e:#}: set journal_file"))
    }
}
