//! What a pane lists: sections of rows under columns. A row has an identity, a severity and, in each cell, a text
//! and what to sort it by. Nothing here knows where on the screen it will be.

use super::clean::width;
use super::text::Align;
use super::theme::Ink;
use crate::app::row::RowId;
use crate::findings::Severity;
use compact_str::CompactString;
use std::cmp::Ordering;

pub use super::order::{current, visible};

/// A column: how wide it may be, and how soon it gives way to others.
#[derive(Clone, Debug)]
pub struct Column {
    /// Heading, also its name in a filter (`kind:pdf`).
    pub name: &'static str,
    /// Never narrower.
    pub min: u16,
    /// Never wider.
    pub max: u16,
    /// Words left, figures right.
    pub align: Align,
    /// 0 stays always; the highest goes first.
    pub priority: u8,
}

impl Column {
    /// A column of words.
    pub const fn words(name: &'static str, min: u16, max: u16, priority: u8) -> Self {
        Self {
            name,
            min,
            max,
            align: Align::Left,
            priority,
        }
    }

    /// A column of figures.
    pub const fn figures(name: &'static str, min: u16, priority: u8) -> Self {
        Self {
            name,
            min,
            max: min + 4,
            align: Align::Right,
            priority,
        }
    }
}

/// What a cell is sorted by. What is unknown comes last, whichever way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Key {
    /// Unknown.
    #[default]
    None,
    /// Largest first.
    Number(f64),
    /// In alphabetical order of what is shown, capital or small.
    Word,
}

/// One cell. There may be a hundred thousand: short texts are in the cell itself.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// What is shown; cleaned when it is drawn.
    pub text: CompactString,
    /// What it means.
    pub ink: Ink,
    /// What it is sorted by.
    pub key: Key,
}

impl Cell {
    /// A word, sorted as it reads.
    pub fn word(text: impl Into<CompactString>) -> Self {
        Self {
            text: text.into(),
            ink: Ink::Text,
            key: Key::Word,
        }
    }

    /// The order of a sorted column.
    pub fn order(&self, other: &Cell, reverse: bool) -> Ordering {
        let turn = |o: Ordering| if reverse { o.reverse() } else { o };
        let small = |c: &Cell| c.text.to_lowercase();
        match (self.key, other.key) {
            (Key::None, Key::None) => Ordering::Equal,
            (Key::None, _) => Ordering::Greater,
            (_, Key::None) => Ordering::Less,
            (Key::Number(a), Key::Number(b)) => turn(b.total_cmp(&a)),
            (Key::Word, Key::Word) => turn(small(self).cmp(&small(other))),
            (Key::Number(_), Key::Word) => Ordering::Less,
            (Key::Word, Key::Number(_)) => Ordering::Greater,
        }
    }

    /// A word, or a dim `-`.
    pub fn maybe(text: Option<&str>) -> Self {
        match text.filter(|t| !t.is_empty()) {
            Some(text) => Self::word(text),
            None => Self::nothing("-"),
        }
    }

    /// A figure with the number behind it.
    pub fn figure(text: impl Into<CompactString>, number: f64) -> Self {
        Self {
            text: text.into(),
            ink: Ink::Text,
            key: Key::Number(number),
        }
    }

    /// A figure that may be unknown: then the text (`-`, `n/a`) is dim and comes last.
    pub fn figure_or(text: impl Into<CompactString>, number: Option<f64>) -> Self {
        match number {
            Some(n) => Self::figure(text, n),
            None => Self::nothing(text),
        }
    }

    /// Something absent or unknown.
    pub fn nothing(text: impl Into<CompactString>) -> Self {
        Self {
            text: text.into(),
            ink: Ink::Dim,
            key: Key::None,
        }
    }

    /// The same with a meaning.
    pub fn ink(mut self, ink: Ink) -> Self {
        self.ink = ink;
        self
    }

    /// The same with a meaning, if so.
    pub fn ink_if(self, when: bool, ink: Ink) -> Self {
        if when { self.ink(ink) } else { self }
    }
}

