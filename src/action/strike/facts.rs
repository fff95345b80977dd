//! What ending a session means, in words: from the session as it was just read and what the monitor knows besides.

use super::{How, twice};
use crate::findings::words::{clean, duration, list, name, plural};
use crate::panes::chains::Chains;
use crate::probe::backend::Backend;
use crate::probe::tasks::Task;
use crate::probe::{Snapshot, State};

/// Columns of the statement that are shown.
const STATEMENT: usize = 240;
/// Ids that are named.
const NAMED: usize = 6;

/// What ending a session means.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// `End session 4711 agent-7?`
    pub title: String,
    /// Who it is, where, in what state, with which statement.
    pub lines: Vec<String>,
    /// Why one should think twice.
    pub twice: Vec<&'static str>,
    /// What cancelling its statement does, or why it cannot be done.
    pub cancel: Result<String, String>,
    /// What terminating it does, or why it cannot be done.
    pub terminate: Result<String, String>,
    /// It is in a transaction, and others wait for it.
    in_the_way: bool,
    replicates: bool,
    pid: i32,
}

impl Facts {
    /// Of the session of that pid.
    pub fn of(pid: i32, b: &Backend, snapshot: &Snapshot) -> Self {
        let chains = Chains::of(snapshot);
        let behind = chains.behind(pid);
        let off = match (b.lacks(), b.started_us) {
            (Some(lacks), _) => Some(lacks),
            (None, None) => Some(format!(
                "when it started is hidden, so that it may be another session by now: GRANT pg_read_all_stats TO {}",
                b.me
            )),
            (None, Some(_)) => None,
        };
        let may = |does: Result<String, String>| match &off {
            Some(why) => Err(why.clone()),
            None => does,
        };
        let who = match (b.application.is_empty(), b.role.is_empty()) {
            (false, _) => name(&b.application),
            (true, false) => name(&b.role),
            (true, true) => name(&b.kind),
        };
        let mut lines = vec![place(b, snapshot), state(b)];
        lines.extend(statement(b));
        Self {
            title: format!("End session {pid} {who}?"),
            lines,
            twice: twice::twice(b),
            cancel: may(cancel(b)),
            terminate: may(Ok(terminate(pid, b, snapshot, &chains, &behind))),
            in_the_way: b.xact_s.is_some() && !behind.is_empty(),
            replicates: b.replicates(),
            pid,
        }
    }

    /// What must be typed before this is done; empty where `y` is enough. `local`: the host is this machine.
    pub fn must_type(&self, how: How, local: bool) -> String {
        let in_the_way = how == How::Terminate && self.in_the_way;
        match (self.replicates, local) {
            (true, _) => format!("replication {}", self.pid),
            (false, true) if self.twice.is_empty() && !in_the_way => String::new(),
            (false, _) => self.pid.to_string(),
        }
    }
}

fn place(b: &Backend, snapshot: &Snapshot) -> String {
    let role = match (b.role.is_empty(), b.kind.as_str()) {
        (false, "" | "client backend") => format!("role {}", name(&b.role)),
        (false, kind) => format!("{kind}, role {}", name(&b.role)),
        (true, kind) => kind.to_string(),
    };
    let from = match b.role.is_empty() {
        true => String::new(),
        false => format!(" from {}", b.client.as_deref().unwrap_or("a local socket")),
    };
    let database = match b.database.is_empty() {
        true => String::new(),
        false => format!(", database {}", name(&b.database)),
    };
    format!("{role}{from}{database} on {}", snapshot.server.host)
}

fn state(b: &Backend) -> String {
    let state = b.state.as_deref().unwrap_or("its state is hidden");
    let since = b.state_s.filter(|_| b.state.is_some());
    let since = since.map_or(String::new(), |s| format!(" for {}", duration(s)));
    let open = match b.xact_s {
        Some(s) => format!("; its transaction is open for {}", duration(s)),
        None => "; in no transaction".into(),
    };
    format!("{state}{since}{open}")
}

