//! Moving about: the cursor follows a row's identity, not its place, since rows move.

use super::row::RowId;
use super::state::{App, PaneId, View};
use crate::keys::Action;
use crate::panes::links;
use crate::ui;

/// After a cursor key the rows keep their order for this long, in seconds.
const ORDER_S: f64 = 3.0;
/// A row that nobody moved to is held for this long after the last key, in seconds.
const PIN_S: f64 = 30.0;

impl App {
    /// The view of a pane, to change it.
    pub fn view_mut(&mut self, pane: PaneId) -> &mut View {
        self.views.entry(pane).or_default()
    }

    /// The row under the cursor of the focused pane: the one chosen, or the first.
    pub fn cursor_row(&self) -> Option<RowId> {
        ui::table::current(self, self.focus)
    }

    /// Holds the row that the cursor stands on while a person looks at it: keys act on what was seen, not on what
    /// has come up in its place since.
    pub(super) fn pin_cursor(&mut self) {
        let pane = self.focus;
        let chosen = self.views.get(&pane).and_then(|v| v.cursor.clone());
        let rows = ui::table::visible(self, pane);
        if chosen.is_some_and(|row| rows.contains(&row)) {
            return;
        }
        let until = self.order_until();
        let view = self.view_mut(pane);
        view.cursor = rows.first().cloned();
        view.pinned = true;
        view.order = rows;
        view.order_until = until;
    }

    /// Until when the rows keep the order that they have now: for ever on a held view.
    fn order_until(&self) -> f64 {
        if self.held.is_some() {
            return f64::INFINITY;
        }
        self.now + ORDER_S
    }

    /// Lets go of rows that are held for a person who has left.
    pub(super) fn release_cursors(&mut self) {
        if self.now - self.last_key < PIN_S {
            return;
        }
        for view in self.views.values_mut().filter(|v| v.pinned) {
            view.cursor = None;
            view.pinned = false;
        }
    }

    /// Moves the cursor of the focused pane.
    pub fn move_cursor(&mut self, action: Action) {
        let rows = ui::table::visible(self, self.focus);
        let Some(last) = rows.len().checked_sub(1) else {
            return;
        };
        let chosen = self.views.get(&self.focus).and_then(|v| v.cursor.as_ref());
        let at = chosen.and_then(|c| rows.iter().position(|r| r == c));
        let page = ui::page_rows(self).max(1);
        let at = at.unwrap_or(0);
        let to = match action {
            Action::Up => at.saturating_sub(1),
            Action::Down => at + 1,
            Action::PageUp => at.saturating_sub(page),
            Action::PageDown => at + page,
            Action::Top => 0,
            _ => last,
        };
        let row = rows[to.min(last)].clone();
        let until = self.order_until();
        let view = self.view_mut(self.focus);
        view.cursor = Some(row);
        view.pinned = false;
        view.order = rows;
        view.order_until = until;
    }

    /// Focuses a pane and puts its cursor on a row.
    pub fn go(&mut self, pane: PaneId, row: RowId) {
        self.focus = pane;
        self.zoom = Some(pane);
        self.layers.clear();
        let view = self.view_mut(pane);
        view.cursor = Some(row);
        view.filter.reset();
        view.of = None;
    }

    /// `t`: the tasks that belong to a row.
    pub fn tasks_of(&mut self, row: RowId) {
        let of = match &row {
            RowId::Finding { .. } => self.culprit(&row),
            RowId::Task(_) => None,
            _ => Some(row.clone()),
        };
        let has_tasks = matches!(
            of,
            Some(
                RowId::Queue { .. }
                    | RowId::Worker { .. }
                    | RowId::Spender { .. }
                    | RowId::Session { .. }
                    | RowId::Task(_)
            )
        );
        if !has_tasks {
            self.toast(
                super::state::Tone::Info,
                "no tasks belong to this row: choose a queue, worker, session, agent or tenant",
            );
            return;
        }
        self.layers.clear();
        self.focus = PaneId::Tasks;
        self.zoom = Some(PaneId::Tasks);
        let view = self.view_mut(PaneId::Tasks);
        match of {
            Some(task @ RowId::Task(_)) => {
                view.of = None;
                view.cursor = Some(task);
            }
            of => {
                view.of = of;
                view.cursor = None;
            }
        }
        view.filter.reset();
    }

    /// `b`: what blocks a row. It is shown in the tree if it stands there, else among the connections.
    pub fn blocker_of(&mut self, row: RowId) {
        let Some(session) = links::blocker(self, &row) else {
            let why = match self.culprit(&row).unwrap_or(row) {
                RowId::Task(_) => links::NO_HOLDER,
                _ => "nothing blocks this row",
            };
            self.toast(super::state::Tone::Info, why);
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
        self.toast(super::state::Tone::Info, why);
    }

    /// The row a finding points at.
    pub fn culprit(&self, row: &RowId) -> Option<RowId> {
        let RowId::Finding { rule, n } = row else {
            return None;
        };
        let (_, report) = self.shown()?;
        let mut of_rule = report.findings.iter().filter(|f| f.rule == *rule);
        of_rule.nth(*n)?.culprit.clone()
    }
}
