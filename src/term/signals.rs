//! The signals that end or stop us. SIGINT arrives as a key while the terminal is raw.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// SIGTERM or SIGINT: restore the terminal, say it, end.
    End,
    /// SIGHUP: the terminal is gone; end without a word.
    HangUp,
    /// SIGTSTP from outside: as Ctrl-Z.
    Stop,
}

/// The signals we listen to.
pub struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
    tstp: Signal,
}

impl Signals {
    /// Must be called within a tokio runtime.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
            tstp: signal(SignalKind::from_raw(nix::libc::SIGTSTP))?,
        })
    }

    /// The next one.
    pub async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.term.recv() => Asked::End,
            _ = self.int.recv() => Asked::End,
            _ = self.hup.recv() => Asked::HangUp,
            _ = self.tstp.recv() => Asked::Stop,
        }
    }
}
