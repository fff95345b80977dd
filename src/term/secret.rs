//! Asks for a password on the terminal itself, as psql does: without echo, wherever stdin and stdout lead. Before there is a
//! screen. A signal that ends or stops the program gives the echo back first; after a stop the question comes again.

use crate::connect::Secret;
use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::libc::c_int;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use nix::sys::termios::{InputFlags, LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;

/// What ends or stops a program, and could leave a terminal without echo.
const SIGNALS: [Signal; 5] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGTSTP,
];

/// Where signals leave their number for the one who waits for a line.
static HEARD: OnceLock<(PipeReader, PipeWriter)> = OnceLock::new();

extern "C" fn hear(signal: c_int) {
    let errno = Errno::last_raw();
    if let Some((_, pipe)) = HEARD.get() {
        // a pipe that is full has been heard of
        let _ = (&mut &*pipe).write(&[signal as u8]);
    }
    Errno::set_raw(errno);
}

fn open() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/tty")
}

/// Is there a terminal to ask on?
pub fn terminal() -> bool {
    open().is_ok()
}

/// Asks for a password. An error is one sentence; a signal ends the program as it would without this.
pub fn ask(question: &str) -> Result<Secret> {
    let tty = open().context(
        "there is no terminal to ask for the password on: use PGPASSWORD, ~/.pgpass or --password-command",
    )?;
    loop {
        let quiet = Quiet::begin(&tty)?;
        let asked = (&mut &tty).write_all(question.as_bytes());
        asked.context("cannot ask for the password")?;
        match line(&tty)? {
            Heard::Line(bytes) => return secret(bytes),
            Heard::Signal(signal) => {
                drop(quiet);
                raise(signal).context("the signal is lost")?;
            }
        }
    }
}

fn secret(mut bytes: Vec<u8>) -> Result<Secret> {
    if bytes.pop() != Some(b'\n') {
        bail!("no password was given");
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Secret::new(text)),
        Err(_) => bail!("the password is no UTF-8 text"),
    }
}

enum Heard {
    /// A line with its end, or what there is of it where the terminal says no more.
    Line(Vec<u8>),
    Signal(Signal),
}

fn line(mut tty: &File) -> Result<Heard> {
    let gone = "the terminal is gone";
    let (pipe, _) = HEARD.get().context(gone)?;
    let mut line = Vec::new();
    loop {
        let mut fds = [pipe.as_fd(), tty.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            ready => ready.context(gone)?,
        };
        let mut buffer = [0; 4096];
        if fds[0].any() == Some(true) {
            let n = (&mut &*pipe).read(&mut buffer[..1]).context(gone)?;
            let signal = Signal::try_from(c_int::from(buffer[..n].first().copied().unwrap_or(0)));
            return Ok(Heard::Signal(signal.context(gone)?));
        }
        let n = tty.read(&mut buffer).context(gone)?;
        line.extend_from_slice(&buffer[..n]);
        if n == 0 || line.ends_with(b"\n") {
            return Ok(Heard::Line(line));
        }
    }
}

/// The terminal without echo, and our ear for signals; both as before when dropped.
struct Quiet<'a> {
    tty: &'a File,
    flags: Termios,
    actions: Vec<(Signal, SigAction)>,
}

impl<'a> Quiet<'a> {
    fn begin(tty: &'a File) -> Result<Self> {
        let unable = "the terminal cannot hide a password";
        if HEARD.get().is_none() {
            // somebody else's pipe would do as well
            let _ = HEARD.set(io::pipe().context(unable)?);
        }
        let flags = tcgetattr(tty).context(unable)?;
        let mut quiet = Self {
            tty,
            flags: flags.clone(),
            actions: Vec::new(),
        };
        for signal in SIGNALS {
            let before = act(
                signal,
                &SigAction::new(
                    SigHandler::Handler(hear),
                    SaFlags::SA_RESTART,
                    SigSet::empty(),
                ),
            );
            quiet.actions.push((signal, before.context(unable)?));
        }
        // what is ignored (by nohup) stays so
        quiet.actions.retain(|(signal, before)| {
            let ignored = before.handler() == SigHandler::SigIgn;
            !(ignored && act(*signal, before).is_ok())
        });
        let mut hidden = flags;
        hidden.local_flags.remove(LocalFlags::ECHO);
        // a program that was killed may have left them off
        hidden
            .local_flags
            .insert(LocalFlags::ICANON | LocalFlags::ISIG);
        hidden.input_flags.insert(InputFlags::ICRNL);
        // what was typed before the question is no answer
        tcsetattr(tty, SetArg::TCSAFLUSH, &hidden).context(unable)?;
        Ok(quiet)
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        // there is nothing to do where the terminal is gone
        let _ = tcsetattr(self.tty, SetArg::TCSAFLUSH, &self.flags);
        let mut tty = self.tty;
        let _ = tty.write_all(b"\n");
        for (signal, before) in &self.actions {
            let _ = act(*signal, before);
        }
    }
}

#[allow(
    unsafe_code,
    reason = "there is no other way to get a signal's earlier action back"
)]
fn act(signal: Signal, action: &SigAction) -> nix::Result<SigAction> {
    // SAFETY: `hear` writes to a pipe and keeps errno; every other action was in force before
    unsafe { sigaction(signal, action) }
}
