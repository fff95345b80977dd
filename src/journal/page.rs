//! The journal as a table: one row an action, from its two lines.

use super::{Entry, Phase};
use crate::app::row::RowId;
use crate::ui::table::{Cell, Column, Row, Section};
use std::collections::{BTreeMap, BTreeSet};

/// Ids that a row names.
const IDS: usize = 3;

/// An action as far as it is recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// Its lines in the order written.
    pub entries: Vec<Entry>,
}

impl Tried {
    /// Its last line.
    pub fn last(&self) -> Option<&Entry> {
        self.entries.last()
    }

    /// The lines that tell the outcome of its transactions.
    fn ended(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|e| e.phase == Phase::Ended)
    }

    /// Transactions that were sent, and of whose outcome nothing was written.
    fn open(&self) -> usize {
        self.entries.len() - 2 * self.ended().count().min(self.entries.len() / 2)
    }

    /// The ids asked for, each once.
    pub(super) fn ids(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        let ids = self.entries.iter().flat_map(|e| &e.ids).map(String::as_str);
        ids.filter(|id| seen.insert(*id)).collect()
    }

    /// Was this task among those asked for?
    pub fn is_about(&self, id: &str) -> bool {
        self.entries.iter().any(|e| e.ids.iter().any(|i| i == id))
    }
}

/// Lines to actions, in the order in which they began.
pub fn pair(entries: impl IntoIterator<Item = Entry>) -> Vec<Tried> {
    let mut all: Vec<Tried> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for entry in entries {
        // chunks of one action are `id/1`, `id/2`, …
        let id = entry.action_id.split('/').next().unwrap_or_default();
        let at = *known.entry(id.to_string()).or_insert_with(|| {
            all.push(Tried { entries: vec![] });
            all.len() - 1
        });
        all[at].entries.push(entry);
    }
    all
}

static COLUMNS: [Column; 12] = [
    Column::words("time (UTC)", 19, 19, 0),
    Column::words("who", 6, 20, 0),
    Column::words("action", 7, 16, 0),
    Column::figures("asked", 5, 0),
    Column::figures("changed", 7, 0),
    Column::figures("skipped", 7, 0),
    Column::figures("unknown", 7, 0),
    Column::figures("not reached", 11, 0),
    Column::words("database", 8, 40, 0),
    Column::words("ids", 8, 40, 0),
    Column::words("reason", 8, 60, 0),
    Column::words("note", 8, 60, 0),
];

/// The table, newest last.
pub fn section(actions: &[Tried]) -> Section {
    let rows = actions.iter().filter_map(row).collect();
    Section::new("", &COLUMNS, rows)
}

fn row(action: &Tried) -> Option<Row> {
    let begun = action.entries.first()?;
    let whole = action.whole();
    let ids = action.ids();
    let figure = |n: u64| Cell::figure(n.to_string(), n as f64);
    let known = |n: u64| match whole.unknown < whole.asked {
        true => figure(n),
        false => Cell::nothing("-"),
    };
    let more = ids.len().saturating_sub(IDS);
    let mut named = ids[..ids.len() - more].join(", ");
    if more > 0 {
        named.push_str(&format!(" and {more} more"));
    }
    let error = action.ended().find_map(|e| e.error.clone());
    let note = match action.open() {
        0 => error,
        1 => Some("outcome unknown: ask operator_actions".into()),
        n => Some(format!("{n} outcomes unknown: ask operator_actions")),
    };
    let cells = vec![
        Cell::word(begun.at.format("%Y-%m-%d %H:%M:%S").to_string()),
        Cell::word(&begun.who),
        Cell::word(&begun.action),
        figure(whole.asked),
        known(whole.changed),
        known(whole.skipped),
        figure(whole.unknown),
        figure(whole.not_reached),
        Cell::word(format!("{} @ {}", begun.database, begun.server)),
        Cell::maybe(Some(&named)),
        Cell::maybe(begun.reason.as_deref()),
        Cell::maybe(note.as_deref()),
    ];
    Some(Row::new(RowId::Log(0), cells))
}
