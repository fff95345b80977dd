//! The verdict in one sentence, the `where` line below it, and what else is wrong. Grey when all is well.

use super::fmt;
use super::glyphs;
use super::lost;
use super::text::{dim, fit, flow, ink, line_width, spread, text, wrap};
use super::theme::Ink;
use crate::app::state::{App, Link};
use crate::findings::{Finding, Layer, Report, Severity};
use crate::panes;
use ratatui::text::{Line, Span};

/// Columns before the text where the screen is wide.
const INDENT: usize = 20;

/// How much may be said.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Lines for the verdict itself.
    pub verdict: usize,
    /// A line for the layers.
    pub layers: bool,
    /// A line for further findings.
    pub also: bool,
}

/// The lines under the header.
pub fn lines(app: &App, width: u16, room: Room) -> Vec<Line<'static>> {
    let Some((_, report)) = app.shown() else {
        return Vec::new();
    };
    let width = usize::from(width);
    if let Link::Lost {
        reason,
        since,
        retry,
    } = &app.link
    {
        let away = app.now - since;
        return lost::lines(
            reason,
            away,
            &lost::next(retry, *since, app.now),
            width,
            room.verdict,
        );
    }
    let indent = if width >= 100 { INDENT } else { 3 };
    let mut lines = Vec::new();
    let others = others(report);
    match report.top() {
        None => {
            let calm = if report.verdict.is_empty() {
                "all is well"
            } else {
                &report.verdict
            };
            let overdue = app.overdue().then(|| {
                let age = fmt::duration(app.now - app.arrived);
                format!("no answer for {age}; before that {calm}")
            });
            let calm = overdue.as_deref().unwrap_or(calm);
            let sign = if calm.starts_with("all is well") {
                "✓"
            } else {
                "·"
            };
            // «all is well» stands where a severity would, what it rests on where its sentence would.
            let spans = match calm.split_once(": ") {
                Some((word, rest)) if indent == INDENT && word.len() < INDENT - 4 => {
                    vec![
                        dim(format!(" {sign} {word:<w$}", w = INDENT - 3)),
                        dim(rest),
                    ]
                }
                _ => vec![dim(format!(" {sign} ")), dim(calm)],
            };
            lines.push(fit(Line::from(spans), width));
        }
        Some(f) => {
            let grave = Ink::severity(f.severity);
            let word = panes::word(f.severity).to_uppercase();
            let head = format!(
                " {} {word} {}",
                glyphs::severity(f.severity),
                fmt::duration(f.since_s)
            );
            let gap = if indent == INDENT {
                INDENT.saturating_sub(super::clean::width(&head)).max(2)
            } else {
                2
            };
            let spans = vec![
                ink(head, grave),
                Span::raw(" ".repeat(gap)),
                ink(&report.verdict, Ink::Strong),
            ];
            let tail = match (room.also, others.len()) {
                (false, n) if n > 0 => {
                    let worst = others
                        .iter()
                        .map(|f| f.severity)
                        .max()
                        .unwrap_or(Severity::Warning);
                    vec![
                        ink(
                            format!("{} {n} more: ", glyphs::severity(worst)),
                            Ink::severity(worst),
                        ),
                        ink("L", Ink::Key),
                        Span::raw(" "),
                    ]
                }
                _ => Vec::new(),
            };
            lines.extend(sentence(
                Line::from(spans),
                tail,
                width,
                indent,
                room.verdict,
            ));
        }
    }
    if room.layers {
        lines.push(layers(report, width, indent));
    }
    if room.also {
        lines.extend(also(report, &others, width));
    }
    lines
}

/// A wrapped sentence of at most so many lines, and something at the end of the last line.
pub(super) fn sentence(
    line: Line<'static>,
    tail: Vec<Span<'static>>,
    width: usize,
    indent: usize,
    most: usize,
) -> Vec<Line<'static>> {
    let mut lines = wrap(&line, width.saturating_sub(1), indent);
    let reserved: usize = tail.iter().map(|s| super::clean::width(&s.content)).sum();
    if lines.len() > most {
        let kept = lines.split_off(most - 1);
        // one line goes on where the next begins, behind its indent
        let rest = kept.into_iter().enumerate();
        let rest = rest.flat_map(|(n, l)| l.spans.into_iter().skip(usize::from(n > 0)));
        lines.push(Line::from(rest.collect::<Vec<_>>()));
    }
    if let Some(last) = lines.pop() {
        let room = width.saturating_sub(if reserved > 0 { reserved + 2 } else { 1 });
        if line_width(&last) > room && lines.len() + 1 < most {
            lines.push(last);
            lines.push(spread(vec![Span::raw(" ")], &[tail], width));
        } else {
            lines.push(spread(fit(last, room).spans, &[tail], width));
        }
    }
    lines
}

