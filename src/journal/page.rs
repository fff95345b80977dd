//! The journal as a table: one row an action, from its two lines.

use super::{Entry, Phase};
use crate::app::row::RowId;
use crate::ui::table::{Cell, Column, Row, Section};
use std::collections::BTreeMap;

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

    /// The line that tells its outcome.
    pub fn ended(&self) -> Option<&Entry> {
        self.entries.iter().rfind(|e| e.phase == Phase::Ended)
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
        let at = *known.entry(entry.action_id.clone()).or_insert_with(|| {
            all.push(Tried { entries: vec![] });
            all.len() - 1
        });
        all[at].entries.push(entry);
    }
    all
}

static COLUMNS: [Column; 10] = [
    Column::words("time (UTC)", 19, 19, 0),
    Column::words("who", 6, 20, 0),
    Column::words("action", 7, 16, 0),
    Column::figures("asked", 5, 0),
    Column::figures("changed", 7, 0),
    Column::figures("skipped", 7, 0),
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
    let ended = action.ended();
    let entry = ended.unwrap_or(begun);
    let figure = |n: fn(&Entry) -> Option<u64>| {
        let n = ended.and_then(n);
        Cell::figure_or(n.map_or("-".into(), |n| n.to_string()), n.map(|n| n as f64))
    };
    let more = entry.ids.len().saturating_sub(IDS);
    let mut ids = entry.ids[..entry.ids.len() - more].join(", ");
    if more > 0 {
        ids.push_str(&format!(" and {more} more"));
    }
    let note = match ended {
        None => Some("outcome unknown: ask operator_actions"),
        Some(ended) => ended.error.as_deref(),
    };
    let cells = vec![
        Cell::word(begun.at.format("%Y-%m-%d %H:%M:%S").to_string()),
        Cell::word(&entry.who),
        Cell::word(&entry.action),
        figure(|e| e.asked),
        figure(|e| e.changed),
        figure(|e| e.skipped),
        Cell::word(format!("{} @ {}", entry.database, entry.server)),
        Cell::maybe(Some(&ids)),
        Cell::maybe(entry.reason.as_deref()),
        Cell::maybe(note),
    ];
    Some(Row::new(RowId::Log(0), cells))
}
