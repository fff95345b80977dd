//! The last line: the keys that do something now, and why those that write do not. Toasts lie over it.

use super::glyphs;
use super::order::Tables;
use super::text::{dim, flow, ink, line_width, spread, text, wrap};
use super::theme::Ink;
use crate::app::state::{App, Layer, PaneId, Toast, Tone};
use crate::findings::Severity;
use crate::keys::{Action, Binding, KEYS, Risk};
use crate::text::thousands;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

/// The keys.
pub fn line(tables: &Tables, width: u16) -> Line<'static> {
    let app = tables.app;
    let width = usize::from(width);
    let fixed: Option<Vec<Vec<Span<'static>>>> = match app.layers.last() {
        Some(Layer::Confirm(_) | Layer::Strike(_)) => Some(Vec::new()),
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
                        verb.label(),
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
    // sessions are ended where they are listed; where there is no room, the tasks' keys give way there
    let sessions = [PaneId::Connections, PaneId::Waits].contains(&app.focus);
    let may = app.write_refusal().is_none();
    let possible = if may { possible(tables) } else { Vec::new() };
    let writes = |here: &dyn Fn(Action) -> bool| writes(app, &possible, here);
    let (right, shorter) = writes(&|a| sessions || a != Action::EndSession);
    let (without, shortest) = writes(&|a| (sessions && may) == (a == Action::EndSession));
    let looks = KEYS
        .iter()
        .filter(|b| b.risk == Risk::Looks && !b.hint.is_empty());
    let groups: Vec<_> = looks
        .filter_map(|b| Some(hint(b.keys.first()?, b.hint)))
        .collect();
    let size = |spans: &[Span<'static>]| line_width(&Line::from(spans.to_vec()));
    let all: usize = groups.iter().map(|g| size(g)).sum();
    for gap in [3, 2] {
        for right in [&right, &shorter, &without, &shortest] {
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
        && 1 + kept.iter().map(|g| size(g) + 2).sum::<usize>() + size(&shortest) > width
    {
        let victim = kept.len() - 3;
        kept.remove(victim);
    }
    let mut left = vec![Span::raw(" ")];
    left.extend(flow(kept, 2, width));
    spread(left, &[shortest], width)
}

/// The keys that write.
fn writing() -> impl Iterator<Item = (&'static Binding, &'static str)> {
    let writes = KEYS.iter().filter(|b| b.risk == Risk::Writes);
    let writes = writes.filter(|b| !b.hint.is_empty());
    writes.filter_map(|b| Some((b, *b.keys.first()?)))
}

/// Those of them that are possible for the row in hand. Without an open detail that is the one under the cursor.
fn possible(tables: &Tables) -> Vec<Action> {
    let app = tables.app;
    let row = tables.get(app.focus).cursor(app.view(app.focus));
    let actions = writing().map(|(b, _)| b.action);
    actions
        .filter(|a| app.why_not_with(*a, row.as_ref()).is_none())
        .collect()
}

/// The keys that write and that are possible now, or why none may: as long as it gets, and shorter.
fn writes(
    app: &App,
    possible: &[Action],
    here: &dyn Fn(Action) -> bool,
) -> (Vec<Span<'static>>, Vec<Span<'static>>) {
    let writes = writing().filter(|(b, _)| here(b.action));
    let Some(why) = app.write_refusal() else {
        let possible = writes.filter(|(b, _)| possible.contains(&b.action));
        let groups = possible.map(|(b, key)| hint(key, b.hint));
        let all: Vec<Span<'static>> = groups
            .flat_map(|g| [g, vec![Span::raw("  ")]].concat())
            .collect();
        return (all.clone(), all);
    };
    let keys: Vec<&str> = writes.map(|(_, key)| key).collect();
    let keys = keys.join(" ");
    let (reason, advice) = why.split_once(": ").unwrap_or((&why, ""));
    let long = if advice.is_empty() {
        reason.to_string()
    } else {
        format!("{reason} ({advice})")
    };
    (
        vec![dim(format!("{keys} off: {long} "))],
        vec![dim(format!("{keys} off: {reason} "))],
    )
}

fn hint(key: &str, word: &str) -> Vec<Span<'static>> {
    vec![ink(key, Ink::Key), dim(format!(" {word}"))]
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
