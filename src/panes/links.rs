//! How rows lead to one another: whose tasks (`t`), who stands in the way (`b`).

use super::chains::Chains;
use super::common::{queue_of, session, session_row};
use crate::app::row::RowId;
use crate::app::state::App;
use crate::probe::tasks::Task;
use crate::probe::{Snapshot, State};

/// Does a row belong to another one? Tasks belong to queues, workers, sessions, spenders, groups of failures and
/// findings.
pub fn belongs(app: &App, row: &RowId, of: &RowId) -> bool {
    if row == of {
        return true;
    }
    let Some((snapshot, report)) = app.shown() else {
        return false;
    };
    if let RowId::Finding { rule, n } = of {
        let culprit = report
            .findings
            .iter()
            .filter(|f| f.rule == *rule)
            .nth(*n)
            .and_then(|f| f.culprit.as_ref());
        return culprit.is_some_and(|c| belongs(app, row, c));
    }
    match row {
        RowId::Task(key) => snapshot
            .tasks
            .rows
            .iter()
            .find(|t| t.key == *key)
            .is_some_and(|task| task_of(snapshot, task, of)),
        _ => false,
    }
}

fn task_of(snapshot: &Snapshot, task: &Task, of: &RowId) -> bool {
    match of {
        RowId::Queue {
            system,
            schema,
            queue,
            kind,
        } => {
            task.key.system == *system
                && task.key.schema == *schema
                && task.key.queue == *queue
                && (kind.is_none() || task.kind == *kind)
        }
        RowId::Worker {
            system,
            schema,
            worker,
        } => {
            task.key.system == *system
                && task.key.schema == *schema
                && task.worker.as_deref() == Some(worker)
        }
        RowId::Session { pid, .. } => {
            task.locked_by_pid == Some(*pid)
                || session(snapshot, *pid)
                    .is_some_and(|s| task.worker.as_deref() == Some(&s.application))
        }
        RowId::Idle { application, .. } => task.worker.as_deref() == Some(application),
        RowId::Budget(name) => snapshot.sessions.iter().any(|s| {
            s.budget == *name
                && (s.pid.is_some() && s.pid == task.locked_by_pid
                    || task.worker.as_deref() == Some(&s.application))
        }),
        RowId::Wait { kind, event } => snapshot.sessions.iter().any(|s| {
            s.wait_type.as_deref() == Some(kind)
                && s.wait_event.as_deref().unwrap_or_default() == event
                && (s.pid.is_some() && s.pid == task.locked_by_pid
                    || task.worker.as_deref() == Some(&s.application))
        }),
        RowId::Spender { by, name } => {
            let value = match by.as_str() {
                "agent" => &task.agent,
                "tenant" => &task.tenant,
                "application" => &task.application,
                _ => return false,
            };
            value.as_deref().unwrap_or("(none)") == name
        }
        RowId::Failures {
            system,
            schema,
            kind,
            error,
        } => {
            task.state == State::Failed
                && task.key.system == *system
                && task.key.schema == *schema
                && task.kind == *kind
                && super::alike::alike(error, task.last_error.as_deref())
        }
        _ => false,
    }
}

/// What can be said where no session is known to hold a task's row.
pub const NO_HOLDER: &str =
    "nobody is seen to hold this row (a lock that several sessions share does not name them)";

/// The row of the session of that pid; of one that is not listed (a process of the server, another database's) the
/// start is not known.
pub fn session_of(snapshot: &Snapshot, pid: i32) -> RowId {
    session(snapshot, pid).map_or(RowId::Session { pid, started_us: 0 }, session_row)
}

/// The session that stands in the way of a row, if any: the one that holds its row, else the head of the chain it
/// waits in.
pub fn blocker(app: &App, row: &RowId) -> Option<RowId> {
    let (snapshot, report) = app.shown()?;
    let chains = Chains::of(snapshot);
    let of_pid = |pid: i32| session_of(snapshot, pid);
    // One who neither waits nor is waited for stands in nobody's way.
    let in_way = |pid: i32| {
        let root = chains.root_of(pid);
        (root != pid || chains.count(root) > 0).then(|| of_pid(root))
    };
    match row {
        RowId::Session { pid, .. } => in_way(*pid),
        RowId::Task(key) => {
            let task = snapshot.tasks.rows.iter().find(|t| t.key == *key)?;
            match task.locked_by_pid {
                Some(pid) => Some(of_pid(pid)),
                None => in_way(pid_of_worker(snapshot, task.worker.as_deref()?)?),
            }
        }
        RowId::Worker { worker, .. } => in_way(pid_of_worker(snapshot, worker)?),
        RowId::Queue { .. } => {
            let queue = queue_of(snapshot, row)?;
            let of = |t: &&Task| t.key.queue == queue.queue && t.key.system == queue.system;
            let mut held = snapshot.tasks.rows.iter().filter(of);
            held.find_map(|t| t.locked_by_pid).map(of_pid)
        }
        RowId::Wait { kind, .. } if kind == "Lock" => chains.roots().first().copied().map(of_pid),
        RowId::Finding { rule, n } => {
            let finding = report.findings.iter().filter(|f| f.rule == *rule).nth(*n)?;
            let culprit = finding.culprit.as_ref()?;
            match culprit {
                RowId::Finding { .. } => None,
                RowId::Session { .. } => Some(culprit.clone()),
                other => blocker(app, other),
            }
        }
        _ => None,
    }
}

/// The session of a worker that waits, else any of its sessions.
fn pid_of_worker(snapshot: &Snapshot, worker: &str) -> Option<i32> {
    let mut own = snapshot
        .sessions
        .iter()
        .filter(|s| s.application == worker)
        .filter_map(|s| s.pid);
    let waits = |pid: &i32| snapshot.blocked.iter().any(|b| b.pid == *pid);
    own.clone().find(waits).or_else(|| own.next())
}

/// A row in a word or two, for headings.
pub fn label(row: &RowId) -> String {
    match row {
        RowId::Task(key) => format!("task {}", key.id),
        RowId::Session { pid: 0, .. } => "prepared transaction".into(),
        RowId::Session { pid, .. } => format!("pid {pid}"),
        RowId::Idle { application, .. } => application.clone(),
        RowId::Budget(name) => format!("budget {name}"),
        RowId::Wait { kind, event } => format!("{kind} {event}"),
        RowId::Queue {
            kind: Some(kind), ..
        } => format!("kind {kind}"),
        RowId::Queue { queue, .. } => format!("queue {queue}"),
        RowId::Worker { worker, .. } => worker.clone(),
        RowId::Spender { by, name } => format!("{by} {name}"),
        RowId::Table(name) => name.clone(),
        RowId::Failures { kind, error, .. } => {
            format!("{}: {error}", kind.as_deref().unwrap_or("no kind"))
        }
        RowId::Finding { rule, .. } => rule.clone(),
        RowId::Log(n) => format!("log line {n}"),
    }
}
