//! Untrusted text: task rows, queries, names and error messages come from anywhere. Control, bidi and
//! zero-width characters never reach the terminal, a file's title or the clipboard.

/// The text without characters that could move the cursor, reorder what is read, or hide.
/// Line breaks and tabs become a space.
pub fn clean(text: &str) -> String {
    text.chars().filter_map(visible).collect()
}

/// As [`clean`], but keeps line breaks and tabs (as two spaces): for whole payloads and errors.
pub fn clean_lines(text: &str) -> Vec<String> {
    text.lines()
        .map(|line| clean(&line.replace('\t', "  ")))
        .collect()
}

fn visible(c: char) -> Option<char> {
    match c {
        '\n' | '\r' | '\t' => Some(' '),
        c if forbidden(c) => None,
        c => Some(c),
    }
}

/// Controls, bidi marks, zero-width and invisible characters, variation selectors and tags: they never reach a
/// terminal.
pub fn forbidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// `5,012`.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_hides_or_moves_survives() {
        let nasty = "a\u{1b}[2Jb\u{202e}c\u{200b}d\u{9b}1me\u{7f}f\u{feff}g\nh\u{e0041}";
        assert_eq!(clean(nasty), "a[2Jbcd1mefg h");
        assert_eq!(clean("日本 é 🦀"), "日本 é 🦀");
    }

    proptest::proptest! {
        #[test]
        fn cleaned_text_has_no_control_characters(text in "\\PC*|.*") {
            let cleaned = clean(&text);
            proptest::prop_assert!(cleaned.chars().all(|c| !c.is_control()));
            proptest::prop_assert_eq!(clean(&cleaned), cleaned.clone());
        }
    }
}
