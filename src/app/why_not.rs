//! Why an action is not possible now: asked by the palette, the help, the footer, and before the action itself.

use super::row::RowId;
use super::state::{App, Layer, PaneId};
use crate::action::Verb;
use crate::keys::Action;
use crate::panes::links;
use crate::probe::tasks::TaskKey;

/// What a key does to tasks.
pub fn verb(action: Action) -> Option<Verb> {
    Some(match action {
        Action::Requeue => Verb::Requeue,
        Action::RequeueFresh => Verb::RequeueFresh,
        Action::Cancel => Verb::Cancel,
        Action::Release => Verb::Release,
        Action::RunNow => Verb::RunNow,
        // which one is asked for later: until then it is none that a task has
        Action::Priority => Verb::Priority(i64::MIN),
        Action::Park => Verb::Park,
        Action::Unpark => Verb::Unpark,
        _ => return None,
    })
}

impl App {
    /// Why an action is not possible now, in one sentence; `None` when it is. That there is no further row in that
    /// direction is no reason.
    pub fn why_not(&self, action: Action) -> Option<String> {
        self.why_not_with(action, self.row_in_hand().as_ref())
    }

    /// The same with this row in hand: finding it takes the whole table of a pane, which many questions can share.
    pub fn why_not_with(&self, action: Action, row: Option<&RowId>) -> Option<String> {
        if let Some(verb) = verb(action) {
            let refusal = self.write_refusal();
            return refusal.or_else(|| self.choose(verb, row).err().map(|(_, why)| why));
        }
        if action == Action::EndSession {
            return self.session_in_hand(row).err().map(|(_, why)| why);
        }
        let why = match action {
            Action::Open if matches!(self.under_palette(), Some(Layer::Detail { .. })) => {
                "it is open already"
            }
            Action::Copy if self.marks_count() => return None,
            Action::Open | Action::TasksOf | Action::Blocker | Action::Copy if row.is_none() => {
                "no row is selected"
            }
            Action::TasksOf if row.and_then(|r| self.has_tasks(r)).is_none() => {
                "no tasks belong to this row: choose a queue, worker, session, agent or tenant"
            }
            Action::Blocker if row.and_then(|r| links::blocker(self, r)).is_none() => {
                let culprit = row.and_then(|r| self.culprit(r));
                match culprit.as_ref().or(row) {
                    Some(RowId::Task(_)) => links::NO_HOLDER,
                    _ => "nothing blocks this row",
                }
            }
            Action::Mark if !matches!(self.cursor_row(), Some(RowId::Task(_))) => {
                "only tasks can be marked: press 6"
            }
            // those that are not listed, such as parked ones, may still match on the server
            Action::MarkAll if self.focus != PaneId::Tasks && self.markable().is_empty() => {
                "only tasks can be marked: press 6"
            }
            Action::Stop if self.acting.is_none() => "no action is under way",
            Action::Hold if self.shown().is_none() => "there is no data yet",
            _ => return None,
        };
        Some(why.into())
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
