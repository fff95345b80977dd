//! The palette: a text field over the actions that match, the chosen one under a bar.

use super::field;
use super::layers::{frame, hang, inner, sheet};
use super::text::{Align, dim, ink, pad, spread, text, wrap};
use super::theme::{Ink, SELECTED};
use crate::app::palette::{Entry, Palette};
use crate::app::state::App;
use crate::keys::Risk;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Wide enough for any action with its risk and reason on a line or two.
const WIDTH: u16 = 120;
/// The text field and the line under it.
const HEAD: u16 = 2;
/// The cursor and a space.
const LEAD: u16 = 2;
/// Columns of the keys.
const KEYS: u16 = 13;

/// Draws the palette from the top of the screen down, as high as its list.
pub fn draw(buffer: &mut Buffer, area: Rect, app: &App, palette: &Palette) {
    let most = place(area);
    let room = usize::from(inner(most).width);
    let beside = room.saturating_sub(usize::from(LEAD));
    let entries = app.palette_entries(palette);
    let chosen = palette.at(&entries);
    let listed: Vec<(usize, Line<'static>)> = entries
        .iter()
        .enumerate()
        .flat_map(|(at, e)| entry(e, beside).into_iter().map(move |l| (at, l)))
        .collect();
    let height = most.height.min(2 + HEAD + listed.len().max(1) as u16);
    let here = Rect { height, ..most };
    frame(buffer, here, "actions");
    let inside = inner(here);
    let count = format!("{}/{}", entries.len(), crate::keys::KEYS.len());
    let mut typed = vec![ink(":", Ink::Key)];
    typed.extend(field::spans(&palette.input));
    let line = spread(typed, &[vec![dim(count)]], room);
    buffer.set_line(inside.x, inside.y, &line, inside.width);
    let list = Rect::new(
        inside.x,
        inside.y + HEAD,
        inside.width,
        inside.height.saturating_sub(HEAD),
    );
    if listed.is_empty() {
        let none = Line::from(dim("no action matches: words must all occur"));
        buffer.set_line(list.x, list.y, &none, list.width);
    }
    let rows = usize::from(list.height);
    // the chosen one in the middle, except at the ends
    let here = listed.iter().position(|(at, _)| *at == chosen).unwrap_or(0);
    let last = listed.len().saturating_sub(rows);
    let top = here.saturating_sub(rows / 2).min(last);
    for (n, y) in (top..listed.len()).zip(list.top()..list.bottom()) {
        if n == here {
            let bar = Rect::new(list.x, y, LEAD + KEYS.min(list.width - LEAD), 1);
            buffer.set_style(bar, SELECTED);
            buffer.set_line(list.x, y, &Line::from(ink("▸", Ink::Strong)), LEAD);
        }
        buffer.set_line(list.x + LEAD, y, &listed[n].1, list.width - LEAD);
    }
}

/// Actions that are seen at once: the length of a page.
pub fn page(app: &App) -> usize {
    let most = place(Rect::new(0, 0, app.size.0, app.size.1));
    usize::from(inner(most).height.saturating_sub(HEAD)).max(1)
}

fn place(area: Rect) -> Rect {
    let sheet = sheet(area);
    let width = sheet.width.saturating_sub(4).min(WIDTH);
    Rect {
        x: sheet.x + (sheet.width - width) / 2,
        width,
        ..sheet
    }
}

/// Key, what it does, risk; and why not now, where it is not possible. All dim then.
fn entry(e: &Entry, room: usize) -> Vec<Line<'static>> {
    let off = e.why_not.is_some();
    let (key, does) = match off {
        true => (Ink::Dim, Ink::Dim),
        false => (Ink::Key, Ink::Text),
    };
    let mut spans = vec![
        ink(pad(&e.binding.label(), usize::from(KEYS), Align::Left), key),
        ink(e.binding.help, does),
    ];
    spans.push(match e.binding.risk {
        Risk::Writes if !off => text(format!("  {}", e.risk())),
        _ => dim(format!("  {}", e.risk())),
    });
    if let Some(why) = &e.why_not {
        spans.push(dim(format!("  not now: {why}")));
    }
    let line = Line::from(spans);
    wrap(&line, room, hang(&line))
}
