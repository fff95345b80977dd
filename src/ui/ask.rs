//! What all questions before a write look like: a box in the middle whose last lines are always visible, a field to
//! type into, No as the default.

use super::field;
use super::layers::{frame, inner};
use super::text::{dim, ink, text, wrap};
use super::theme::Ink;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use tui_input::Input;

/// Columns that the text of a question has.
pub fn room(area: Rect) -> usize {
    usize::from(width(area).saturating_sub(4))
}

fn width(area: Rect) -> u16 {
    area.width.saturating_sub(4).min(84)
}

/// Draws a question; `lines` give way where there is no room, `foot` does not.
pub fn draw(
    buffer: &mut Buffer,
    area: Rect,
    title: &str,
    lines: &[Line<'static>],
    foot: Vec<Line<'static>>,
) {
    let room = room(area);
    let mut lines: Vec<Line<'static>> = lines.iter().flat_map(|l| wrap(l, room, 2)).collect();
    let most = usize::from(area.height).saturating_sub(4 + foot.len());
    if lines.len() > most {
        let left = lines.len() - most + 1;
        lines.truncate(most.saturating_sub(1));
        lines.push(Line::from(dim(format!("{left} more lines"))));
    }
    if !lines.is_empty() {
        lines.push(Line::default());
    }
    lines.extend(foot);
    let (width, height) = (width(area), (lines.len() as u16 + 2).min(area.height));
    let place = Rect::new(
        area.x + (area.width - width) / 2,
        area.y + (area.height - height) / 2,
        width,
        height,
    );
    frame(buffer, place, title);
    let inside = inner(place);
    for (line, y) in lines.iter().zip(inside.top()..inside.bottom()) {
        buffer.set_line(inside.x, y, line, inside.width);
    }
}

/// `Esc no (the default)`.
pub fn no() -> Vec<Span<'static>> {
    vec![ink("Esc", Ink::Key), text(" no"), dim(" (the default)")]
}

/// `y yes, …   n or Esc no (the default)`.
pub fn yes_or_no(what: &str, room: usize) -> Vec<Line<'static>> {
    let mut spans = vec![
        ink("y", Ink::Key),
        text(format!(" yes, {what}      ")),
        ink("n", Ink::Key),
        dim(" or "),
    ];
    spans.extend(no());
    wrap(&Line::from(spans), room, 0)
}

/// A field with its caret, and what Enter does once it is `ready`.
pub fn field(
    asked: &str,
    input: &Input,
    yes: &str,
    ready: bool,
    room: usize,
) -> Vec<Line<'static>> {
    let mut spans = vec![
        ink("Enter", if ready { Ink::Key } else { Ink::Dim }),
        ink(
            format!("{yes}      "),
            if ready { Ink::Text } else { Ink::Dim },
        ),
    ];
    spans.extend(no());
    let mut field = vec![text(asked)];
    field.extend(field::spans(input));
    let mut lines = wrap(&Line::from(field), room, 2);
    lines.push(Line::from(spans));
    lines
}
