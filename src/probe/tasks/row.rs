//! The neutral task row: which columns a statement selects, and how they are read.

use super::redact::redact;
use super::{Task, TaskKey};
use crate::connect::{Cells, Fault};
use crate::probe::{ServerTime, State};
use crate::queue::profile::{Live, Sql};
use crate::queue::template::literal;
use crate::queue::{Branch, Instance, columns};
use std::collections::BTreeMap;
use tokio_postgres::Row;

/// How much of a task is read; the rest is NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// All but what it has spent, which costs a lookup for each row.
    Cheap,
    /// All.
    Whole,
    /// What an action is judged by: thousands of rows are read.
    Judge,
}

impl Want {
    fn leaves_out(self, column: &str) -> bool {
        match self {
            Want::Cheap => column == "cost",
            Want::Whole => false,
            Want::Judge => matches!(
                column,
                "last_error" | "agent" | "tenant" | "application" | "batch" | "worker_version"
            ),
        }
    }
}

/// Columns of a listed task: the neutral ones and `stuck`, the name of the rule that calls it so.
pub fn selected(
    instance: &Instance,
    own: &BTreeMap<String, Sql>,
    live: Option<&Live>,
    want: Want,
    branch: &Branch,
) -> Result<String, Fault> {
    let list = neutral(instance, own, want, branch)?;
    Ok(format!(
        "{list}, {} AS stuck",
        stuck(instance, live, branch)?
    ))
}

/// As [`selected`], for rows that are finished and so cannot be stuck.
pub fn finished(
    instance: &Instance,
    own: &BTreeMap<String, Sql>,
    want: Want,
    branch: &Branch,
) -> Result<String, Fault> {
    let list = neutral(instance, own, want, branch)?;
    Ok(format!("{list}, NULL::text AS stuck"))
}

fn neutral(
    instance: &Instance,
    own: &BTreeMap<String, Sql>,
    want: Want,
    branch: &Branch,
) -> Result<String, Fault> {
    let mut list = Vec::new();
    for (name, cast) in columns::listed() {
        let expr = match *name {
            name if want.leaves_out(name) => cast.null().to_string(),
            name => instance.column(own, name, *cast, true, branch)?,
        };
        list.push(format!("{expr} AS {name}"));
    }
    Ok(list.join(", "))
}

/// The name of the first rule that calls a row stuck. Without a live source all rules are tried, each with the
/// condition of its own source: that is for `by_id`, which uses the same aliases.
pub fn stuck(instance: &Instance, live: Option<&Live>, branch: &Branch) -> Result<String, Fault> {
    let mut cases = String::new();
    for rule in &instance.profile.stuck {
        if live.is_some_and(|l| l.name != rule.live) {
            continue;
        }
        let mut cond = format!("({})", instance.fill(rule.r#where.get_ref(), branch)?);
        if live.is_none()
            && let Some(source) = instance.profile.live.iter().find(|l| l.name == rule.live)
        {
            cond += &format!(
                " AND ({})",
                instance.fill(source.r#where.get_ref(), branch)?
            );
        }
        cases += &format!(" WHEN {cond} THEN {}", literal(&rule.name));
    }
    Ok(match cases.is_empty() {
        true => "NULL::text".into(),
        false => format!("(CASE{cases} END)::text"),
    })
}

/// Reads a row selected by [`selected`].
pub fn read(
    row: &Row,
    instance: &Instance,
    keys: &[String],
    now: ServerTime,
) -> Result<Task, Fault> {
    let state = State::parse(&row.word("state")?);
    let error = row.text("last_error")?;
    let error = error.and_then(|e| e.lines().next().map(|l| redact(l, keys)));
    let mut task = Task {
        key: TaskKey {
            system: instance.system.clone(),
            schema: instance.schema.clone(),
            queue: row.word("queue")?,
            id: row.word("id")?,
        },
        kind: row.text("kind")?,
        state,
        native_state: row.word("native_state")?,
        priority: row.float("priority")?,
        created_at: row.time("created_at")?,
        eligible_at: row.time("eligible_at")?,
        claimed_at: row.time("claimed_at")?,
        started_at: row.time("started_at")?,
        finished_at: row.time("finished_at")?,
        lease_until: row.time("lease_until")?,
        heartbeat_at: row.time("heartbeat_at")?,
        stuck: row.text("stuck")?.filter(|_| state == State::Running),
        worker: row.text("worker")?,
        attempt: row.int("attempt")?,
        max_attempts: row.int("max_attempts")?,
        lease_token: row.int("lease_token")?,
        last_error: error,
        agent: row.text("agent")?,
        tenant: row.text("tenant")?,
        application: row.text("application")?,
        batch: row.text("batch")?,
        cancel_requested_at: row.time("cancel_requested_at")?,
        cost_usd: row.usd("cost")?,
        locked_by_pid: None,
        in_state_s: None,
    };
    if task.native_state.is_empty() {
        task.native_state = state.name().to_string();
    }
    task.in_state_s = since(&task).and_then(|t| now.since(t)).map(|s| s.max(0.0));
    Ok(task)
}

/// Since when a task has been in its state, where its times tell.
fn since(task: &Task) -> Option<ServerTime> {
    match task.state {
        State::Ready => task.eligible_at.or(task.created_at),
        State::Running => task.started_at.or(task.claimed_at),
        State::Scheduled => task.created_at,
        State::Succeeded | State::Failed | State::Cancelled => task.finished_at,
        State::Retryable | State::Other => None,
    }
}
