//! Secrets in payloads, results and errors: values whose key says so are never shown. Works on text that is cut in the
//! middle, so it scans instead of parsing.

/// What stands in place of a value.
pub const HIDDEN: &str = "***";

/// The text with the values of keys that contain one of `patterns` (any case) replaced: JSON members, `key=value`,
/// `Header: value`, and passwords in URLs.
pub fn redact(text: &str, patterns: &[String]) -> String {
    hide(text, patterns).0
}

/// The values that [`redact`] takes out of a text, as they stand there.
pub fn secrets<'t>(text: &'t str, patterns: &[String]) -> Vec<&'t str> {
    hide(text, patterns).1
}

fn hide<'t>(text: &'t str, patterns: &[String]) -> (String, Vec<&'t str>) {
    let patterns: Vec<String> = patterns
        .iter()
        .map(|p| p.to_lowercase())
        .filter(|p| !p.is_empty())
        .collect();
    let mut out = String::with_capacity(text.len());
    let mut hidden = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let len = word(rest);
        if len == 0 {
            let skipped = url_password(rest).filter(|_| !patterns.is_empty());
            if let Some((before, end)) = skipped {
                out.push_str(&rest[..before]);
                out.push_str(HIDDEN);
                hidden.push(&rest[before..end]);
                at += end;
            } else {
                let c = rest.chars().next().map_or(1, char::len_utf8);
                out.push_str(&rest[..c]);
                at += c;
            }
            continue;
        }
        let key = &rest[..len];
        out.push_str(key);
        at += len;
        let lower = key.to_lowercase();
        if !patterns.iter().any(|p| lower.contains(p.as_str())) {
            continue;
        }
        let rest = &text[at..];
        if let Some((value, end)) = value(rest) {
            out.push_str(&rest[..value]);
            out.push_str(HIDDEN);
            hidden.push(&rest[value..end]);
            at += end;
        }
    }
    (out, hidden)
}

fn word(text: &str) -> usize {
    text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-'))
        .unwrap_or(text.len())
}

fn blanks(text: &str) -> usize {
    text.find(|c: char| !matches!(c, ' ' | '\t' | '\\' | '"' | '\''))
        .unwrap_or(text.len())
}

/// Where the value after a key begins and ends; `None` where the word is no key.
fn value(rest: &str) -> Option<(usize, usize)> {
    let mut at = blanks(rest);
    let sign = rest[at..]
        .chars()
        .next()
        .filter(|c| matches!(c, ':' | '='))?;
    at += 1;
    if rest[at..].starts_with('>') {
        at += 1;
    }
    at += rest[at..]
        .find(|c: char| c != ' ' && c != '\t')
        .unwrap_or(rest.len() - at);
    let value = &rest[at..];
    let first = value.chars().next()?;
    let end = match first {
        '"' | '\'' => string(value, first),
        '\\' if value[1..].starts_with('"') => {
            value[2..].find("\\\"").map_or(value.len(), |e| e + 4)
        }
        '{' | '[' => nested(value),
        _ if sign == '=' => value
            .find(|c: char| c.is_whitespace() || ",;&\"')}]".contains(c))
            .unwrap_or(value.len()),
        _ => value
            .find(['\n', ',', ';', '}', ']', '"'])
            .unwrap_or(value.len()),
    };
    (end > 0).then_some((at, at + end))
}

fn string(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return i + 1;
        }
    }
    text.len()
}

fn nested(text: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < text.len() {
        let c = text[at..].chars().next().unwrap_or(' ');
        match c {
            '"' => {
                at += string(&text[at..], '"');
                continue;
            }
            '{' | '[' => depth += 1,
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += c.len_utf8();
    }
    text.len()
}

/// `://user:password@`: up to the password, and past it.
fn url_password(text: &str) -> Option<(usize, usize)> {
    let rest = text.strip_prefix("://")?;
    let end = rest
        .find(|c: char| c.is_whitespace() || "/?\"'".contains(c))
        .unwrap_or(rest.len());
    let at = rest[..end].rfind('@')?;
    let colon = rest[..at].find(':')?;
    Some((3 + colon + 1, 3 + at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_secret_keys_are_hidden() {
        let keys = ["password", "api_key", "authorization", "secret"].map(String::from);
        for (text, expected) in [
            (
                r#"{"password": "a\"b", "x": 1}"#,
                r#"{"password": ***, "x": 1}"#,
            ),
            (r#"{"db_PASSWORD":"cut in the mid"#, r#"{"db_PASSWORD":***"#),
            (
                r#"{"secrets": {"a": ["}"], "b": 2}, "c": 3}"#,
                r#"{"secrets": ***, "c": 3}"#,
            ),
            (r#"{"api_key": 123, "c": 3}"#, r#"{"api_key": ***, "c": 3}"#),
            (
                "login failed: password=hunter2 for u",
                "login failed: password=*** for u",
            ),
            (
                "Authorization: Bearer abc.def\nnext",
                "Authorization: ***\nnext",
            ),
            ("postgres://u:p@ss@host/db", "postgres://u:***@host/db"),
            (
                r#""{\"password\": \"x\", \"y\": 1}""#,
                r#""{\"password\": ***, \"y\": 1}""#,
            ),
            ("the password was wrong", "the password was wrong"),
            ("é password='ü' é", "é password=*** é"),
        ] {
            assert_eq!(redact(text, &keys), expected);
        }
        assert_eq!(redact("password=x", &[]), "password=x");
        let text = "postgres://u:p@ss@host/db, \"token\": 'abc', n=1";
        assert_eq!(secrets(text, &["token".into()]), ["p@ss", "'abc'"]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_survives(text in "\\PC*|[\"\\\\{}:= a-z]*password[\"\\\\{}:= a-z@/]*") {
            let _ = redact(&text, &["password".to_string()]);
        }
    }
}
