//! The screen: a pure function of the state. Nothing here does I/O or asks a clock.

mod ask;
mod block;
mod brief;
pub mod clean;
mod field;
pub mod flow;
pub mod fmt;
mod footer;
pub mod glyphs;
mod grid;
mod header;
pub mod layers;
mod lost;
pub mod order;
mod overview;
pub mod palette;
pub mod plain;
pub mod report;
mod strike;
pub mod svg;
pub mod table;
pub mod text;
pub mod theme;
mod verdict;

#[cfg(test)]
mod tests;

pub use layers::{max_scroll, page_height};
pub use palette::page as palette_page;

use crate::app::state::{App, Link};
use block::Shape;
use order::Tables;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use theme::{Ink, Theme};

/// Smallest size at which anything is drawn.
pub const LEAST: (u16, u16) = (60, 16);

/// The whole screen. From bottom to top: body, header and verdict, footer, layers, toasts; the theme last.
///
/// ```text
/// ┌ header ────────────────────────────────────────────────────┐
/// │ database @ host   PG 17 primary   READ-ONLY   LIVE   clock │
/// │────────────────────────────────────────────────────────────│
/// │ ✗ CRITICAL 8m   the verdict                                │
/// │   where         queue ✗   workers !   database ✗   out ?   │
/// │   also          ! two further findings            L  all 3 │
/// ├ body: the overview, or one pane ───────────────────────────┤
/// │ FLOW   in, done, failed by minute    TOTALS  by state      │
/// │ STAGES queues             ┌ layers: help, details, dialog ┐│
/// │ CONNECTIONS    WAITS      │                               ││
/// │ LEASES         COST       └───────────────────────────────┘│
/// │ TASKS  the rest                                            │
/// ├ footer: keys; toasts lie over it ──────────────────────────┤
/// │ Enter open   t tasks   …              R X off: read-only   │
/// └────────────────────────────────────────────────────────────┘
/// ```
pub fn draw(frame: &mut Frame, app: &App, theme: &Theme) {
    let area = frame.area();
    screen(frame.buffer_mut(), area, app);
    theme.paint(frame.buffer_mut());
}

/// The whole screen at any size: for tests and pictures.
pub fn render(app: &App, theme: &Theme, width: u16, height: u16) -> Buffer {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    screen(&mut buffer, area, app);
    theme.paint(&mut buffer);
    buffer
}

/// Rows of the focused pane that fit on the screen: the length of a page.
pub fn page_rows(app: &App) -> usize {
    let area = Rect::new(0, 0, app.size.0, app.size.1);
    if area.width < LEAST.0 || area.height < LEAST.1 {
        return 1;
    }
    let body = parts(app, area).body;
    let height = match app.zoom {
        Some(pane) => {
            let head = (panes_head(app, pane, body.width)).min(body.height / 2 + 1);
            body.height.saturating_sub(head + 2)
        }
        None => overview::place(&Tables::of(app), body)
            .into_iter()
            .find_map(|(b, area)| match b {
                overview::Block::Pane(p, shape) if p == app.focus => Some(
                    area.height
                        .saturating_sub(1 + u16::from(shape != Shape::Inline)),
                ),
                _ => None,
            })
            .unwrap_or(1),
    };
    usize::from(height.max(1))
}

fn panes_head(app: &App, pane: crate::app::state::PaneId, width: u16) -> u16 {
    (crate::panes::pane(pane).head)(app, width).len() as u16
}

/// Where the parts of the screen are.
struct Parts {
    verdict: Vec<Line<'static>>,
    top: Rect,
    body: Rect,
    footer: Rect,
    ruled: bool,
}

fn parts(app: &App, area: Rect) -> Parts {
    let tall = area.height >= 36;
    let room = verdict::Room {
        verdict: 2,
        layers: app.zoom.is_none() || tall,
        also: tall && area.width >= 100,
    };
    let verdict = verdict::lines(app, area.width, room);
    let ruled = tall;
    let top = 1 + u16::from(ruled);
    let body = top + verdict.len() as u16 + 1;
    let foot = 1 + u16::from(ruled);
    Parts {
        top: Rect::new(area.x, area.y + top, area.width, verdict.len() as u16),
        body: Rect::new(
            area.x,
            area.y + body,
            area.width,
            area.height.saturating_sub(body + foot),
        ),
        footer: Rect::new(area.x, area.bottom() - foot, area.width, foot),
        verdict,
        ruled,
    }
}

