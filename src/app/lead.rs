//! From a row to what belongs to it: its tasks, and what blocks it.

use super::row::RowId;
use super::state::{App, PaneId};
use crate::probe::Snapshot;

impl App {
    /// `t`: shows only the tasks that belong to the row in hand.
    pub(super) fn tasks_of(&mut self) {
        let Some(of) = self.row_in_hand().and_then(|row| self.has_tasks(row)) else {
            return;
        };
        self.layers.clear();
        self.focus = PaneId::Tasks;
        self.zoom = Some(PaneId::Tasks);
        let view = self.view_mut(PaneId::Tasks);
        match of {
            task @ RowId::Task(_) => {
                view.of = None;
                view.cursor = Some(task);
            }
            of => {
                view.of = Some(of);
                view.cursor = None;
            }
        }
        view.filter.reset();
    }

    /// The row whose tasks are meant: this one, or the one a finding points at; `None` where it has none.
    pub(super) fn has_tasks(&self, row: RowId) -> Option<RowId> {
        let of = match &row {
            RowId::Finding { .. } => self.culprit(&row)?,
            RowId::Task(_) => return None,
            _ => row,
        };
        let has = matches!(
            of,
            RowId::Queue { .. }
                | RowId::Worker { .. }
                | RowId::Spender { .. }
                | RowId::Session { .. }
                | RowId::Failures { .. }
                | RowId::Task(_)
        );
        has.then_some(of)
    }

    /// `b`: goes to what blocks the row in hand.
    pub(super) fn go_to_blocker(&mut self) {
        let blocker = self.row_in_hand().and_then(|row| self.blocker(row));
        if let Some(session) = blocker {
            self.go(PaneId::Waits, session);
        }
    }

    /// The session that blocks a row; a session that is itself what others wait for stands for itself.
    pub(super) fn blocker(&self, row: RowId) -> Option<RowId> {
        let row = self.culprit(&row).unwrap_or(row);
        let (snapshot, _) = self.shown()?;
        let found = match &row {
            RowId::Session { pid, .. } => blocks(snapshot, *pid),
            RowId::Task(key) => {
                let task = snapshot.tasks.rows.iter().find(|t| t.key == *key)?;
                task.locked_by_pid.or_else(|| {
                    let worker = task.worker.as_deref()?;
                    let sessions = || {
                        let all = snapshot.sessions.iter();
                        all.filter(|x| x.application == worker)
                    };
                    let waiting = sessions().find_map(|x| blocks(snapshot, x.pid?));
                    waiting.or_else(|| sessions().find_map(|x| x.pid))
                })
            }
            _ => None,
        };
        let waited_for = |pid: i32| snapshot.blocked.iter().any(|b| b.blocked_by.contains(&pid));
        found
            .and_then(|pid| session_row(snapshot, pid))
            .or_else(|| match row {
                RowId::Session { pid, .. } if waited_for(pid) => Some(row),
                _ => None,
            })
    }
}

/// The first session that this one waits for.
fn blocks(snapshot: &Snapshot, pid: i32) -> Option<i32> {
    let blocked = snapshot.blocked.iter().find(|b| b.pid == pid)?;
    blocked.blocked_by.first().copied()
}

/// The row of a session that is shown by itself.
fn session_row(snapshot: &Snapshot, pid: i32) -> Option<RowId> {
    let session = snapshot.sessions.iter().find(|s| s.pid == Some(pid))?;
    session.row_id()
}