/// One row.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it is about.
    pub id: RowId,
    /// How grave; drawn as a glyph before the row.
    pub severity: Option<Severity>,
    /// One a column.
    pub cells: Vec<Cell>,
    /// Further words that a filter finds, by name (`tenant`, `acme`).
    pub find: Vec<(&'static str, String)>,
    /// Marked by the operator.
    pub marked: bool,
    /// Not worth a line of its own where space is short.
    pub calm: bool,
    /// Only read: the cursor passes it by, because its identity has a row of its own elsewhere.
    pub still: bool,
}

impl Row {
    /// A row without trouble.
    pub fn new(id: RowId, cells: Vec<Cell>) -> Self {
        Self {
            id,
            severity: None,
            cells,
            find: Vec::new(),
            marked: false,
            calm: false,
            still: false,
        }
    }

    /// With a severity.
    pub fn severity(mut self, severity: Option<Severity>) -> Self {
        self.severity = severity;
        self
    }

    /// With further words to find it by.
    pub fn find(mut self, name: &'static str, value: Option<&str>) -> Self {
        if let Some(value) = value {
            self.find.push((name, value.to_string()));
        }
        self
    }

    /// Never under the cursor.
    pub fn still(mut self) -> Self {
        self.still = true;
        self
    }

    /// Without interest where space is short.
    pub fn calm(mut self, calm: bool) -> Self {
        self.calm = calm;
        self
    }
}

/// Rows alike, under one heading.
#[derive(Clone, Debug)]
pub struct Section {
    /// Stands in the place of the first column's heading.
    pub title: String,
    /// Columns.
    pub columns: &'static [Column],
    /// Rows, most in need of attention first.
    pub rows: Vec<Row>,
    /// Said where there are no rows; empty: the section is left out.
    pub empty: String,
    /// May be sorted (a tree may not).
    pub sortable: bool,
}

impl Section {
    /// A section that is left out when empty.
    pub fn new(title: impl Into<String>, columns: &'static [Column], rows: Vec<Row>) -> Self {
        Self {
            title: title.into(),
            columns,
            rows,
            empty: String::new(),
            sortable: false,
        }
    }

    /// What is said where there are no rows.
    pub fn or(mut self, empty: impl Into<String>) -> Self {
        self.empty = empty.into();
        self
    }

    /// The section that the pane's sort keys act on.
    pub fn sortable(mut self) -> Self {
        self.sortable = true;
        self
    }
}

/// How much of a table is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// No section behind the first that has rows: a block without the focus shows no other.
    First,
}

/// Everything a pane lists.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Sections, in order.
    pub sections: Vec<Section>,
}

impl Table {
    /// Adds a section, which is not made where those before it are enough.
    pub fn and(mut self, part: Part, section: impl FnOnce() -> Section) -> Self {
        if part == Part::Whole || self.sections.iter().all(|s| s.rows.is_empty()) {
            self.sections.push(section());
        }
        self
    }

    /// All rows that the cursor can be on, in order.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        let all = self.sections.iter().flat_map(|s| &s.rows);
        all.filter(|r| !r.still)
    }
}

/// Columns between two columns of a table.
pub const GAP: u16 = 2;

/// From this priority on a column is an extra: it is shown only where no other column is cut for it.
pub const EXTRA: u8 = 6;

/// A text longer than this may be cut for an extra column.
const LONG: u16 = 44;

