//! Why an action is not possible now: asked by the palette, the help, the footer, and before the action itself.

use super::row::RowId;
use super::state::{App, Layer, PaneId};
use crate::keys::{self, Action, Risk};
use crate::probe::tasks::TaskKey;

impl App {
    /// Why an action is not possible now, in one sentence; `None` when it is. That there is no further row in that
    /// direction is no reason.
    pub fn why_not(&self, action: Action) -> Option<String> {
        if keys::binding(action).is_some_and(|b| b.risk == Risk::Writes) {
            let refusal = self.write_refusal();
            return refusal.or_else(|| self.unchosen(action).map(String::from));
        }
        let row = || self.row_in_hand();
        let why = match action {
            Action::Open if matches!(self.under_palette(), Some(Layer::Detail { .. })) => {
                "it is open already"
            }
            Action::Copy if self.marks_count() => return None,
            Action::Open | Action::TasksOf | Action::Blocker | Action::Copy if row().is_none() => {
                "no row is selected"
            }
            Action::TasksOf if row().and_then(|r| self.has_tasks(r)).is_none() => {
                "no tasks belong to this row: choose a queue, worker, session, agent or tenant"
            }
            Action::Blocker if row().and_then(|r| self.blocker(r)).is_none() => {
                "nothing blocks this row"
            }
            Action::Mark if !matches!(self.cursor_row(), Some(RowId::Task(_))) => {
                "only tasks can be marked: press 6"
            }
            Action::MarkAll if self.markable().is_empty() => "only tasks can be marked: press 6",
            Action::Hold if self.shown().is_none() => "there is no data yet",
            _ => return None,
        };
        Some(why.into())
    }

    /// What writes to tasks needs one.
    fn unchosen(&self, action: Action) -> Option<&'static str> {
        let of_tasks = matches!(action, Action::Requeue | Action::Cancel);
        (of_tasks && !self.task_is_chosen())
            .then_some("no task is chosen: choose or mark tasks (press 6)")
    }

    fn task_is_chosen(&self) -> bool {
        let in_detail = matches!(self.under_palette(), Some(Layer::Detail { .. }));
        if !in_detail && self.marks_count() {
            return true;
        }
        let row = self.row_in_hand();
        let row = row.map(|row| self.culprit(&row).unwrap_or(row));
        matches!(row, Some(RowId::Task(_)))
    }

    /// Marks are what keys act on: only where they are seen.
    pub(super) fn marks_count(&self) -> bool {
        self.focus == PaneId::Tasks && !self.marks.is_empty()
    }

    /// The tasks shown in the focused pane.
    pub(super) fn markable(&self) -> Vec<TaskKey> {
        let rows = crate::ui::table::visible(self, self.focus).into_iter();
        let task = |row| match row {
            RowId::Task(key) => Some(key),
            _ => None,
        };
        rows.filter_map(task).collect()
    }
}
