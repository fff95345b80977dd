//! What is shown: one file a pane, a pure function of the state. A new pane is one file and one line in [`PANES`].

mod about;
mod alike;
pub mod chains;
mod common;
mod connections;
mod cost;
mod failures;
mod findings;
mod leases;
pub mod links;
mod session;
mod stages;
mod task;
mod tasks;
mod waits;
mod who;

#[cfg(test)]
pub mod fixture;

pub use common::{busiest, drain, flow, live, severity, total};
pub use findings::word;
pub use tasks::medians;

use crate::app::row::RowId;
use crate::app::state::{App, PaneId};
use crate::ui::table::{Column, Part, Table};
use ratatui::text::Line;

/// Everything the screen knows about a pane.
pub struct PaneDef {
    /// Which.
    pub id: PaneId,
    /// Heading.
    pub title: &'static str,
    /// One line for the help.
    pub purpose: &'static str,
    /// Its rows.
    pub table: fn(&App, Part) -> Table,
    /// The columns that `s` goes through.
    pub columns: &'static [Column],
    /// What stands above the rows, for a width; the first line follows the heading.
    pub head: fn(&App, u16) -> Vec<Line<'static>>,
    /// What its figures mean.
    pub help: &'static [&'static str],
    /// Everything about one of its rows; `None` when it is not one of its.
    pub detail: fn(&App, &RowId) -> Option<Vec<Line<'static>>>,
}

/// All panes, in the order of their keys.
pub static PANES: [&PaneDef; 8] = [
    &connections::PANE,
    &waits::PANE,
    &stages::PANE,
    &leases::PANE,
    &cost::PANE,
    &tasks::PANE,
    &findings::PANE,
    &failures::PANE,
];

/// The pane of that id.
pub fn pane(id: PaneId) -> &'static PaneDef {
    PANES[id as usize]
}

/// Everything about a row, from whichever pane knows it.
pub fn detail(app: &App, row: &RowId) -> Option<Vec<Line<'static>>> {
    let first = std::iter::once(pane(app.focus));
    first.chain(PANES).find_map(|p| (p.detail)(app, row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panes_stand_in_the_order_of_their_keys() {
        for (pane, id) in PANES.iter().zip(PaneId::ALL) {
            assert_eq!(pane.id, id);
        }
    }
}
