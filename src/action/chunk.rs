//! One short transaction: check, change, journal, commit; and how to learn its fate when the answer to the commit is
//! lost.

use super::journal::{self, Entry};
use super::{Fate, Plan, Target as Task};
use crate::connect::session::Purpose;
use crate::connect::{Cells, Fault, Session, Target};
use crate::queue::action::ActionSql;
use std::time::Duration;
use tokio_postgres::types::Type;

/// What became of a transaction.
pub(super) enum Ended {
    /// It was committed.
    Written(Vec<Fate>),
    /// It was not.
    Nothing(Fault),
    /// The answer to the commit was lost: only the server knows.
    Unknown {
        /// What it did, if it was committed.
        fates: Vec<Fate>,
        /// Names it.
        mark: Mark,
        /// What was lost.
        fault: Fault,
    },
}

/// What names a transaction to the server afterwards.
pub(super) struct Mark {
    /// Its number.
    pub xid: String,
    /// When the server was started: after a crash it gives out numbers again of which nothing had reached the disk.
    since: String,
}

/// What the server says about a transaction whose commit got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Committed,
    RolledBack,
    Nothing,
}

/// Carries out one statement on some of a plan's targets, in a transaction of its own. `id` names it in the journal
/// table `journal` (already quoted), where there is one.
pub(super) async fn perform(
    db: &Session,
    plan: &Plan,
    id: &str,
    sql: &ActionSql,
    targets: &[Task],
    journal: Option<&str>,
) -> Ended {
    match transaction(db, plan, id, sql, targets, journal).await {
        Ok((fates, mark)) => match db.end("COMMIT").await {
            Ok(()) => Ended::Written(fates),
            Err(fault) if fault.closed => Ended::Unknown { fates, mark, fault },
            Err(fault) => Ended::Nothing(fault),
        },
        Err(fault) => {
            if !fault.closed {
                // fails only where the session does, and then nothing is left to roll back
                let _ = db.end("ROLLBACK").await;
            }
            Ended::Nothing(fault)
        }
    }
}

async fn transaction(
    db: &Session,
    plan: &Plan,
    id: &str,
    sql: &ActionSql,
    targets: &[Task],
    journal: Option<&str>,
) -> Result<(Vec<Fate>, Mark), Fault> {
    // the poll session is read-only and patient; a write is neither
    db.begin(Purpose::Write).await?;
    let number =
        "SELECT pg_current_xact_id()::text AS xid, pg_postmaster_start_time()::text AS since";
    let rows = db.write(number, &[]).await?;
    let told = rows.first();
    let told = told.ok_or_else(|| Fault::own("the server returned no row"))?;
    let mark = Mark {
        xid: told.word("xid")?,
        since: told.word("since")?,
    };
    let outcomes = sql
        .run(db, plan.verb, targets, plan.reason.as_deref())
        .await?;
    let mut fates = Vec::with_capacity(targets.len());
    for target in targets {
        let found = outcomes.iter().find(|o| o.id == target.key.id);
        fates.push(Fate {
            key: target.key.clone(),
            outcome: found.map_or("gone", |o| o.outcome.as_str()).to_string(),
            why: found.and_then(|o| o.why.clone()),
            now_state: found.and_then(|o| o.now_state.clone()),
        });
    }
    if let Some(table) = journal {
        let entry = row(plan, id, sql.text(), &fates);
        journal::write(db, table, &entry).await?;
    }
    Ok((fates, mark))
}

/// What the journals say about a transaction that was written.
pub(super) fn row<'a>(plan: &'a Plan, id: &'a str, sql: &'a str, fates: &'a [Fate]) -> Entry<'a> {
    let outcome = |f: &'a Fate| (f.key.id.as_str(), f.outcome.as_str());
    Entry {
        id,
        action: plan.verb.noted().into(),
        outcomes: fates.iter().map(outcome).collect(),
        changed: fates.iter().filter(|f| f.done()).count(),
        reason: plan.reason.as_deref(),
        sql,
    }
}

/// Asks the server, for up to ten seconds, what became of a transaction; `noted` is the journal table and the id of the
/// row that it has written there.
pub(super) async fn resolve(target: &Target, mark: &Mark, noted: Option<(&str, &str)>) -> Told {
    for _ in 0..20 {
        if let Ok(db) = Session::open(target, Purpose::Poll, "jobtop write").await {
            let told = ask(&db, mark, noted).await;
            db.close().await;
            if let Some(told) = told {
                return told;
            }
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Told::Nothing
}

/// `None`: ask again. It may be in progress, since the server has not noticed yet that we are gone.
async fn ask(db: &Session, mark: &Mark, noted: Option<(&str, &str)>) -> Option<Told> {
    let sql = "SELECT pg_xact_status($1::text::xid8)::text AS status, pg_postmaster_start_time()::text AS since";
    let rows = match db.query(sql, &[(&mark.xid, Type::TEXT)]).await {
        // in the future: it was forgotten in a crash
        Err(fault) if fault.is("22023") => return Some(Told::RolledBack),
        rows => rows.ok()?,
    };
    let row = rows.first()?;
    match row.word("status").ok()?.as_str() {
        "aborted" => return Some(Told::RolledBack),
        "committed" => {}
        _ => return None,
    }
    let same_server = row.word("since").ok()? == mark.since;
    // by now its row is seen, if it was this one and not another under the same number
    let Some((table, id)) = noted else {
        return Some(if same_server {
            Told::Committed
        } else {
            Told::Nothing
        });
    };
    let sql = format!("SELECT count(*) AS n FROM {table} WHERE action_id = $1");
    let rows = db.query(&sql, &[(&id, Type::TEXT)]).await.ok()?;
    match rows.first()?.count("n").ok()? {
        0 => Some(Told::RolledBack),
        _ => Some(Told::Committed),
    }
}

/// A timeout may be the chunk's size; anything else would come again.
pub(super) fn slow(fault: &Fault) -> bool {
    fault.is("55P03") || fault.is("57014") || fault.is("40P01")
}

/// Why something was not written, with what helps.
pub(super) fn unwritten(fault: &Fault) -> String {
    let helps = match fault {
        f if f.is("42883") || f.is("42703") => {
            "; the schema is older than this jobtop: run jobtop migrate"
        }
        f if f.is("42501") => "; this role lacks the operator's rights (jobtop grants prints them)",
        f if f.is("55P03") => "; a table is locked: see waits (2)",
        _ => "",
    };
    format!("{fault}{helps}")
}