fn statement(b: &Backend) -> Option<String> {
    let text = clean(&b.statement, STATEMENT);
    if text.is_empty() {
        return None;
    }
    let age = b.statement_s.filter(|_| b.active());
    Some(match age {
        Some(s) => format!("runs for {}: {text}", duration(s)),
        None => format!("ran last: {text}"),
    })
}

fn cancel(b: &Backend) -> Result<String, String> {
    let Some(state) = b.state.as_deref() else {
        return Err("whether it runs a statement is hidden from this role".into());
    };
    if !b.active() || b.statement_us.is_none() {
        return Err(format!(
            "it is {state} and runs no statement: that would do nothing"
        ));
    }
    Ok(match b.xact_s {
        Some(s) => format!(
            "ends the statement and rolls back its transaction, {} of work, so that its locks are free (unless a savepoint keeps them); the session stays",
            duration(s)
        ),
        None => "ends the statement; the session stays".into(),
    })
}

fn terminate(
    pid: i32,
    b: &Backend,
    snapshot: &Snapshot,
    chains: &Chains<'_>,
    behind: &[i32],
) -> String {
    let failed = b.state.as_deref() == Some("idle in transaction (aborted)");
    let mut parts = vec![match b.xact_s {
        Some(_) if failed => "its transaction has failed already".to_string(),
        Some(s) => format!("rolls back {} of work", duration(s)),
        None => "no transaction is open: nothing is rolled back".into(),
    }];
    parts.extend(held(pid, snapshot));
    if !behind.is_empty() {
        let n = plural(behind.len() as u64, "session", "sessions");
        let get = match behind.len() {
            1 => "gets the lock",
            _ => "get the lock in turn",
        };
        parts.push(format!("{n} {get}{}", others(pid, chains, behind)));
    }
    parts.extend(worker(b, pid, snapshot));
    parts.join("; ")
}

/// The tasks whose rows its transaction has locked or changed.
fn held(pid: i32, snapshot: &Snapshot) -> Option<String> {
    let rows = snapshot.tasks.rows.iter();
    let seen: Vec<&str> = rows
        .filter(|t| t.locked_by_pid == Some(pid))
        .map(|t| t.key.id.as_str())
        .collect();
    let session = snapshot.sessions.iter().find(|s| s.pid == Some(pid));
    let counted = session.map_or(0, |s| u64::from(s.task_rows));
    let n = counted.max(seen.len() as u64);
    let (least, are) = (
        if counted > seen.len() as u64 {
            "at least "
        } else {
            ""
        },
        if n == 1 { "is" } else { "are" },
    );
    let ids = match seen.is_empty() {
        true => String::new(),
        false => format!(": {}", list(seen, NAMED, n)),
    };
    (n > 0).then(|| {
        format!(
            "{least}{} {are} held by it{ids}",
            plural(n, "task", "tasks")
        )
    })
}

/// How many of those behind it wait for others, too.
fn others(pid: i32, chains: &Chains<'_>, behind: &[i32]) -> String {
    let foreign = |p: &i32| *p != pid && !behind.contains(p);
    let also = behind.iter().filter(|waiter| {
        let waits = chains.waiting(**waiter);
        waits.is_some_and(|b| b.blocked_by.iter().any(foreign))
    });
    match also.count() {
        0 => String::new(),
        n => format!(", {n} of them after others"),
    }
}

/// The tasks that a worker of this name runs: they are not in the transaction.
fn worker(b: &Backend, pid: i32, snapshot: &Snapshot) -> Option<String> {
    let leased = |t: &&Task| {
        t.state == State::Running
            && t.locked_by_pid != Some(pid)
            && !b.application.is_empty()
            && t.worker.as_deref() == Some(&b.application)
    };
    let ids: Vec<&str> = snapshot
        .tasks
        .rows
        .iter()
        .filter(leased)
        .map(|t| t.key.id.as_str())
        .collect();
    let n = ids.len() as u64;
    (n > 0).then(|| {
        format!(
            "{} of this worker ({}) {} only the session: the lease stays",
            plural(n, "task", "tasks"),
            list(ids, NAMED, n),
            if n == 1 { "loses" } else { "lose" },
        )
    })
}

#[cfg(test)]
mod tests;
