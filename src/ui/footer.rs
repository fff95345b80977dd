//! The last line: the keys that do something now, and why those that write do not. Toasts lie over it.

use super::glyphs;
use super::text::{dim, flow, ink, line_width, spread, text, wrap};
use super::theme::Ink;
use crate::app::state::{App, Layer, Toast, Tone};
use crate::findings::Severity;
use crate::keys::{KEYS, Risk};
use crate::text::thousands;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

/// The keys.
pub fn line(app: &App, width: u16) -> Line<'static> {
    let width = usize::from(width);
    let fixed: Option<Vec<Vec<Span<'static>>>> = match app.layers.last() {
        Some(Layer::Confirm(_)) => Some(Vec::new()),
        Some(Layer::Help { .. } | Layer::Detail { .. }) => Some(vec![
            hint("Esc", "close"),
            hint("j k", "scroll"),
            hint("PgDn PgUp", "a page"),
        ]),
        Some(Layer::Palette(_)) => Some(vec![
            hint("Enter", "run it"),
            hint("Esc", "close"),
            hint("Up Down", "choose"),
            hint("PgDn PgUp", "a page"),
            vec![dim("words must all occur")],
        ]),
        None if app.editing_filter => Some(vec![
            hint("Enter", "keep"),
            hint("Esc", "clear"),
            vec![
                dim("words must all occur; "),
                text("kind:pdf"),
                dim(" in one column; "),
                text("!word"),
                dim(" must not"),
            ],
        ]),
        None => app.acting.as_ref().map(|(verb, p)| {
            let (done, asked) = (thousands(p.done), thousands(p.asked));
            vec![
                vec![ink(
                    format!(
                        "{}: {done} of {asked}, {:.0} a second",
                        verb.name(),
                        p.per_second
                    ),
                    Ink::Warn,
                )],
                hint("A", "stop it"),
                hint("?", "help"),
            ]
        }),
    };
    if let Some(groups) = fixed {
        let mut spans = vec![Span::raw(" ")];
        spans.extend(flow(groups, 3, width.saturating_sub(2)));
        return Line::from(spans);
    }
    let (right, shorter) = writes(app);
    let looks = KEYS
        .iter()
        .filter(|b| b.risk == Risk::Looks && !b.hint.is_empty());
    let groups: Vec<_> = looks
        .filter_map(|b| Some(hint(b.keys.first()?, b.hint)))
        .collect();
    let size = |spans: &[Span<'static>]| line_width(&Line::from(spans.to_vec()));
    let all: usize = groups.iter().map(|g| size(g)).sum();
    for gap in [3, 2] {
        for right in [&right, &shorter] {
            if 1 + all + gap * (groups.len() - 1) + 2 + size(right) <= width {
                let mut left = vec![Span::raw(" ")];
                left.extend(flow(groups, gap, width));
                return spread(left, std::slice::from_ref(right), width);
            }
        }
    }
    // Help must stay: it names all the others. Quit too: nobody should be trapped.
    let mut kept = groups;
    while kept.len() > 2
        && 1 + kept.iter().map(|g| size(g) + 2).sum::<usize>() + size(&shorter) > width
    {
        let victim = kept.len() - 3;
        kept.remove(victim);
    }
    let mut left = vec![Span::raw(" ")];
    left.extend(flow(kept, 2, width));
    spread(left, &[shorter], width)
}

fn hint(key: &str, word: &str) -> Vec<Span<'static>> {
    vec![ink(key, Ink::Key), dim(format!(" {word}"))]
}

/// The keys that write: those that are possible now, then the others by the reason why not; in full, and without
/// advice.
fn writes(app: &App) -> (Vec<Span<'static>>, Vec<Span<'static>>) {
    let mut on: Vec<Span<'static>> = Vec::new();
    let mut off: Vec<(String, Vec<&str>)> = Vec::new();
    for b in KEYS.iter().filter(|b| b.risk == Risk::Writes) {
        let Some(key) = b.keys.first().filter(|_| !b.hint.is_empty()) else {
            continue;
        };
        match app.why_not(b.action) {
            None => {
                on.extend(hint(key, b.hint));
                on.push(Span::raw("  "));
            }
            Some(why) => match off.iter_mut().find(|(w, _)| *w == why) {
                Some((_, keys)) => keys.push(key),
                None => off.push((why, vec![key])),
            },
        }
    }
    let (mut long, mut short) = (on.clone(), on);
    for (why, keys) in off {
        let keys = keys.join(" ");
        let (reason, advice) = why.split_once(": ").unwrap_or((&why, ""));
        let advice = match advice {
            "" => String::new(),
            advice => format!(" ({advice})"),
        };
        long.push(dim(format!("{keys} off: {reason}{advice} ")));
        short.push(dim(format!("{keys} off: {reason} ")));
    }
    (long, short)
}

/// The newest toasts over the last lines of the screen, newest lowest.
pub fn toasts(buffer: &mut Buffer, area: Rect, toasts: &[Toast]) {
    let mut y = area.bottom();
    let most = if area.height >= 30 { 3 } else { 2 };
    for toast in toasts.iter().rev().take(most) {
        let (glyph, word, grave) = match toast.tone {
            Tone::Info => ("·", "", Ink::Strong),
            Tone::Warning => (glyphs::severity(Severity::Warning), "WARNING ", Ink::Warn),
            Tone::Error => (glyphs::severity(Severity::Critical), "ERROR ", Ink::Bad),
        };
        let line = Line::from(vec![
            ink(format!(" {glyph} {word}"), grave),
            if toast.tone == Tone::Info {
                ink(&toast.text, Ink::Strong)
            } else {
                text(&toast.text)
            },
        ]);
        let mut lines = wrap(&line, usize::from(area.width).saturating_sub(1), 3);
        lines.truncate(3);
        for line in lines.iter().rev() {
            if y <= area.y + 1 {
                return;
            }
            y -= 1;
            let row = Rect::new(area.x, y, area.width, 1);
            Clear.render(row, buffer);
            buffer.set_line(row.x, row.y, line, row.width);
        }
    }
}
