//! The signals that end or stop us. SIGINT and SIGQUIT arrive as keys while the terminal is raw: here they come from `kill`.

use nix::sys::signal::Signal;
use std::future::poll_fn;
use std::task::Poll;
use tokio::signal::unix::{Signal as Heard, SignalKind, signal};

/// Those that end a program which does not listen, and that people or their tools send; it would leave the terminal raw.
const ENDING: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGALRM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGXCPU,
];

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Restore the terminal, say it, end.
    End(Signal),
    /// SIGHUP: the terminal is gone; end without a word.
    HangUp,
    /// SIGTSTP from outside: as Ctrl-Z.
    Stop,
}

/// The signals we listen to.
pub struct Signals(Vec<(Asked, Heard)>);

impl Signals {
    /// Must be called within a tokio runtime.
    pub fn listen() -> std::io::Result<Self> {
        let ending = ENDING.map(|s| (s, Asked::End(s)));
        let others = [
            (Signal::SIGHUP, Asked::HangUp),
            (Signal::SIGTSTP, Asked::Stop),
        ];
        let hear = |(number, asked)| {
            signal(SignalKind::from_raw(number as i32)).map(|heard| (asked, heard))
        };
        let all = ending.into_iter().chain(others).map(hear);
        Ok(Self(all.collect::<Result<_, _>>()?))
    }

    /// The next one.
    pub async fn next(&mut self) -> Asked {
        poll_fn(|cx| {
            let mut all = self.0.iter_mut();
            let came =
                all.find_map(|(asked, heard)| heard.poll_recv(cx).is_ready().then_some(*asked));
            came.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