fn screen(buffer: &mut Buffer, area: Rect, app: &App) {
    buffer.set_style(area, Style::reset());
    if area.width < LEAST.0 || area.height < LEAST.1 {
        middle(
            buffer,
            area,
            &[Line::from(text::ink(
                format!("needs {}x{}", LEAST.0, LEAST.1),
                Ink::Strong,
            ))],
        );
        return;
    }
    if app.shown().is_none() {
        connecting(buffer, area, app);
    } else {
        data(buffer, area, app);
    }
    layers::draw(buffer, area, app);
    footer::toasts(buffer, area, &app.toasts);
}

fn data(buffer: &mut Buffer, area: Rect, app: &App) {
    let tables = Tables::of(app);
    let parts = parts(app, area);
    match app.zoom {
        Some(pane) => {
            block::draw(buffer, parts.body, &tables, pane, Shape::Full);
        }
        None => overview::draw(buffer, &tables, parts.body),
    }
    if matches!(app.link, Link::Lost { .. }) {
        stale(buffer, parts.body);
    }
    buffer.set_line(area.x, area.y, &header::line(app, area.width), area.width);
    for (line, y) in parts.verdict.iter().zip(parts.top.y..) {
        buffer.set_line(area.x, y, line, area.width);
    }
    if parts.ruled {
        rule(buffer, Rect::new(area.x, area.y + 1, area.width, 1));
        rule(buffer, Rect::new(area.x, parts.footer.y, area.width, 1));
    }
    let y = parts.footer.bottom() - 1;
    buffer.set_line(area.x, y, &footer::line(&tables, area.width), area.width);
}

/// Old data: readable, but without any colour that asks for attention.
fn stale(buffer: &mut Buffer, area: Rect) {
    for y in area.top()..area.bottom() {
        for x in area.left()..area.right() {
            buffer[(x, y)].set_style(Style::from(Ink::Dim));
        }
    }
}

fn rule(buffer: &mut Buffer, row: Rect) {
    let line = Line::from(text::dim("─".repeat(usize::from(row.width))));
    buffer.set_line(row.x, row.y, &line, row.width);
}

/// Lines in the middle of an area.
fn middle(buffer: &mut Buffer, area: Rect, lines: &[Line<'static>]) {
    let top = area.y + area.height.saturating_sub(lines.len() as u16) / 2;
    for (line, y) in lines.iter().zip(top..area.bottom()) {
        let line = text::fit(line.clone(), usize::from(area.width));
        let x = area.x + (area.width - text::line_width(&line) as u16) / 2;
        buffer.set_line(x, y, &line, area.width);
    }
}

/// Before the first data: why there is none yet.
fn connecting(buffer: &mut Buffer, area: Rect, app: &App) {
    let waited = fmt::duration((app.now - app.started).max(0.0));
    let mut lines = vec![Line::from(text::ink("jobtop", Ink::Title)), Line::default()];
    let (what, why) = match &app.link {
        Link::Connecting(why) => ("connecting".to_string(), why.as_str()),
        Link::Live => ("reading the queues".to_string(), ""),
        Link::Lost {
            reason,
            since,
            retry,
        } => {
            let next = lost::next(retry, *since, app.now);
            (format!("no database; {next}"), reason.as_str())
        }
    };
    lines.push(Line::from(text::dim(format!("{what}, {waited}"))));
    if !why.is_empty() {
        lines.push(Line::default());
        let room = usize::from(area.width.min(90) - 4);
        lines.extend(text::wrap(&Line::from(text::text(why)), room, 0));
    }
    middle(buffer, area, &lines);
    buffer.set_line(
        area.x,
        area.bottom() - 1,
        &Line::from(vec![text::ink(" q", Ink::Key), text::dim(" quit")]),
        area.width,
    );
}
