//! SQL with blanks: `{name}` is a quoted catalogue identifier, `{name:literal}` a quoted literal, `:name` a typed
//! parameter. Blanks inside quotes, comments and dollar quotes are text like any other, so that `'{}'::jsonb` and
//! `'HH24:MI'` mean what they say.

use std::ops::Range;

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// SQL as it stands.
    Text(&'a str),
    /// `{name}` or `{name:how}`.
    Blank {
        /// Which name.
        name: &'a str,
        /// `literal`, `type`, `exists`, or nothing for an identifier or expression.
        how: Option<&'a str>,
        /// Where in the template.
        at: usize,
    },
    /// `:name`.
    Param {
        /// Which parameter.
        name: &'a str,
        /// Where in the template.
        at: usize,
    },
}

fn word(text: &str) -> usize {
    let mut end = 0;
    for (i, c) in text.char_indices() {
        if !(c == '_' || c.is_ascii_lowercase() || (i > 0 && c.is_ascii_digit())) {
            break;
        }
        end = i + 1;
    }
    end
}

/// Where a quoted thing that starts here ends; `None` when nothing quoted starts here.
fn quoted(sql: &str, from: usize) -> Option<Range<usize>> {
    let rest = &sql[from..];
    let bytes = rest.as_bytes();
    let until = |skip: usize, end: &str| {
        rest[skip..]
            .find(end)
            .map_or(rest.len(), |i| skip + i + end.len())
    };
    let end = match bytes.first()? {
        b'\'' => {
            let before = &sql.as_bytes()[..from];
            let escapes = matches!(before.last(), Some(b'e' | b'E'))
                && !before
                    .len()
                    .checked_sub(2)
                    .is_some_and(|i| before[i].is_ascii_alphanumeric() || before[i] == b'_');
            let mut i = 1;
            while i < bytes.len() && bytes[i] != b'\'' {
                i += if escapes && bytes[i] == b'\\' { 2 } else { 1 };
            }
            (i + 1).min(rest.len())
        }
        b'"' => until(1, "\""),
        b'-' if rest.starts_with("--") => until(2, "\n"),
        b'/' if rest.starts_with("/*") => until(2, "*/"),
        b'$' => {
            let tag = 1 + word(&rest[1..]);
            if bytes.get(tag) != Some(&b'$') {
                return None;
            }
            until(tag + 1, &rest[..=tag])
        }
        _ => return None,
    };
    Some(from..from + end)
}

/// Cuts a template at its blanks and parameters.
pub fn pieces(sql: &str) -> Vec<Piece<'_>> {
    let mut out = Vec::new();
    let (mut begun, mut at) = (0, 0);
    while at < sql.len() {
        // whatever ends the text before it begins with one of these
        if !b"'\"-/${:".contains(&sql.as_bytes()[at]) {
            at += 1;
            continue;
        }
        if let Some(range) = quoted(sql, at) {
            at = range.end;
            continue;
        }
        let rest = &sql[at..];
        if rest.starts_with("::") {
            at += 2;
            continue;
        }
        let (piece, len) = if let Some(rest) = rest.strip_prefix('{') {
            let name = word(rest);
            let tail = &rest[name..];
            let how = tail.strip_prefix(':').map_or(0, |t| 1 + word(t));
            if name > 0 && tail[how..].starts_with('}') && how != 1 {
                let how_text = (how > 1).then(|| &tail[1..how]);
                let blank = Piece::Blank {
                    name: &rest[..name],
                    how: how_text,
                    at,
                };
                (Some(blank), name + how + 2)
            } else {
                (None, 1)
            }
        } else if let Some(rest) = rest.strip_prefix(':') {
            match word(rest) {
                0 => (None, 1),
                n => (
                    Some(Piece::Param {
                        name: &rest[..n],
                        at,
                    }),
                    n + 1,
                ),
            }
        } else {
            (None, 1)
        };
        if let Some(piece) = piece {
            if begun < at {
                out.push(Piece::Text(&sql[begun..at]));
            }
            out.push(piece);
            begun = at + len;
        }
        at += len;
    }
    if begun < sql.len() {
        out.push(Piece::Text(&sql[begun..]));
    }
    out
}

/// Fills the blanks; parameters stay as they are. `None` from `fill` is an unknown blank, returned as the error.
pub fn expand(
    sql: &str,
    fill: &dyn Fn(&str, Option<&str>) -> Option<String>,
) -> Result<String, String> {
    let mut out = String::with_capacity(sql.len() + 64);
    for piece in pieces(sql) {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Blank { name, how, .. } => match fill(name, how) {
                Some(text) => out.push_str(&text),
                None => {
                    let how = how.map(|h| format!(":{h}")).unwrap_or_default();
                    return Err(format!("{{{name}{how}}} is not known"));
                }
            },
            Piece::Param { name, .. } => {
                out.push(':');
                out.push_str(name);
            }
        }
    }
    Ok(out)
}

/// A quoted identifier.
pub fn ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A quoted literal, whatever `standard_conforming_strings` says.
pub fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if text.contains('\\') {
        format!("E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(sql: &str) -> String {
        let show = |p: &Piece<'_>| match p {
            Piece::Text(t) => t.to_string(),
            Piece::Blank { name, how, .. } => format!("<{name}|{}>", how.unwrap_or("-")),
            Piece::Param { name, .. } => format!("<:{name}>"),
        };
        pieces(sql).iter().map(show).collect()
    }

    #[test]
    fn blanks_are_found_and_quotes_left_alone() {
        for (sql, expected) in [
            ("{a}.{b} x", "<a|->.<b|-> x"),
            ("= {q:literal} AND", "= <q|literal> AND"),
            ("x::text > :since", "x::text > <:since>"),
            ("'{a} :b' || '{}'::jsonb", "'{a} :b' || '{}'::jsonb"),
            ("E'\\'{a}' {a}", "E'\\'{a}' <a|->"),
            ("'it''s {a}' {a}", "'it''s {a}' <a|->"),
            (
                "\"{a}\" -- {a}\n{a} /* :b */",
                "\"{a}\" -- {a}\n<a|-> /* :b */",
            ),
            ("$x$ {a} $x$ {a} $1", "$x$ {a} $x$ <a|-> $1"),
            ("arr[1 : 2], é{a}", "arr[1 : 2], é<a|->"),
            ("'open {a}", "'open {a}"),
        ] {
            assert_eq!(shape(sql), expected, "{sql}");
        }
    }

    #[test]
    fn names_cannot_break_out() {
        assert_eq!(ident("a\"b"), "\"a\"\"b\"");
        assert_eq!(literal("a'b\\"), "E'a''b\\\\'");
        assert_eq!(
            expand("{q}={q:literal}", &|_, how| Some(match how {
                None => ident("x"),
                _ => literal("x"),
            })),
            Ok("\"x\"='x'".into())
        );
        assert_eq!(expand("{q}", &|_, _| None), Err("{q} is not known".into()));
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_lost(sql in "\\PC*|[{}:'a\\\\$\"-]*") {
            let all: String = pieces(&sql).iter().map(|p| match p {
                Piece::Text(t) => t.to_string(),
                Piece::Blank { name, how: None, .. } => format!("{{{name}}}"),
                Piece::Blank { name, how: Some(how), .. } => format!("{{{name}:{how}}}"),
                Piece::Param { name, .. } => format!(":{name}"),
            }).collect();
            proptest::prop_assert_eq!(all, sql);
        }
    }
}
