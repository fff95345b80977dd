//! From a row to what belongs to it: its tasks, and what blocks it.

use super::row::RowId;
use super::state::{App, PaneId, Tone};
use crate::panes::links;
use crate::ui;

impl App {
    /// `t`: shows only the tasks that belong to the row in hand.
    pub(super) fn tasks_of(&mut self) {
        let row = self.row_in_hand();
        let Some(of) = row.and_then(|row| self.has_tasks(&row)) else {
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
    pub(super) fn has_tasks(&self, row: &RowId) -> Option<RowId> {
        let of = match row {
            RowId::Finding { .. } => self.culprit(row)?,
            RowId::Task(_) => return None,
            _ => row.clone(),
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

    /// `b`: goes to what blocks the row in hand; to the tree if it stands there, else to the connections.
    pub(super) fn go_to_blocker(&mut self) {
        let blocker = self
            .row_in_hand()
            .and_then(|row| links::blocker(self, &row));
        let Some(session) = blocker else {
            return;
        };
        for pane in [PaneId::Waits, PaneId::Connections] {
            self.go(pane, session.clone());
            if ui::table::visible(self, pane).contains(&session) {
                return;
            }
        }
        let why = format!(
            "{} is in the way, but not listed: a process of the server, or a session of another database",
            links::label(&session)
        );
        self.toast(Tone::Info, why);
    }
}
