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
        c if c.is_control() => None,
        // soft hyphen, Arabic letter mark, zero-width, bidi marks, embeddings, isolates, invisible operators
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => {
            None
        }
        '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' => None,
        // variation selectors, tags, Hangul fillers, blank braille: invisible, and widths differ by terminal
        '\u{fe00}'..='\u{fe0f}' | '\u{e0000}'..='\u{e0fff}' => None,
        '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{2800}' => None,
        c => Some(c),
    }
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