/// Which columns are shown in `total` columns of screen under a title, and how wide: `(index, width)`. Columns go
/// whole, the highest priority number first; the first column always stays.
pub fn fit(section: &Section, title: &str, total: u16) -> Vec<(usize, u16)> {
    let wish: Vec<(u16, u16)> = section
        .columns
        .iter()
        .enumerate()
        .map(|(at, column)| {
            let heading = if at == 0 { title } else { "" };
            let heading = width(heading).max(width(column.name)) as u16;
            let content = section
                .rows
                .iter()
                .filter_map(|r| r.cells.get(at))
                .map(|c| width(&c.text))
                .max()
                .unwrap_or(0)
                .min(usize::from(u16::MAX)) as u16;
            let least = column.min.max(width(column.name) as u16);
            let least = if at == 0 { least.max(heading) } else { least };
            (least, content.clamp(least, column.max.max(least)))
        })
        .collect();
    let mut shown: Vec<usize> = (0..section.columns.len()).collect();
    let gaps = |shown: &[usize]| u32::from(GAP) * (shown.len().saturating_sub(1)) as u32;
    let need = |shown: &[usize]| -> u32 {
        let least: u32 = shown.iter().map(|at| u32::from(wish[*at].0)).sum();
        least + gaps(shown)
    };
    let extra = |at: &usize| section.columns[*at].priority >= EXTRA;
    let whole = |shown: &[usize]| -> u32 {
        let content = |at: &usize| wish[*at].1.min(wish[*at].0.max(LONG));
        let all: u32 = shown.iter().map(|at| u32::from(content(at))).sum();
        all + gaps(shown)
    };
    let crowded = |shown: &[usize]| {
        need(shown) > u32::from(total) || shown.iter().any(extra) && whole(shown) > u32::from(total)
    };
    while shown.len() > 1 && crowded(&shown) {
        let Some(victim) = (1..shown.len())
            .rev()
            .max_by_key(|at| (section.columns[shown[*at]].priority, *at))
        else {
            break;
        };
        shown.remove(victim);
    }
    let mut spare = u32::from(total).saturating_sub(need(&shown));
    let mut widths: Vec<u16> = shown.iter().map(|at| wish[*at].0).collect();
    if let [only] = widths.as_mut_slice() {
        *only = (*only).min(total);
    }
    let mut order: Vec<usize> = (0..shown.len()).collect();
    order.sort_by_key(|at| section.columns[shown[*at]].priority);
    for at in order {
        let more = u32::from(wish[shown[at]].1 - wish[shown[at]].0).min(spare);
        widths[at] += more as u16;
        spare -= more;
    }
    shown.into_iter().zip(widths).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    static COLUMNS: [Column; 4] = [
        Column::words("queue", 8, 20, 0),
        Column::figures("ready", 6, 1),
        Column::words("why", 4, 30, 3),
        Column::figures("oldest", 6, 2),
    ];

    fn section() -> Section {
        let row = |name: &str, why: &str| {
            Row::new(
                RowId::Budget(name.into()),
                vec![
                    Cell::word(name),
                    Cell::figure("5", 5.0),
                    Cell::word(why),
                    Cell::nothing("-"),
                ],
            )
        };
        Section::new(
            "QUEUES",
            &COLUMNS,
            vec![row("parser", "at its limit of 40")],
        )
    }

    #[test]
    fn columns_go_whole_in_order_of_priority() {
        let names = |total| -> Vec<&str> {
            fit(&section(), "QUEUES", total)
                .iter()
                .map(|(at, _)| COLUMNS[*at].name)
                .collect()
        };
        assert_eq!(names(80), ["queue", "ready", "why", "oldest"]);
        assert_eq!(names(29), ["queue", "ready", "oldest"]);
        assert_eq!(names(17), ["queue", "ready"]);
        assert_eq!(names(3), ["queue"]);
    }

    #[test]
    fn unknown_comes_last_whichever_way() {
        let (n, a, b) = (
            Cell::nothing("-"),
            Cell::figure("1", 1.0),
            Cell::figure("2", 2.0),
        );
        assert_eq!(b.order(&a, false), Ordering::Less);
        assert_eq!(b.order(&a, true), Ordering::Greater);
        for reverse in [false, true] {
            assert_eq!(n.order(&a, reverse), Ordering::Greater);
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_fits_and_is_never_zero_wide(total in 1u16..200) {
            let fitted = fit(&section(), "QUEUES", total);
            let sum: u16 = fitted.iter().map(|(_, w)| *w).sum::<u16>() + GAP * (fitted.len() as u16 - 1);
            prop_assert!(sum <= total);
            prop_assert!(fitted.iter().all(|(_, w)| *w > 0));
        }
    }
}
