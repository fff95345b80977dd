//! One pane as a block of the screen: heading with filter and order, what stands above the rows, the rows.

use super::fmt;
use super::grid;
use super::order::{Shown, Tables};
use super::text::{dim, fit, ink, line_width, text};
use super::theme::Ink;
use crate::app::state::{App, PaneId};
use crate::panes;
use crate::probe::locks;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// How a block is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Heading line, then rows.
    Headed,
    /// The heading takes the place of the first column's name: one line less.
    Inline,
    /// The whole screen: all that stands above the rows too.
    Full,
}

/// Draws a pane and returns how many of its rows fitted.
pub fn draw(buffer: &mut Buffer, area: Rect, tables: &Tables, pane: PaneId, shape: Shape) -> usize {
    if area.height == 0 || area.width < 8 {
        return 0;
    }
    let def = panes::pane(pane);
    let app = tables.app;
    let focused = app.focus == pane;
    let rows = tables.get(pane);
    let view = app.view(pane);
    let state = state(app, pane, rows);
    let mut title = None;
    let mut y = area.y;
    let mut bottom = area.bottom();
    if shape == Shape::Inline && state.is_empty() {
        title = Some(def.title);
    } else {
        let mut spans = vec![Span::raw(" "), ink(def.title, Ink::Title)];
        for part in state {
            spans.push(Span::raw("  "));
            spans.extend(part);
        }
        let room = area
            .width
            .saturating_sub(line_width(&Line::from(spans.clone())) as u16 + 3);
        let head = (def.head)(app, area.width - 3);
        if let Some(first) = (def.head)(app, room).into_iter().next() {
            spans.push(Span::raw("   "));
            spans.extend(first.spans);
        }
        buffer.set_line(
            area.x,
            y,
            &fit(Line::from(spans), usize::from(area.width)),
            area.width,
        );
        y += 1;
        if shape == Shape::Full {
            // Rows come first: what stands above them may take half the screen at most.
            let most = usize::from(area.height / 2);
            for line in head.into_iter().skip(1).take(most) {
                let indented = Line::from([vec![Span::raw(lead(&line))], line.spans].concat());
                buffer.set_line(area.x, y, &indented, area.width);
                y += 1;
            }
            y += 1;
        } else if !focused && usize::from(area.height) > 1 + rows_alone(rows) {
            // Room is left under the rows: the second line of the head goes there.
            if let Some(line) = head.into_iter().nth(1) {
                bottom = y + rows_alone(rows) as u16;
                let indented = Line::from([vec![Span::raw(lead(&line))], line.spans].concat());
                buffer.set_line(area.x, bottom, &indented, area.width);
            }
        }
    }
    let cursor = focused.then(|| rows.cursor(view)).flatten();
    let rest = Rect::new(area.x, y, area.width, bottom.saturating_sub(y));
    let none = rows.total > 0 && rows.is_empty();
    if none {
        buffer.set_line(
            rest.x,
            rest.y,
            &Line::from(dim("   no row matches: Esc shows all again")),
            rest.width.min(if rest.height > 0 { rest.width } else { 0 }),
        );
        return 0;
    }
    grid::draw(buffer, rest, rows, title, cursor.as_ref(), view)
}

/// A line that does not bring its own margin gets one.
fn lead(line: &Line) -> &'static str {
    let own = line
        .spans
        .first()
        .is_some_and(|s| s.content.starts_with(' '));
    if own { "" } else { "   " }
}

/// Lines that a block would need to show everything.
pub fn lines(tables: &Tables, pane: PaneId, shape: Shape) -> u16 {
    let (app, rows) = (tables.app, tables.get(pane));
    let head = match shape {
        _ if app.focus == pane => usize::from(shape == Shape::Headed),
        Shape::Inline => 0,
        _ => (panes::pane(pane).head)(app, 80).len().min(2),
    };
    let own = match app.focus == pane {
        true => grid::lines(rows),
        false => rows_alone(rows),
    };
    u16::try_from(own + head).unwrap_or(u16::MAX)
}

/// Lines of the rows without the focus: only one section is shown.
fn rows_alone(rows: &Shown) -> usize {
    let sections = &rows.table.sections;
    grid::first(sections).map_or(0, |s| 1 + sections[s].rows.len().max(1))
}

/// Data of a probe that fails is called old after so many seconds: a look or two may fail without meaning much.
pub(super) const OLD: f64 = 5.0;

/// Age of what a pane shows, where its probe fails and the rest of the screen is newer; and who is in its way.
fn behind(app: &App, pane: PaneId) -> Option<String> {
    let probe = match pane {
        PaneId::Connections | PaneId::Waits => "activity",
        PaneId::Stages => "queues",
        PaneId::Leases => "leases",
        PaneId::Cost => "cost",
        PaneId::Tasks => "tasks",
        PaneId::Failures => "failures",
        PaneId::Findings => return None,
    };
    let (snapshot, _) = app.shown()?;
    let of = |age: f64| format!("as of {} ago", fmt::duration(age));
    if let Some(half) = snapshot.half_there.first().filter(|_| probe != "activity") {
        let whole = snapshot.all_half().is_none();
        let system = whole.then(|| format!("{} ", half.system));
        return Some(system.unwrap_or_default() + &of(half.age_s?));
    }
    let health = snapshot.probes.iter().find(|p| p.name == probe)?;
    let age = health.age_s.filter(|age| *age > OLD)?;
    let error = health.error.as_ref()?;
    let locked = locks::failed_for_one(error);
    let who = locks::why(&snapshot.exclusive).filter(|_| locked);
    Some(of(age) + &who.map_or(String::new(), |who| format!(", lock timeout: {who}")))
}

/// Filter, selection, order and marks, as far as they are not the usual ones.
fn state(app: &App, pane: PaneId, rows: &Shown) -> Vec<Vec<Span<'static>>> {
    let view = app.view(pane);
    let mut parts = Vec::new();
    if let Some(behind) = behind(app, pane) {
        parts.push(vec![ink(behind, Ink::Warn)]);
    }
    let filter = view.filter.value();
    if app.editing_filter && app.focus == pane {
        let mut field = vec![ink("/", Ink::Key)];
        field.extend(super::field::spans(&view.filter));
        parts.push(field);
    } else if !filter.is_empty() {
        parts.push(vec![dim("filter "), ink(filter, Ink::Key)]);
    }
    if !filter.is_empty() {
        parts.push(vec![ink(
            format!("{}/{}", rows.len(), rows.total),
            Ink::Strong,
        )]);
    }
    if let Some(of) = &view.of {
        parts.push(vec![dim("of "), ink(panes::links::label(of), Ink::Key)]);
        if filter.is_empty() {
            parts.push(vec![ink(rows.total.to_string(), Ink::Strong)]);
        }
    }
    let sorted = view.sort.and_then(|at| panes::pane(pane).columns.get(at));
    match (sorted, view.reverse) {
        (Some(column), reverse) => parts.push(vec![
            dim("by "),
            ink(column.name, Ink::Key),
            dim(if reverse { " reversed" } else { "" }),
        ]),
        (None, true) => parts.push(vec![dim("reversed")]),
        (None, false) => {}
    }
    if pane == PaneId::Tasks && app.matching.is_some() {
        parts.push(vec![text("●"), ink(" all that match marked", Ink::Key)]);
    } else if pane == PaneId::Tasks && !app.marks.is_empty() {
        parts.push(vec![
            text("●"),
            ink(format!(" {} marked", app.marks.len()), Ink::Key),
        ]);
    }
    parts
}
