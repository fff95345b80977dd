//! Draws a pane's rows into an area: headings, cursor, marks, severity, scrolling. A pure function of the rows, the
//! cursor and the area's size.

use super::glyphs;
use super::order::Shown;
use super::table::{Cell, Column, GAP, Row, Section, fit};
use super::text::{Align, dim, ink, pad};
use super::theme::{Ink, SELECTED};
use crate::app::row::RowId;
use crate::app::state::View;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Columns before the first one: cursor, severity, mark.
pub const LEAD: u16 = 3;

/// One line of the list.
enum Item {
    Heading(usize),
    Row(usize, usize),
    Empty(usize),
    Blank,
    More(String),
}

/// Draws the rows, the first section under another title where one is given; `cursor` is `None` for a pane without the focus, which then does not scroll but says how many
/// rows it leaves out. Returns how many rows fitted.
pub fn draw(
    buffer: &mut Buffer,
    area: Rect,
    shown: &Shown,
    title: Option<&str>,
    cursor: Option<&RowId>,
    view: &View,
) -> usize {
    let height = usize::from(area.height);
    if height == 0 || area.width <= LEAD {
        return 0;
    }
    let sections = &shown.table.sections;
    let items = match cursor {
        Some(_) => all(sections),
        None => some(sections, height),
    };
    let at = items
        .iter()
        .position(|i| matches!(i, Item::Row(s, r) if at_cursor(&sections[*s].rows[*r], cursor)));
    let top = top(&items, at, height);
    let titles = |s: usize| title.filter(|_| s == 0).unwrap_or(&sections[s].title);
    let fits: Vec<Vec<(usize, u16)>> = (0..sections.len())
        .map(|s| fit(&sections[s], titles(s), area.width - LEAD))
        .collect();
    let mut rows = 0;
    for (line, item) in items.iter().skip(top).take(height).enumerate() {
        let y = area.y + line as u16;
        // Scrolled into a section: its heading stays in sight.
        let item = match item {
            Item::Row(s, _) if line == 0 && top > 0 => &Item::Heading(*s),
            item => item,
        };
        let text = match item {
            Item::Heading(s) => heading(&sections[*s], titles(*s), &fits[*s], view),
            Item::Empty(s) => Line::from(vec![Span::raw("   "), dim(&sections[*s].empty)]),
            Item::Blank => continue,
            Item::More(text) => Line::from(vec![Span::raw("   "), dim(text)]),
            Item::Row(s, r) => {
                rows += 1;
                let row = &sections[*s].rows[*r];
                let here = at_cursor(row, cursor);
                let line = body(row, &fits[*s], sections[*s].columns, here);
                if here {
                    let end = fits[*s].first().map_or(0, |(_, w)| LEAD + w);
                    let bar = Rect::new(area.x, y, end.min(area.width), 1);
                    buffer.set_style(bar, SELECTED);
                }
                line
            }
        };
        buffer.set_line(area.x, y, &text, area.width);
    }
    rows
}

fn at_cursor(row: &Row, cursor: Option<&RowId>) -> bool {
    !row.still && cursor == Some(&row.id)
}

/// Lines needed to show everything.
pub fn lines(shown: &Shown) -> usize {
    all(&shown.table.sections).len()
}

fn all(sections: &[Section]) -> Vec<Item> {
    let mut items = Vec::new();
    for (s, section) in sections.iter().enumerate() {
        if section.rows.is_empty() && section.empty.is_empty() {
            continue;
        }
        if !items.is_empty() {
            items.push(Item::Blank);
        }
        items.push(Item::Heading(s));
        if section.rows.is_empty() {
            items.push(Item::Empty(s));
        }
        items.extend((0..section.rows.len()).map(|r| Item::Row(s, r)));
    }
    items
}

/// The section that stands for all: the first with rows, else the first that has something to say.
pub fn first(sections: &[Section]) -> Option<usize> {
    let rows = sections.iter().position(|s| !s.rows.is_empty());
    rows.or_else(|| sections.iter().position(|s| !s.empty.is_empty()))
}

