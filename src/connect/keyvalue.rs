//! `key=value` strings, taken apart exactly as libpq does it (`conninfo_parse`). No error repeats a word of the string, which
//! could be a piece of a password.

use anyhow::{Result, bail, ensure};
use std::iter::Peekable;
use std::str::Chars;

/// The keywords and values of a string.
pub fn pairs(text: &str) -> Result<Vec<(String, String)>> {
    let mut rest = text.chars().peekable();
    let mut found = Vec::new();
    loop {
        skip(&mut rest);
        if rest.peek().is_none() {
            return Ok(found);
        }
        let mut key = String::new();
        while let Some(c) = rest.next_if(|c| *c != '=' && !c.is_ascii_whitespace()) {
            key.push(c);
        }
        skip(&mut rest);
        ensure!(
            rest.next_if_eq(&'=').is_some(),
            "the connection string has a word without =: write key=value pairs, and a value with spaces in 'quotes'"
        );
        skip(&mut rest);
        let value = match rest.next_if_eq(&'\'') {
            Some(_) => quoted(&mut rest)?,
            None => bare(&mut rest),
        };
        found.push((key, value));
    }
}

fn skip(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(char::is_ascii_whitespace).is_some() {}
}

fn bare(rest: &mut Peekable<Chars<'_>>) -> String {
    let mut value = String::new();
    while let Some(c) = rest.next_if(|c| !c.is_ascii_whitespace()) {
        match c {
            // a backslash at the very end stands for nothing
            '\\' => value.extend(rest.next()),
            c => value.push(c),
        }
    }
    value
}

fn quoted(rest: &mut Peekable<Chars<'_>>) -> Result<String> {
    let mut value = String::new();
    loop {
        match rest.next() {
            Some('\'') => return Ok(value),
            Some('\\') => value.extend(rest.next()),
            Some(c) => value.push(c),
            None => bail!("the connection string has a quote that is not closed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        for (text, expected) in [
            ("", vec![]),
            ("  ", vec![]),
            ("host=h", vec![("host", "h")]),
            (" host = h  port=1", vec![("host", "h"), ("port", "1")]),
            ("host=", vec![("host", "")]),
            ("host='' port=2", vec![("host", ""), ("port", "2")]),
            ("a='b c' d=e", vec![("a", "b c"), ("d", "e")]),
            (r"a='it\'s' b=c\ d\\", vec![("a", "it's"), ("b", r"c d\")]),
            ("a=b=c", vec![("a", "b=c")]),
            ("a=b'c", vec![("a", "b'c")]),
            (r"a=b\", vec![("a", "b")]),
            // a quoted value ends at its quote, whatever follows
            ("a='b'c=d", vec![("a", "b"), ("c", "d")]),
            // = after blanks takes the next word
            ("a= b=c", vec![("a", "b=c")]),
        ] {
            let found = pairs(text).expect(text);
            let found: Vec<(&str, &str)> = found.iter().map(|(k, v)| (&**k, &**v)).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_repeating_it() {
        for text in ["password=my s3cret", "s3cret", "password='s3cret"] {
            let error = pairs(text).expect_err(text).to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_quoted_comes_back(word in ".{0,20}") {
            let quoted = word.replace('\\', r"\\").replace('\'', r"\'");
            let found = pairs(&format!("user=u password='{quoted}'")).expect("reads");
            proptest::prop_assert_eq!(&found[1], &("password".to_string(), word));
        }
    }
}
