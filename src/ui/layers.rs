//! What lies over the panes: help, details of a row, the question before a write (the palette: `palette`).

use super::fmt;
use super::text::{dim, fit, ink, line_width, text, wrap};
use super::theme::Ink;
use super::{ask, strike};
use crate::app::dialog::{Dialog, Stage};
use crate::app::state::{App, Layer};
use crate::keys::{Binding, Group, KEYS, Risk};
use crate::panes;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Borders, Clear, Widget};

/// Draws all layers, topmost last.
pub fn draw(buffer: &mut Buffer, area: Rect, app: &App) {
    for layer in &app.layers {
        match layer {
            Layer::Confirm(dialog) => confirm(buffer, area, dialog),
            Layer::Palette(palette) => super::palette::draw(buffer, area, app, palette),
            Layer::Strike(question) => strike::draw(buffer, area, question),
            Layer::Help { scroll } => {
                let (title, lines) = page(app, layer, area);
                scrolled(buffer, sheet(area), &title, &lines, *scroll);
            }
            Layer::Detail { scroll, .. } => {
                let (title, lines) = page(app, layer, area);
                scrolled(buffer, sheet(area), &title, &lines, *scroll);
            }
        }
    }
}

/// The furthest that the topmost layer can be scrolled.
pub fn max_scroll(app: &App) -> u16 {
    let area = Rect::new(0, 0, app.size.0, app.size.1);
    if area.width < super::LEAST.0 || area.height < super::LEAST.1 {
        return 0;
    }
    match app.layers.last() {
        Some(layer @ (Layer::Help { .. } | Layer::Detail { .. })) => {
            let (_, lines) = page(app, layer, area);
            (lines.len() as u16).saturating_sub(inner(sheet(area)).height)
        }
        _ => 0,
    }
}

/// Lines of a layer's page that are seen at once.
pub fn page_height(app: &App) -> u16 {
    inner(sheet(Rect::new(0, 0, app.size.0, app.size.1)))
        .height
        .max(1)
}

/// The place of help, details and palette: all but the header and the footer, since half a screen beside them only distracts.
pub(super) fn sheet(area: Rect) -> Rect {
    Rect::new(
        area.x,
        area.y + 1,
        area.width,
        area.height.saturating_sub(2),
    )
}

/// What a frame leaves.
pub(super) fn inner(sheet: Rect) -> Rect {
    Rect::new(
        sheet.x + 2,
        sheet.y + 1,
        sheet.width.saturating_sub(4),
        sheet.height.saturating_sub(2),
    )
}

/// Title and wrapped lines of a help or detail layer.
fn page(app: &App, layer: &Layer, area: Rect) -> (String, Vec<Line<'static>>) {
    let (title, lines) = match layer {
        Layer::Detail { row, .. } => (
            panes::links::label(row),
            panes::detail(app, row)
                .unwrap_or_else(|| vec![Line::from(dim("This row is not there any more."))]),
        ),
        _ => ("help".to_string(), help(app)),
    };
    let width = usize::from(inner(sheet(area)).width);
    let lines = lines.iter().flat_map(|l| wrap(l, width, hang(l))).collect();
    (title, lines)
}

/// Where the second line of a wrapped one begins: under its text, not under its label.
pub(super) fn hang(line: &Line) -> usize {
    let text = line.to_string();
    let label = text.trim_start();
    let start = text.len() - label.len();
    let gap = label.find("  ").map(|at| start + at);
    let after = gap.map(|at| at + text[at..].len() - text[at..].trim_start().len());
    match after.filter(|at| *at <= 24) {
        Some(at) => super::clean::width(&text[..at]),
        None => start,
    }
}

