//! One short transaction: check, change, journal, commit; and what to say when the answer to the commit is lost.

use super::{Fate, Outcome, Plan, Target as Task, journal};
use crate::connect::session::Purpose;
use crate::connect::{Cells, Fault, Session, Target};
use crate::queue::action::ActionSql;
use tokio_postgres::types::Type;

/// A plan with the statements that carry it out, for any session.
#[derive(Clone, Debug)]
pub struct Ready {
    plan: Plan,
    /// One a queue where ids are unique only within one; else a single one.
    steps: Vec<(ActionSql, Vec<Task>)>,
    /// The journal table, quoted, where the system has one.
    journal: Option<String>,
}

/// What was done; `commit` names the transaction whose fate is not known.
pub struct Done {
    outcome: Outcome,
    commit: Option<String>,
}

/// The poll session is read-only and patient; a write is neither.
const BEGIN: &str = "BEGIN READ WRITE; SET LOCAL lock_timeout = '250ms'; SET LOCAL statement_timeout = '2s'; \
                     SET LOCAL idle_in_transaction_session_timeout = '2s'";

impl Ready {
    /// Gives the action its own id; from now on it may run once.
    pub fn new(
        mut plan: Plan,
        steps: Vec<(ActionSql, Vec<Task>)>,
        journal: Option<String>,
    ) -> Self {
        plan.action_id = format!("{:032x}", rand::random::<u128>());
        Self {
            plan,
            steps,
            journal,
        }
    }

    /// Carries the plan out in one transaction.
    pub async fn perform(&self, db: &Session) -> Done {
        let mut commit = None;
        let result = match self.transaction(db, &mut commit).await {
            Ok(fates) => Ok(fates),
            Err(fault) if commit.is_some() => {
                Err(format!("{fault}; it is not known whether it was written"))
            }
            Err(fault) => {
                if !fault.closed {
                    let _ = db.execute("ROLLBACK").await;
                }
                Err(nothing_written(&fault))
            }
        };
        if result.is_ok() {
            commit = None;
        }
        Done {
            outcome: Outcome {
                plan: self.plan.clone(),
                result,
            },
            commit,
        }
    }

    async fn transaction(
        &self,
        db: &Session,
        commit: &mut Option<String>,
    ) -> Result<Vec<Fate>, Fault> {
        db.execute(BEGIN).await?;
        let rows = db
            .write("SELECT pg_current_xact_id()::text AS xid", &[])
            .await?;
        let xid = rows.first().map(|r| r.word("xid")).transpose()?;
        let fates = self.change(db).await?;
        if let Some(table) = &self.journal {
            journal::write(db, table, &self.plan, &fates).await?;
        }
        // from here on only the server knows
        *commit = xid;
        match db.execute("COMMIT").await {
            Err(fault) if !fault.closed => {
                *commit = None;
                Err(fault)
            }
            other => other.map(|()| fates),
        }
    }

    async fn change(&self, db: &Session) -> Result<Vec<Fate>, Fault> {
        let mut fates = Vec::new();
        for (sql, targets) in &self.steps {
            let outcomes = sql.run(db, targets, self.plan.reason.as_deref()).await?;
            for target in targets {
                let found = outcomes.iter().find(|o| o.id == target.key.id);
                fates.push(Fate {
                    key: target.key.clone(),
                    outcome: found.map_or("gone", |o| o.outcome.as_str()).to_string(),
                    why: found.and_then(|o| o.why.clone()),
                    now_state: found.and_then(|o| o.now_state.clone()),
                });
            }
        }
        Ok(fates)
    }

    /// Nothing could be tried.
    pub fn failed(&self, fault: &Fault) -> Outcome {
        Outcome {
            plan: self.plan.clone(),
            result: Err(nothing_written(fault)),
        }
    }
}

impl Done {
    /// Asks the server what became of a transaction whose commit got no answer.
    pub async fn resolve(self, target: &Target) -> Outcome {
        let Some(xid) = self.commit else {
            return self.outcome;
        };
        let mut outcome = self.outcome;
        for _ in 0..20 {
            if let Ok(db) = Session::open(target, Purpose::Poll, "jobtop write").await {
                let rows = db
                    .query(
                        "SELECT pg_xact_status($1::text::xid8)::text AS status",
                        &[(&xid, Type::TEXT)],
                    )
                    .await;
                db.close().await;
                if let Ok(rows) = rows {
                    let status = rows.first().and_then(|r| r.word("status").ok());
                    outcome.result = Err(match status.as_deref() {
                        Some("committed") => {
                            "the answer to the commit was lost, but it was written (see the journal)".into()
                        }
                        Some("aborted") => "the connection was lost and nothing was written".into(),
                        _ => format!("the connection was lost; transaction {xid} is not decided yet"),
                    });
                    return outcome;
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
        outcome
    }
}

fn nothing_written(fault: &Fault) -> String {
    if fault.is("42501") {
        return format!("nothing was written: {fault}; this role lacks the operator's rights");
    }
    format!("nothing was written: {fault}")
}
