//! SQL that a person is to copy from a screen. What is shown is cleaned, which would make another name of one with a line
//! break or a hidden character in it: such a name is written with escapes, so that what is read is what runs.

use crate::text::forbidden;
use std::fmt::Write;

/// A name in what is shown of a statement: bare where Postgres reads it so, else quoted.
pub fn name(name: &str) -> String {
    let starts = |c: char| c.is_ascii_lowercase() || c == '_';
    let goes_on = |c: char| starts(c) || c.is_ascii_digit();
    match name.starts_with(starts) && name.chars().all(goes_on) {
        true => name.into(),
        false => copyable(&format!("\"{}\"", name.replace('"', "\"\""))),
    }
}

/// The statement with the same meaning and nothing in its quotes that cleaning would change: `"on call"` with a line break
/// becomes `U&"on\000acall"`.
pub fn copyable(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some(at) = rest.find(['"', '\'']) {
        let (before, from) = rest.split_at(at);
        let Some(len) = quoted(from, before.ends_with('E')) else {
            break;
        };
        let (text, after) = from.split_at(len);
        out.push_str(before);
        match (text.contains(changes), text.starts_with('"')) {
            (false, _) => out.push_str(text),
            (true, true) => out.push_str(&format!("U&{}", escaped(text, true, "\\+"))),
            (true, false) if before.ends_with('E') => out.push_str(&escaped(text, false, "\\U00")),
            (true, false) => out.push_str(&format!("E{}", escaped(text, true, "\\U00"))),
        }
        rest = after;
    }
    out + rest
}

/// Would cleaning change it?
fn changes(c: char) -> bool {
    c.is_control() || forbidden(c)
}

/// Bytes of what is quoted at the beginning of the text, with its quotes; `None` where it has no end.
fn quoted(text: &str, backslashes: bool) -> Option<usize> {
    let quote = text.chars().next()?;
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' && backslashes {
            chars.next();
        } else if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
            return Some(at + 1);
        }
    }
    None
}

/// With escapes of six digits behind `wide`, or of four; `plain` where a backslash is none yet.
fn escaped(text: &str, plain: bool, wide: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let four = if wide.ends_with('+') { "\\" } else { "\\u" };
    for c in text.chars() {
        // writing to a String cannot fail
        let _ = match (u32::from(c), changes(c)) {
            (n @ 0..=0xffff, true) => write!(out, "{four}{n:04x}"),
            (n, true) => write!(out, "{wide}{n:06x}"),
            (_, false) if c == '\\' && plain => out.write_str("\\\\"),
            (_, false) => out.write_char(c),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_harmless_stays_as_it_is() {
        for sql in [
            "GRANT \"agent \"\" queue\\\" TO \"it's\"",
            "ROLLBACK PREPARED 'order ''7''';  -- or not, if it isn't wanted",
            "SELECT E'a\\'b\\\\' || 'c'",
            "SELECT \"open",
        ] {
            assert_eq!(copyable(sql), sql);
        }
    }

    #[test]
    fn names_and_literals_that_cleaning_would_change_are_escaped() {
        let odd = "GRANT \"on\\\n\"\"call\u{202e}\u{e0041}\" TO x";
        let shown = "GRANT U&\"on\\\\\\000a\"\"call\\202e\\+0e0041\" TO x";
        assert_eq!(copyable(odd), shown);
        assert_eq!(copyable("DO 'a''\tb\\c'"), "DO E'a''\\u0009b\\\\c'");
        let escape = "DO E'a\\'\u{1b}\\\\\u{e0041}' OR \"\u{1b}\"";
        let shown = "DO E'a\\'\\u001b\\\\\\U000e0041' OR U&\"\\001b\"";
        assert_eq!(copyable(escape), shown);
    }

    #[test]
    fn a_name_is_quoted_where_it_would_be_read_otherwise() {
        assert_eq!(name("on_call7"), "on_call7");
        assert_eq!(name("On Call"), "\"On Call\"");
        assert_eq!(name("7"), "\"7\"");
        assert_eq!(name("a\nb"), "U&\"a\\000ab\"");
        assert_eq!(name(""), "\"\"");
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_left_to_clean(text in ".*") {
            let shown = name(&text);
            proptest::prop_assert_eq!(crate::text::clean(&shown), shown.clone());
        }
    }
}
