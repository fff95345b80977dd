//! The local journal's lines about one action: before each transaction and after it.

use super::{Fate, Plan, Target as Task};
use crate::connect::{Cells, Fault, Session};
use crate::journal::{Entry, FORMAT, Journal, Phase, host, person};
use chrono::Utc;

/// Writes them.
pub(super) struct Diary {
    journal: Journal,
    /// What all lines share.
    line: Entry,
}

impl Diary {
    /// Asks the server who and where we are to it; `server` is how we call it.
    pub async fn open(
        journal: Journal,
        db: &Session,
        server: &str,
        plan: &Plan,
    ) -> Result<Self, Fault> {
        let sql = "SELECT session_user::text AS db_user, host(inet_client_addr())::text AS client, \
                   current_database()::text AS database";
        let rows = db.query(sql, &[]).await?;
        let row = rows.first();
        let row = row.ok_or_else(|| Fault::own("the server returned no row"))?;
        let key = plan.targets.first().map(|t| &t.key);
        Ok(Self {
            journal,
            line: Entry {
                format: FORMAT,
                at: Utc::now(),
                phase: Phase::Begun,
                action_id: plan.action_id.clone(),
                action: plan.verb.name().into(),
                who: person(),
                db_user: row.word("db_user")?,
                host: host(),
                client_addr: row.text("client")?,
                server: server.into(),
                database: row.word("database")?,
                system: key.map_or_else(String::new, |k| k.system.clone()),
                schema: key.map_or_else(String::new, |k| k.schema.clone()),
                reason: plan.reason.clone(),
                sql: None,
                ids: Vec::new(),
                asked: None,
                changed: None,
                skipped: None,
                outcomes: Default::default(),
                error: None,
            },
        })
    }

    /// A transaction is about to be sent.
    pub fn begun(&self, id: &str, sql: &str, targets: &[Task]) -> Result<(), String> {
        self.append(Entry {
            action_id: id.into(),
            sql: Some(sql.into()),
            ids: targets.iter().map(|t| t.key.id.clone()).collect(),
            ..self.line.clone()
        })
    }

    /// It was written, so it did this.
    pub fn ended(&self, id: &str, fates: &[Fate]) -> Result<(), String> {
        let changed = fates.iter().filter(|f| f.done()).count() as u64;
        let asked = fates.len() as u64;
        let outcome = |f: &Fate| (f.key.id.clone(), f.outcome.clone());
        self.append(Entry {
            action_id: id.into(),
            phase: Phase::Ended,
            ids: fates.iter().map(|f| f.key.id.clone()).collect(),
            asked: Some(asked),
            changed: Some(changed),
            skipped: Some(asked - changed),
            outcomes: fates.iter().map(outcome).collect(),
            ..self.line.clone()
        })
    }

    /// It was not written, or nobody knows.
    pub fn failed(&self, id: &str, targets: &[Task], why: &str) -> Result<(), String> {
        self.append(Entry {
            action_id: id.into(),
            phase: Phase::Ended,
            ids: targets.iter().map(|t| t.key.id.clone()).collect(),
            asked: Some(targets.len() as u64),
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
