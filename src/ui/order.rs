//! Which rows of a pane are shown, and in what order: filter, "only those of this row", sorting, and the order kept
//! for a moment after a cursor key so that rows do not jump away under a finger.

use super::table::{Column, Part, Row, Section, Table};
use super::theme::Ink;
use crate::app::row::RowId;
use crate::app::state::{App, PaneId, View};
use crate::panes;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

/// The rows of a pane as shown, and how many there are without the filter.
pub struct Shown {
    /// Filtered and ordered.
    pub table: Table,
    /// Rows without the filter.
    pub total: usize,
}

impl Shown {
    /// Rows shown.
    pub fn len(&self) -> usize {
        self.table.rows().count()
    }

    /// The row under the cursor, or the first while that one is not shown.
    pub fn cursor(&self, view: &View) -> Option<RowId> {
        let at = view.cursor.as_ref();
        let there = at.filter(|c| self.table.rows().any(|r| r.id == **c));
        there
            .or_else(|| self.table.rows().next().map(|r| &r.id))
            .cloned()
    }

    /// No row is shown.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The tables of one frame. Several parts of the screen ask for the same one, and each is made only once.
pub struct Tables<'a> {
    /// What they are of.
    pub app: &'a App,
    made: [OnceCell<Shown>; PaneId::ALL.len()],
}

impl<'a> Tables<'a> {
    /// None is made yet.
    pub fn of(app: &'a App) -> Self {
        let made = [const { OnceCell::new() }; PaneId::ALL.len()];
        Self { app, made }
    }

    /// The rows of a pane.
    pub fn get(&self, pane: PaneId) -> &Shown {
        let app = self.app;
        self.made[pane as usize].get_or_init(|| {
            let view = app.view(pane);
            let all = app.focus == pane || !view.filter.value().is_empty() || view.of.is_some();
            some(app, pane, if all { Part::Whole } else { Part::First })
        })
    }
}

/// Row ids in the order shown.
pub fn visible(app: &App, pane: PaneId) -> Vec<RowId> {
    let shown = shown(app, pane);
    shown.table.rows().map(|r| r.id.clone()).collect()
}

/// The row that keys act on: the one under the cursor, or the first while that is not on screen.
pub fn current(app: &App, pane: PaneId) -> Option<RowId> {
    shown(app, pane).cursor(app.view(pane))
}

/// Filters and orders a pane's table.
pub fn shown(app: &App, pane: PaneId) -> Shown {
    some(app, pane, Part::Whole)
}

fn some(app: &App, pane: PaneId, part: Part) -> Shown {
    let def = panes::pane(pane);
    let view = app.view(pane);
    let mut table = (def.table)(app, part);
    if let Some(of) = &view.of {
        for section in &mut table.sections {
            section
                .rows
                .retain(|r| !r.still && panes::links::belongs(app, &r.id, of));
        }
    }
    unique(&mut table);
    let total = table.rows().count();
    let words = words(view.filter.value());
    for section in &mut table.sections {
        let columns = section.columns;
        section
            .rows
            .retain(|row| all_hit(&words, &fields(row, columns)));
        sort(section, view);
    }
    if app.now < view.order_until {
        freeze(&mut table, &view.order);
    }
    dim(app, pane, &mut table);
    Shown { table, total }
}

/// Rows of systems that are not read any more: readable, but without any colour that asks for attention. Spend is of all
/// systems together.
fn dim(app: &App, pane: PaneId, table: &mut Table) {
    let Some((snapshot, _)) = app.shown().filter(|(s, _)| !s.half_there.is_empty()) else {
        return;
    };
    let spend = pane == PaneId::Cost && snapshot.all_half().is_some();
    let old = |row: &Row| match row.id.home() {
        Some((system, schema)) => snapshot.half_of(system, schema).is_some(),
        None => spend,
    };
    let rows = table.sections.iter_mut().flat_map(|s| &mut s.rows);
    for row in rows.filter(|row| old(row)) {
        row.severity = None;
        for cell in &mut row.cells {
            cell.ink = Ink::Dim;
        }
    }
}

/// A row that is listed twice would have two cursors.
fn unique(table: &mut Table) {
    let mut seen = BTreeSet::new();
    for section in &mut table.sections {
        section
            .rows
            .retain(|r| r.still || seen.insert(r.id.clone()));
    }
}

fn sort(section: &mut Section, view: &View) {
    if !section.sortable {
        return;
    }
    match view.sort {
        Some(at) => section
            .rows
            .sort_by(|a, b| match (a.cells.get(at), b.cells.get(at)) {
                (Some(a), Some(b)) => a.order(b, view.reverse),
                _ => std::cmp::Ordering::Equal,
            }),
        None if view.reverse => section.rows.reverse(),
        None => {}
    }
}

/// Rows that were there keep their places, new ones follow.
fn freeze(table: &mut Table, order: &[RowId]) {
    let place: BTreeMap<&RowId, usize> = order.iter().enumerate().map(|(n, id)| (id, n)).collect();
    // a tree and a log have an order of their own
    for section in table.sections.iter_mut().filter(|s| s.sortable) {
        section
            .rows
            .sort_by_key(|r| place.get(&r.id).copied().unwrap_or(usize::MAX));
    }
}

/// One word of a filter: `acme`, `kind:pdf`, `!crawler`.
pub struct Word {
    /// It must not occur.
    pub not: bool,
    /// In this column only; lower case.
    pub field: Option<String>,
    /// What must occur; lower case.
    pub text: String,
}

/// The words of a filter.
pub fn words(filter: &str) -> Vec<Word> {
    filter
        .split_whitespace()
        .map(|w| {
            let (not, w) = match w.strip_prefix('!') {
                Some(rest) if !rest.is_empty() => (true, rest),
                _ => (false, w),
            };
            let (field, text) = match w.split_once(':') {
                Some((field, text)) if !field.is_empty() => (Some(field.to_lowercase()), text),
                _ => (None, w),
            };
            Word {
                not,
                field,
                text: text.to_lowercase(),
            }
        })
        .collect()
}

/// Does what is described by these fields (name, value) match a filter as it was typed?
pub fn matches(filter: &str, fields: &[(&str, &str)]) -> bool {
    all_hit(&words(filter), fields)
}

fn all_hit(words: &[Word], fields: &[(&str, &str)]) -> bool {
    words.iter().all(|w| w.hit(fields))
}

fn fields<'r>(row: &'r Row, columns: &[Column]) -> Vec<(&'r str, &'r str)> {
    let cells = row.cells.iter().zip(columns);
    cells
        .map(|(cell, column)| (column.name, cell.text.as_str()))
        .chain(row.find.iter().map(|(name, value)| (*name, value.as_str())))
        .collect()
}

impl Word {
    fn hit(&self, fields: &[(&str, &str)]) -> bool {
        let mut fields = fields.iter();
        let found = match &self.field {
            Some(field) if fields.clone().any(|(name, _)| name == field) => fields
                .any(|(name, value)| name == field && value.to_lowercase().contains(&self.text)),
            // `12:30` or `TimeoutError: read` is text with a colon, not a field.
            Some(field) => {
                let whole = format!("{field}:{}", self.text);
                fields.any(|(_, value)| value.to_lowercase().contains(&whole))
            }
            None => fields.any(|(_, value)| value.to_lowercase().contains(&self.text)),
        };
        found != self.not
    }
}