/// Without the focus: only one section, calm rows folded into a count where they do not fit.
fn some(sections: &[Section], height: usize) -> Vec<Item> {
    let Some(s) = first(sections) else {
        return Vec::new();
    };
    let rows = &sections[s].rows;
    let mut items = vec![Item::Heading(s)];
    if rows.is_empty() {
        items.push(Item::Empty(s));
    } else if rows.len() < height {
        items.extend((0..rows.len()).map(|r| Item::Row(s, r)));
    } else {
        let room = height.saturating_sub(2);
        let mut kept: Vec<usize> = (0..rows.len()).collect();
        kept.sort_by_key(|r| rows[*r].calm);
        kept.truncate(room);
        kept.sort_unstable();
        let left: Vec<&Row> = (0..rows.len())
            .filter(|r| !kept.contains(r))
            .map(|r| &rows[r])
            .collect();
        let word = if left.iter().all(|r| r.calm) {
            "calm"
        } else {
            "more"
        };
        items.extend(kept.into_iter().map(|r| Item::Row(s, r)));
        items.push(Item::More(format!("{} {word}", left.len())));
    }
    items
}

/// First line shown: the cursor stays in the middle, so that one sees what comes in both directions.
fn top(items: &[Item], cursor: Option<usize>, height: usize) -> usize {
    let last = items.len().saturating_sub(height);
    let top = cursor
        .map_or(0, |at| at.saturating_sub(height / 2))
        .min(last);
    // The first line becomes a heading when scrolled: the cursor must not be under it.
    match cursor {
        Some(at) if at <= top && top > 0 => at.saturating_sub(1),
        _ => top,
    }
}

fn heading(section: &Section, title: &str, fit: &[(usize, u16)], view: &View) -> Line<'static> {
    let mut spans = Vec::new();
    for (n, (at, w)) in fit.iter().enumerate() {
        let column = &section.columns[*at];
        let mut w = usize::from(*w);
        if n == 0 {
            spans.push(Span::raw(" "));
            w += usize::from(LEAD) - 1;
            if !title.is_empty() {
                spans.push(ink(pad(title, w, Align::Left), Ink::Title));
                continue;
            }
            spans.push(Span::raw("  "));
            w -= usize::from(LEAD) - 1;
        } else {
            spans.push(Span::raw(" ".repeat(usize::from(GAP))));
        }
        let sorted = section.sortable && view.sort == Some(*at);
        spans.push(ink(
            pad(column.name, w, column.align),
            if sorted { Ink::Key } else { Ink::Dim },
        ));
    }
    Line::from(spans)
}

fn body(row: &Row, fit: &[(usize, u16)], columns: &[Column], here: bool) -> Line<'static> {
    let glyph = match row.severity {
        Some(severity) => ink(glyphs::severity(severity), Ink::severity(severity)),
        None => Span::raw(" "),
    };
    let mut spans = vec![
        if here {
            ink("▸", Ink::Strong)
        } else {
            Span::raw(" ")
        },
        glyph,
        if row.marked {
            ink("●", Ink::Key)
        } else {
            Span::raw(" ")
        },
    ];
    let none = Cell::default();
    for (n, (at, w)) in fit.iter().enumerate() {
        let cell = row.cells.get(*at).unwrap_or(&none);
        if n > 0 {
            spans.push(Span::raw(" ".repeat(usize::from(GAP))));
        }
        let text = super::clean::clean(&cell.text);
        let plain = matches!(cell.ink, Ink::Text | Ink::Dim);
        spans.push(ink(
            pad(&text, usize::from(*w), columns[*at].align),
            match (here, n) {
                (true, 0) => Ink::Text,
                (true, _) if plain => Ink::Strong,
                _ => cell.ink,
            },
        ));
    }
    Line::from(spans)
}
