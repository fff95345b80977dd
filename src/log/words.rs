//! What a log may say: an error's words without what rows hold, and a statement's text without literals that are secrets.

use crate::connect::Fault;
use crate::probe::tasks::redact::HIDDEN;

/// What may be written of a fault. Messages about data ("invalid input syntax for type integer: …", SQLSTATE class 22) quote
/// it, in every language of the server: they end before that.
pub fn told(fault: &Fault) -> String {
    if let Some(words) = &fault.logged {
        return words.clone();
    }
    let quote = |c: char| c.is_numeric() || "\"':‘’“”„«»‹›「」『』".contains(c);
    match fault.message.find(quote) {
        Some(at) if fault.is("22") => fault.message[..at].to_string() + HIDDEN,
        _ => fault.message.clone(),
    }
}

/// Bytes before a literal in which a word makes it a secret.
const NEAR: usize = 40;

/// What may be written of a statement: all but literals right after a word that sounds like a secret's (one that contains
/// one of `patterns`, which are in lower case). On one line, so without comments.
pub(super) fn statement(sql: &str, patterns: &[String]) -> String {
    let mut out = String::with_capacity(sql.len());
    let (mut rest, mut near) = (sql, String::new());
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(piece(rest));
        rest = after;
        if piece.starts_with("--") {
            out.push(' ');
        } else if piece.ends_with(['\'', '$']) && piece.len() > 1 {
            match patterns.iter().any(|p| near.contains(p.as_str())) {
                true => out.push_str(HIDDEN),
                false => out.push_str(piece),
            }
            near.clear();
        } else {
            out.push_str(piece);
            near.push_str(&piece.to_lowercase());
            if near.len() > 2 * NEAR {
                near = last(&near, NEAR).to_string();
            }
        }
    }
    let words: Vec<&str> = out.split_whitespace().collect();
    words.join(" ")
}

fn last(text: &str, most: usize) -> &str {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

/// Bytes of the comment, literal, quoted name or character that a text begins with.
fn piece(text: &str) -> usize {
    let one = text.chars().next().map_or(0, char::len_utf8);
    let until = |from: usize, end: &str| {
        let found = text[from..].find(end);
        found.map_or(text.len(), |at| from + at + end.len())
    };
    match text.as_bytes() {
        [b'-', b'-', ..] => until(2, "\n"),
        [b'E' | b'e', b'\'', ..] => 1 + literal(&text[1..], true),
        [b'\'', ..] => literal(text, false),
        [b'"', ..] => until(1, "\""),
        [b'$', ..] => {
            let tag = text[1..].find(|c: char| !(c.is_alphabetic() || c == '_'));
            match tag.map(|at| at + 1) {
                Some(at) if text[at..].starts_with('$') => until(at + 1, &text[..=at]),
                _ => one,
            }
        }
        _ => one,
    }
}

/// Bytes of a literal, in which a doubled quote is one, and so is one after a backslash where `escapes`.
fn literal(text: &str, escapes: bool) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        at += match (bytes[at], bytes.get(at + 1)) {
            (b'\\', Some(_)) if escapes => 2,
            (b'\'', Some(b'\'')) => 2,
            (b'\'', _) => return at + 1,
            _ => 1,
        };
    }
    text.len()
}
