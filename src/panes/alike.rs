//! Does a listed task belong to a group of failures? The server groups by an expression of its own; here only the first
//! line of an error is known, so what the expression has left must stand there in its order, as far as the line goes.

use crate::probe::failures::{KEPT, NO_TEXT};
use crate::probe::tasks::redact::HIDDEN;
use crate::ui::clean::clean;

/// May a task with this error (a first line, redacted) belong to the group of `error`?
pub fn alike(error: &str, last_error: Option<&str>) -> bool {
    let line = squeeze(&clean(last_error.unwrap_or_default()));
    if line.is_empty() || error == NO_TEXT {
        return line.is_empty() && error == NO_TEXT;
    }
    let cut = error.chars().count() + 5 >= usize::from(KEPT);
    let error = squeeze(&error.replace(HIDDEN, "#"));
    let parts: Vec<&str> = error.split('#').collect();
    let mut rest = line.as_str();
    for (n, part) in parts.iter().enumerate() {
        let last = n + 1 == parts.len() && !cut && !part.is_empty();
        let found = match (n, last) {
            (0, true) => (rest == *part).then_some(0),
            (0, false) => rest.starts_with(part).then_some(0),
            (_, true) => rest.ends_with(part).then(|| rest.len() - part.len()),
            (_, false) => rest.find(part),
        };
        match found {
            Some(at) => rest = &rest[at + part.len()..],
            None => return ends_within(rest, part, n > 0),
        }
    }
    cut || rest.is_empty() || value(rest)
}

fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Could it be one value that was taken out?
fn value(text: &str) -> bool {
    text.starts_with(['"', '\'', '`']) || !text.contains(' ')
}

/// The line ends within this part, after a value or not: the server has looked at more than a line.
fn ends_within(rest: &str, part: &str, after_value: bool) -> bool {
    let mut ends = (0..part.len()).filter(|at| part.is_char_boundary(*at));
    ends.any(|at| match rest.strip_suffix(part[..at].trim_end()) {
        Some(before) => before.is_empty() || after_value && value(before),
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::alike;

    #[test]
    fn tasks_are_told_by_what_the_server_left_of_their_errors() {
        let timeout = "timeout after # s for order #";
        for (error, line, expected) in [
            (timeout, "timeout after 31.2 s for order 48017", true),
            (timeout, "timeout  after 7 s for order 9", true),
            (timeout, "timeout after 7 s for customer 9", false),
            (timeout, "no timeout after 7 s for order 9", false),
            (timeout, "timeout after 7 s for order 9 of acme", false),
            (timeout, "", false),
            ("boom", "boom", true),
            ("boom", "boom again", false),
            ("no page # in file", "no page 3 in file 'x'", false),
            ("open # failed", "open \"my file\" failed", true),
            ("cannot open #", "cannot open \"my file\"", true),
            // only the first line is listed
            (
                "Traceback (most recent call last): File #, line #",
                "Traceback (most recent call last):",
                true,
            ),
            ("read # of # bytes at fetch", "read 3 of 9 bytes", true),
            ("read # of # at fetch", "read 3 of 9", true),
            (
                "login failed: password=***",
                "login failed: password=***",
                true,
            ),
            ("(no error text)", " ", true),
            ("(no error text)", "x", false),
        ] {
            assert_eq!(alike(error, Some(line)), expected, "{error} / {line}");
        }
        assert!(alike("(no error text)", None));
    }
}
