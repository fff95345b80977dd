//! What is printed: on stdout, where a word that is lost is an error, and on stderr, which may be gone with the terminal.

use anyhow::{Context, Result};
use std::io::{self, ErrorKind, Write};

/// Prints all of it on stdout.
///
/// # Errors
/// Where stdout is full or broken. A closed pipe (`| head`) is no error, and a stdout that was closed from the start is
/// `/dev/null`, as in all Rust programs.
pub fn print(text: &str) -> Result<()> {
    all(|out| out.write_all(text.as_bytes()))
}

/// Prints what was changed. It stays changed where nobody can read that, so the error says it too.
///
/// # Errors
/// As for [`print()`].
pub fn done(text: &str) -> Result<()> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    print(text).with_context(|| lines.join("; "))
}

/// As [`print()`], for what writes by itself.
///
/// # Errors
/// As for [`print()`].
pub fn all(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut out = io::stdout();
    let written = write(&mut out).and_then(|()| out.flush());
    match written {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to stdout"),
    }
}

/// A line on stderr.
pub fn say(text: &str) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// A sentence of ours on stderr, which may hold words of others.
pub fn tell(sentence: &str) {
    say(&format!("jobtop: {}", crate::text::clean(sentence)));
}
