//! Lines of inked text, padded and cut by display width. What comes in is cleaned here, so nothing else has to
//! remember to.

use super::clean::{clean, cut, width};
use super::theme::Ink;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// A piece of cleaned text.
pub fn ink(text: impl AsRef<str>, ink: Ink) -> Span<'static> {
    Span::styled(clean(text.as_ref()).into_owned(), ink)
}

/// Plain data.
pub fn text(text: impl AsRef<str>) -> Span<'static> {
    ink(text, Ink::Text)
}

/// A label.
pub fn dim(text: impl AsRef<str>) -> Span<'static> {
    ink(text, Ink::Dim)
}

/// Where a text stands in its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Figures.
    Right,
}

/// Exactly `columns` wide: cut, or padded.
pub fn pad(text: &str, columns: usize, align: Align) -> String {
    let text = cut(text, columns);
    let fill = " ".repeat(columns - width(&text));
    match align {
        Align::Left => format!("{text}{fill}"),
        Align::Right => format!("{fill}{text}"),
    }
}

/// Display width of a line.
pub fn line_width(line: &Line) -> usize {
    line.spans.iter().map(|s| width(&s.content)).sum()
}

/// A line no wider than `columns`.
pub fn fit(line: Line<'static>, columns: usize) -> Line<'static> {
    if line_width(&line) <= columns {
        return line;
    }
    let mut left = columns;
    let mut spans = Vec::new();
    for span in line.spans {
        let w = width(&span.content);
        if w < left {
            left -= w;
            spans.push(span);
            continue;
        }
        // The line goes on behind this span, so a full span must end in the mark of a cut too.
        let shorter = cut(&format!("{} ", span.content), left).into_owned();
        spans.push(Span::styled(shorter, span.style));
        break;
    }
    Line::from(spans)
}

/// `left` and, at the right edge, the longest of `rights` that fits with two columns between them.
pub fn spread(
    left: Vec<Span<'static>>,
    rights: &[Vec<Span<'static>>],
    columns: usize,
) -> Line<'static> {
    let used: usize = left.iter().map(|s| width(&s.content)).sum();
    for right in rights {
        let w: usize = right.iter().map(|s| width(&s.content)).sum();
        if used + 2 + w <= columns {
            let mut spans = left;
            spans.push(Span::raw(" ".repeat(columns - used - w)));
            spans.extend(right.iter().cloned());
            return Line::from(spans);
        }
    }
    fit(Line::from(left), columns)
}

/// Groups of spans with `gap` columns between them; those that do not fit are left out whole, and so is all
/// behind them.
pub fn flow(groups: Vec<Vec<Span<'static>>>, gap: usize, columns: usize) -> Vec<Span<'static>> {
    let mut out: Vec<Span<'static>> = Vec::new();
    let mut used = 0;
    for group in groups {
        let w: usize = group.iter().map(|s| width(&s.content)).sum();
        if w == 0 {
            continue;
        }
        let before = if out.is_empty() { 0 } else { gap };
        if used + before + w > columns {
            break;
        }
        if before > 0 {
            out.push(Span::raw(" ".repeat(before)));
        }
        out.extend(group);
        used += before + w;
    }
    out
}

/// Breaks a line at spaces so that each part fits; the parts after the first are indented.
pub fn wrap(line: &Line<'static>, columns: usize, indent: usize) -> Vec<Line<'static>> {
    if line_width(line) <= columns {
        return vec![line.clone()];
    }
    let indent = if indent + 8 > columns { 0 } else { indent };
    let mut out = Vec::new();
    let mut current: Vec<Span<'static>> = Vec::new();
    let mut used = 0;
    let mut fresh = true;
    for (word, style) in words(line) {
        let w = width(word);
        if !fresh && used + width(word.trim_end()) > columns {
            out.push(Line::from(std::mem::take(&mut current)));
            current.push(Span::raw(" ".repeat(indent)));
            used = indent;
            fresh = true;
            if word.trim().is_empty() {
                continue;
            }
        }
        let mut rest = word;
        while used + width(rest.trim_end()) > columns && !rest.is_empty() {
            let head = head(rest, columns.saturating_sub(used).max(1));
            current.push(Span::styled(head.to_string(), style));
            rest = &rest[head.len()..];
            out.push(Line::from(std::mem::take(&mut current)));
            current.push(Span::raw(" ".repeat(indent)));
            used = indent;
        }
        used += if rest.len() == word.len() {
            w
        } else {
            width(rest)
        };
        current.push(Span::styled(rest.to_string(), style));
        fresh = false;
    }
    if !fresh {
        out.push(Line::from(current));
    }
    out
}

/// Words with the spaces behind them, and their styles.
fn words<'a>(line: &'a Line<'static>) -> impl Iterator<Item = (&'a str, Style)> {
    line.spans.iter().flat_map(|span| {
        span.content
            .split_inclusive(' ')
            .map(|word| (word, span.style))
    })
}

/// As many graphemes as fit, at least one.
fn head(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let mut end = 0;
    for g in Span::raw(text).styled_graphemes(Style::new()) {
        let w = width(g.symbol);
        if end > 0 && used + w > columns {
            break;
        }
        used += w;
        end += g.symbol.len();
    }
    if end == 0 { text } else { &text[..end] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|l| l.to_string()).collect()
    }

    #[test]
    fn lines_break_at_spaces_and_long_words_anywhere() {
        let line = Line::from(vec![
            text("agent-7 waits for its "),
            ink("client", Ink::Bad),
        ]);
        let parts = wrap(&line, 12, 2);
        assert_eq!(plain(&parts), ["agent-7 ", "  waits for ", "  its client"]);
        let parts = wrap(&Line::from(text("abcdefghijklmno")), 10, 0);
        assert_eq!(plain(&parts), ["abcdefghij", "klmno"]);
    }

    #[test]
    fn the_right_side_gives_way() {
        let line = spread(
            vec![text("left")],
            &[vec![text("long right")], vec![text("r")]],
            10,
        );
        assert_eq!(line.to_string(), "left     r");
        let line = spread(vec![text("left")], &[vec![text("right")]], 10);
        assert_eq!(line.to_string(), "left");
    }

    #[test]
    fn a_fitted_line_shows_that_it_goes_on() {
        let line = Line::from(vec![text("abcd"), text("efgh")]);
        assert_eq!(fit(line.clone(), 4).to_string(), "abc…");
        assert_eq!(fit(line, 6).to_string(), "abcde…");
    }

    proptest! {
        #[test]
        fn no_part_is_too_wide(t in "[a-z会 ]{0,60}", columns in 2usize..30, indent in 0usize..6) {
            for part in wrap(&Line::from(text(&t)), columns, indent) {
                prop_assert!(width(part.to_string().trim_end()) <= columns, "{part:?}");
            }
        }

        #[test]
        fn a_pad_is_exact(t in "[a-z会]{0,20}", columns in 0usize..30) {
            prop_assert_eq!(width(&pad(&t, columns, Align::Right)), columns);
        }
    }
}