fn scrolled(buffer: &mut Buffer, sheet: Rect, title: &str, lines: &[Line<'static>], scroll: u16) {
    frame(buffer, sheet, title);
    let inside = inner(sheet);
    let last = lines.len().saturating_sub(usize::from(inside.height));
    let top = usize::from(scroll).min(last);
    for (line, y) in lines.iter().skip(top).zip(inside.top()..inside.bottom()) {
        buffer.set_line(inside.x, y, line, inside.width);
    }
    if last > 0 {
        let below = lines.len() - top - usize::from(inside.height).min(lines.len() - top);
        let note = match below {
            0 => " end ".to_string(),
            n => format!(" {} more ", fmt::plural(n as u64, "line", "lines")),
        };
        let line = Line::from(dim(note));
        let w = line_width(&line) as u16;
        let x = sheet.right().saturating_sub(w + 2);
        buffer.set_line(x, sheet.bottom() - 1, &line, w);
    }
}

/// A cleared area with a thin border and a title.
pub(super) fn frame(buffer: &mut Buffer, area: Rect, title: &str) {
    Clear.render(area, buffer);
    let title = fit(
        Line::from(vec![Span::raw(" "), ink(title, Ink::Title), Span::raw(" ")]),
        usize::from(area.width.saturating_sub(4)),
    );
    Block::new()
        .borders(Borders::ALL)
        .border_type(BorderType::Plain)
        .border_style(Ink::Dim)
        .title(title)
        .render(area, buffer);
}

/// Keys of the table by group, then what the figures of the focused pane mean.
fn help(app: &App) -> Vec<Line<'static>> {
    let def = panes::pane(app.focus);
    let mut lines = vec![
        Line::from(ink(def.title, Ink::Title)),
        Line::from(text(def.purpose)),
        Line::default(),
    ];
    lines.extend(def.help.iter().map(|h| Line::from(dim(*h))));
    let row = app.row_in_hand();
    for (group, title) in [
        (Group::Look, "LOOK CLOSER"),
        (Group::Write, "WRITE"),
        (Group::Take, "TAKE AWAY"),
        (Group::Move, "MOVE"),
        (Group::Program, "PROGRAM"),
    ] {
        lines.push(Line::default());
        let listed: Vec<_> = KEYS.iter().filter(|b| b.group == group).collect();
        let why_not = |b: &&Binding| match b.risk {
            Risk::Writes => app.why_not_with(b.action, row.as_ref()),
            Risk::Looks => None,
        };
        let reasons: Vec<Option<String>> = listed.iter().map(why_not).collect();
        // said once where it is the same for all
        let shared = reasons.first().cloned().flatten();
        let shared = shared.filter(|_| reasons.iter().all(|why| *why == reasons[0]));
        let mut head = vec![ink(title, Ink::Title)];
        if let Some(why) = &shared {
            head.push(dim(format!("  off now: {why}")));
        }
        lines.push(Line::from(head));
        for (b, why) in listed.into_iter().zip(reasons) {
            let keys = b.label();
            let off = why.is_some();
            let mut mark = match b.risk {
                Risk::Writes => " (asks first, then writes)".to_string(),
                Risk::Looks => String::new(),
            };
            if let Some(why) = why.filter(|_| shared.is_none()) {
                mark.push_str(&format!("  off now: {why}"));
            }
            lines.push(Line::from(vec![
                ink(
                    format!("  {keys:<12}"),
                    if off { Ink::Dim } else { Ink::Key },
                ),
                ink(b.help, if off { Ink::Dim } else { Ink::Text }),
                dim(mark),
            ]));
        }
    }
    lines.push(Line::default());
    lines.push(Line::from(ink("MARKS", Ink::Title)));
    for (glyph, grave, what) in [
        ("✗", Ink::Bad, "critical: somebody should act now"),
        ("!", Ink::Warn, "warning: look here next"),
        ("n/a", Ink::Dim, "cannot be known; Enter says why"),
        ("-", Ink::Dim, "there is none"),
        (
            "~",
            Ink::Text,
            "an estimate;   + behind a count: at least so many",
        ),
    ] {
        lines.push(Line::from(vec![
            ink(format!("  {glyph:<12}"), grave),
            text(what),
        ]));
    }
    lines
}

/// The question before a write.
fn confirm(buffer: &mut Buffer, area: Rect, dialog: &Dialog) {
    let lines: Vec<Line<'static>> = dialog.lines.iter().map(|l| Line::from(text(l))).collect();
    let foot = foot(dialog, ask::room(area));
    ask::draw(buffer, area, &dialog.title, &lines, foot);
}

fn foot(dialog: &Dialog, room: usize) -> Vec<Line<'static>> {
    let one = dialog.preview.as_ref().is_some_and(|p| p.eligible == 1);
    let what = dialog.verb.words(if one { "it" } else { "them" });
    let (asked, yes) = match dialog.stage {
        Stage::Counting => {
            let mut line = vec![ink("reading the tasks as they are now…      ", Ink::Warn)];
            line.extend(ask::no());
            return vec![Line::from(line)];
        }
        Stage::Running => {
            return vec![Line::from(vec![
                ink("writing…    ", Ink::Warn),
                ink("A", Ink::Key),
                text(" stop after this chunk    "),
                ink("Esc", Ink::Key),
                text(" hide this, it goes on"),
            ])];
        }
        Stage::Over => return vec![Line::from(dim("any key closes this"))],
        Stage::Confirm if dialog.must_type.is_empty() => return ask::yes_or_no(&what, room),
        Stage::Number => (
            "new priority (which end goes first is the queue's own rule): ".to_string(),
            " go on".to_string(),
        ),
        Stage::Reason => ("why (for the journal): ".to_string(), " go on".to_string()),
        Stage::Confirm => (
            format!("type {} to {what}: ", dialog.must_type),
            format!(" yes, {what}"),
        ),
    };
    let ready = match dialog.stage {
        Stage::Confirm => dialog.confirmed(),
        _ => !dialog.input.value().trim().is_empty(),
    };
    ask::field(&asked, &dialog.input, &yes, ready, room)
}