/// Warnings and worse that nothing else explains, but for the first.
fn others(report: &Report) -> Vec<&Finding> {
    let worth = |f: &&Finding| f.explained_by.is_none() && f.severity > Severity::Info;
    report.findings.iter().skip(1).filter(worth).collect()
}

fn layers(report: &Report, width: usize, indent: usize) -> Line<'static> {
    let w = &report.layers;
    let wide = indent == INDENT;
    let group = |name: &'static str, layer: &Layer| {
        let mark = Ink::mark(layer.mark);
        let figure = if mark == Ink::Dim {
            Ink::Dim
        } else {
            Ink::Text
        };
        let mut spans = vec![dim(format!("{name} ")), ink(glyphs::mark(layer.mark), mark)];
        if !layer.text.is_empty() {
            spans.push(Span::raw(" "));
            spans.push(ink(&layer.text, figure));
        }
        spans
    };
    let database = if wide { "database" } else { "db" };
    let named = [
        ("queue", &w.queue),
        ("workers", &w.workers),
        (database, &w.database),
        ("outside", &w.outside),
    ];
    let room = width.saturating_sub(indent + 1);
    let size = |groups: &[Vec<Span<'static>>], gap: usize| {
        let all = groups
            .iter()
            .flatten()
            .map(|s| super::clean::width(&s.content));
        all.sum::<usize>() + gap * (groups.len() - 1)
    };
    let mut shown: Vec<(&'static str, Layer)> = named.map(|(n, l)| (n, l.clone())).into();
    let build = |shown: &[(&'static str, Layer)]| -> Vec<Vec<Span<'static>>> {
        shown.iter().map(|(n, l)| group(n, l)).collect()
    };
    let mut groups = build(&shown);
    // No room for every word: those of calm layers go first, then the last words of the longest.
    while size(&groups, 2) > room {
        let calm = |l: &Layer| Ink::mark(l.mark) == Ink::Dim;
        let victim = shown
            .iter_mut()
            .filter(|(_, l)| !l.text.is_empty())
            .max_by_key(|(_, l)| (calm(l), l.text.len()));
        let Some((_, layer)) = victim else { break };
        let keep = if calm(layer) {
            None
        } else {
            layer.text.rfind(' ')
        };
        layer.text.truncate(keep.unwrap_or(0));
        // «9 on» says less than «9».
        for small in [",", " row", " on", " in", " of", " is"] {
            if layer.text.ends_with(small) {
                layer.text.truncate(layer.text.len() - small.len());
            }
        }
        groups = build(&shown);
    }
    let gap = [5, 4, 3]
        .into_iter()
        .find(|gap| size(&groups, *gap) <= room);
    let mut spans = vec![if wide {
        dim(format!("   {:<w$}", "where", w = INDENT - 3))
    } else {
        Span::raw("   ")
    }];
    spans.extend(flow(groups, gap.unwrap_or(2), room));
    fit(Line::from(spans), width)
}

fn also(report: &Report, others: &[&Finding], width: usize) -> Option<Line<'static>> {
    if others.is_empty() {
        return None;
    }
    let total = report.findings.len();
    let right = vec![
        ink("L", Ink::Key),
        dim(format!(" all {total}   ")),
        ink("i", Ink::Key),
        dim(" report "),
    ];
    let room = width.saturating_sub(INDENT + 26);
    // Two sentences side by side say more than one that is whole.
    let each = if others.len() > 1 { room / 2 } else { room };
    let mut spans = vec![dim(format!("   {:<w$}", "also", w = INDENT - 3))];
    for (n, f) in others.iter().take(2).enumerate() {
        if n > 0 {
            spans.push(Span::raw("   "));
        }
        let one = Line::from(vec![
            ink(
                format!("{} ", glyphs::severity(f.severity)),
                Ink::severity(f.severity),
            ),
            text(&f.sentence),
        ]);
        spans.extend(fit(one, each).spans);
    }
    Some(spread(spans, &[right], width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_that_is_cut_has_no_gap() {
        let words = "one two three four five six seven eight nine ten eleven twelve";
        for width in 12..40 {
            let lines = sentence(Line::from(words), Vec::new(), width, 3, 2);
            let text: Vec<String> = lines.iter().map(Line::to_string).collect();
            assert!(
                lines.len() <= 2 && text.iter().all(|l| super::super::clean::width(l) <= width)
            );
            let inner = text.iter().any(|l| l.trim().contains("  "));
            assert!(!inner, "{text:?}");
        }
    }
}
