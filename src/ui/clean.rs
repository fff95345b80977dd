//! Text that comes from tasks, queries and names is untrusted: here it loses everything that could move the
//! cursor, turn the reading direction or hide between letters. Every text drawn passes through [`clean`].

use ratatui::style::Style;
use ratatui::text::Span;
use std::borrow::Cow;
use unicode_width::UnicodeWidthStr;

/// Combining marks kept on one letter; more of them would climb over the neighbouring lines.
const MARKS: usize = 2;

/// One line of harmless text: line breaks become ` ⏎ `, tabs a space, invisible and direction-changing
/// characters vanish.
pub fn clean(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut marks = 0;
    let mut chars = text.trim_end_matches(['\n', '\r']).chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\r' if chars.peek() == Some(&'\n') => {}
            '\n' | '\r' | '\u{0b}' | '\u{0c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => {
                while chars.next_if(|c| c.is_whitespace()).is_some() {}
                out.push_str(" ⏎ ");
            }
            '\t' => out.push(' '),
            c if crate::text::forbidden(c) => continue,
            c if c != ' ' && c.to_string().width() == 0 => {
                if out.is_empty() || marks == MARKS {
                    continue;
                }
                marks += 1;
                out.push(c);
                continue;
            }
            c => out.push(c),
        }
        marks = 0;
    }
    Cow::Owned(out)
}

/// Several lines of harmless text: for payloads and errors, whose line breaks are worth keeping.
pub fn lines(text: &str) -> impl Iterator<Item = Cow<'_, str>> {
    text.split('\n').map(|l| clean(l.trim_end_matches('\r')))
}

/// Columns that a text takes, counted as the screen counts them: grapheme by grapheme.
pub fn width(text: &str) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    Span::raw(text)
        .styled_graphemes(Style::new())
        .map(|g| g.symbol.width())
        .sum()
}

/// The text, or as much of it as fits with a `…` behind it.
pub fn cut(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    if columns == 0 {
        return Cow::Borrowed("");
    }
    let mut out = String::new();
    let mut used = 0;
    for g in Span::raw(text).styled_graphemes(Style::new()) {
        let w = g.symbol.width();
        if used + w > columns - 1 {
            break;
        }
        used += w;
        out.push_str(g.symbol);
    }
    out.push('…');
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_could_hurt_is_gone() {
        assert_eq!(clean("a\u{1b}[31mred\u{7}"), "a[31mred");
        assert_eq!(clean("user\u{202e}gpj.exe\u{200b}"), "usergpj.exe");
        assert_eq!(clean("one\r\n  two\nthree\n"), "one ⏎ two ⏎ three");
        assert_eq!(clean("a\tb\u{9b}c\u{85}d"), "a bc ⏎ d");
        assert_eq!(clean("\u{e0041}\u{feff}x\u{fe0f}"), "x");
        assert_eq!(clean("größe 会议 👍"), "größe 会议 👍");
        assert_eq!(
            clean("Z\u{301}\u{302}\u{303}\u{304}a\u{301}"),
            "Z\u{301}\u{302}a\u{301}"
        );
    }

    #[test]
    fn a_cut_says_so_and_fits() {
        assert_eq!(cut("parse_contract", 8), "parse_c…");
        assert_eq!(cut("会议会议", 5), "会议…");
        assert_eq!(cut("会议会议", 4), "会…");
        assert_eq!(cut("ab", 2), "ab");
        assert_eq!(cut("ab", 0), "");
    }

    proptest! {
        #[test]
        fn no_text_survives_uncleaned_or_too_wide(text in any::<String>(), columns in 0usize..40) {
            let cleaned = clean(&text).into_owned();
            prop_assert!(!cleaned.chars().any(crate::text::forbidden));
            prop_assert_eq!(clean(&cleaned).trim_end().to_string(), cleaned.trim_end());
            prop_assert!(width(&cut(&cleaned, columns)) <= columns);
        }

        #[test]
        fn nasty_text_survives_neither(text in "[\\x00-\\x20\u{80}-\u{a0}\u{200b}-\u{200f}\u{202a}-\u{202e}\u{2066}-\u{2069}\u{300}-\u{310}a\u{4f1a}\u{1f44d}]{0,40}", columns in 0usize..40) {
            let cleaned = clean(&text);
            prop_assert!(!cleaned.chars().any(crate::text::forbidden));
            prop_assert!(width(&cut(&cleaned, columns)) <= columns);
        }
    }
}
