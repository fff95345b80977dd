//! What is printed: on stdout, where a word that is lost is an error, and on stderr, which may be gone with the terminal.

use anyhow::{Context, Result};
use nix::libc;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Nobody could have written to stdout when the program was started.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Called by the loader, before the standard library puts `/dev/null` where stdout is closed: it tells of no error then, nor where
/// stdout was opened for reading only.
#[used]
#[allow(unsafe_code, reason = "there is no later moment to see it")]
#[cfg_attr(
    target_vendor = "apple",
    unsafe(link_section = "__DATA,__mod_init_func")
)]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
static AT_START: extern "C" fn() = {
    extern "C" fn look() {
        // SAFETY: asks the kernel about a number, whatever that is; nothing of the standard library is touched but the static
        let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFL) };
        let closed = flags < 0 || flags & libc::O_ACCMODE == libc::O_RDONLY;
        CLOSED.store(closed, Ordering::Relaxed);
    }
    look
};

/// Can anything be printed at all?
///
/// # Errors
/// Where stdout was closed from the start.
pub fn check() -> Result<()> {
    all(|_| Ok(()))
}

/// Prints all of it on stdout.
///
/// # Errors
/// Where stdout is closed, full or broken. A closed pipe (`| head`) is no error.
pub fn print(text: &str) -> Result<()> {
    all(|out| out.write_all(text.as_bytes()))
}

/// Prints what was changed. It stays changed where nobody can read that, so the error says it too.
///
/// # Errors
/// As for [`print`].
pub fn done(text: &str) -> Result<()> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    print(text).with_context(|| lines.join("; "))
}

/// As [`print`], for what writes by itself.
///
/// # Errors
/// As for [`print`].
pub fn all(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut out = io::stdout();
    let written = match CLOSED.load(Ordering::Relaxed) {
        true => Err(io::Error::other(
            "it is closed: give it a file, a pipe or /dev/null",
        )),
        false => write(&mut out).and_then(|()| out.flush()),
    };
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
