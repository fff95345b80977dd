//! The process between the program and its private Postgres, so that nothing stays behind.
//!
//! The program starts itself once more with the hidden argument [`ARGUMENT`] and keeps that process's
//! standard input open. However the program ends, also by `kill -9`, the kernel closes the pipe; the
//! supervisor then ends Postgres, removes the directory and goes. Should the supervisor be killed, the
//! kernel ends Postgres on Linux and the next supervisor sweeps the directory.
//!
//! The pipe carries lines. To the program: `root PATH`, `say TEXT`, then `ready PID` or `error TEXT`. To the
//! supervisor: `stop fast|immediate`, answered by `stopped`, and `start`, answered like the first start.

use std::fmt::Write as _;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::Mode;

use super::private::{Account, Private, sweep};
use super::server::{PORT, Server, Stop};

/// The first argument that makes this binary a supervisor: then `DIR [NAME=VALUE]...`.
pub const ARGUMENT: &str = "__pg-supervisor";

/// Fast rather than safe: this data is worth nothing after the run. Large waits of the server for the
/// disk would only blur what the demo wants to show.
const DEFAULTS: &[(&str, &str)] = &[
    ("listen_addresses", ""),
    ("max_connections", "100"),
    ("shared_buffers", "16MB"),
    ("fsync", "off"),
    ("synchronous_commit", "off"),
    ("full_page_writes", "off"),
    ("wal_level", "minimal"),
    ("max_wal_senders", "0"),
    ("max_wal_size", "128MB"),
    ("min_wal_size", "32MB"),
    // Files in the data directory: neither a small /dev/shm nor a kill can do harm.
    ("dynamic_shared_memory_type", "mmap"),
    ("track_activities", "on"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    ("log_checkpoints", "off"),
    ("logging_collector", "off"),
];

/// Runs the supervisor with this process's arguments until its standard input ends.
pub fn main() -> ExitCode {
    // A terminal's ^C and hang-up are for the program; from it we learn by the pipe.
    let _ = nix::unistd::setsid();
    let held = [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGPIPE,
    ];
    let _ = SigSet::from_iter(held).thread_block();
    let _ = std::env::set_current_dir("/");
    // The server's user must be able to read what we write for it.
    nix::sys::stat::umask(Mode::from_bits_truncate(0o022));
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_child_subreaper(true);

    let mut arguments = std::env::args_os().skip(2);
    let bin = PathBuf::from(arguments.next().unwrap_or_default());
    let settings: Vec<(String, String)> = arguments
        .filter_map(|argument| {
            let (name, value) = argument.to_str()?.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        })
        .collect();

    let parent = Parent::listen();
    // Beside our own start, since a tree may take its time.
    std::thread::spawn(sweep);
    match Account::for_server().and_then(|account| {
        let private = Private::create(account.as_ref()).map_err(|error| error.to_string())?;
        Ok((account, private))
    }) {
        Ok((account, private)) => {
            let mut server = Server::new(bin, private.path(), account.as_ref());
            let end = serve(&parent, private.path(), &mut server, &settings);
            server.stop(true);
            private.remove();
            // After the removal: who hears of the failure finds nothing left.
            if let Stop::Failed(text) = end {
                parent.tell("error", &text);
                return ExitCode::FAILURE;
            }
            ExitCode::SUCCESS
        }
        Err(text) => {
            parent.tell("error", &text);
            ExitCode::FAILURE
        }
    }
}

fn serve(parent: &Parent, root: &Path, server: &mut Server, settings: &[(String, String)]) -> Stop {
    parent.tell("root", &root.display().to_string());
    let mut gone = |wait| parent.gone(wait);
    let started = server
        .init(settings, &mut gone)
        .and_then(|()| server.start(&mut gone));
    match started {
        Ok(pid) => parent.tell("ready", &pid.to_string()),
        Err(end) => return end,
    }
    while let Some(order) = parent.next() {
        match order.as_str() {
            "stop fast" | "stop immediate" => {
                server.stop(order.ends_with("immediate"));
                parent.tell("stopped", "");
            }
            "start" => {
                server.stop(false);
                match server.start(&mut |wait| parent.gone(wait)) {
                    Ok(pid) => parent.tell("ready", &pid.to_string()),
                    Err(Stop::ParentGone) => return Stop::ParentGone,
                    Err(Stop::Failed(text)) => parent.tell("error", &text),
                }
            }
            _ => parent.tell("error", "unknown order"),
        }
    }
    Stop::ParentGone
}

/// The program at the other end of the pipes.
struct Parent {
    lines: Receiver<String>,
}

impl Parent {
    fn listen() -> Self {
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self { lines }
    }

    fn next(&self) -> Option<String> {
        self.lines.recv().ok()
    }

    /// Waits, and tells whether the parent is gone. Orders are only given between answers, so that
    /// one that comes now is nobody's.
    fn gone(&self, wait: Duration) -> bool {
        matches!(
            self.lines.recv_timeout(wait),
            Err(RecvTimeoutError::Disconnected)
        )
    }

    /// A dead parent's pipe is no reason to stop before the cleaning.
    fn tell(&self, what: &str, text: &str) {
        let text = text.replace('\n', " ");
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{what} {text}").and_then(|()| out.flush());
    }
}

/// The server's configuration file: ours, then what was asked for, which wins.
pub(super) fn configuration(root: &Path, settings: &[(String, String)]) -> String {
    let socket = root.join("s").display().to_string();
    let port = PORT.to_string();
    let data = root.join("data");
    let files = ["pg_hba.conf", "pg_ident.conf"].map(|name| data.join(name).display().to_string());
    let fixed = [
        ("unix_socket_directories", socket.as_str()),
        ("port", &port),
        ("hba_file", &files[0]),
        ("ident_file", &files[1]),
    ];
    let asked = settings
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let mut text = String::new();
    for (name, value) in DEFAULTS.iter().copied().chain(asked).chain(fixed) {
        let quoted = value.replace('\\', "\\\\").replace('\'', "''");
        // Writing into a String cannot fail.
        let _ = writeln!(text, "{name} = '{quoted}'");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_asked_for_comes_after_ours_and_is_quoted() {
        let asked = [
            ("max_connections".to_owned(), "7".to_owned()),
            ("x.y".to_owned(), r"it's \".to_owned()),
        ];
        let text = configuration(Path::new("/tmp/r"), &asked);
        let position = |line: &str| {
            text.find(line)
                .unwrap_or_else(|| panic!("{line} is not in {text}"))
        };
        assert!(position("max_connections = '7'\n") > position("max_connections = '100'\n"));
        position("x.y = 'it''s \\\\'\n");
        position("unix_socket_directories = '/tmp/r/s'\n");
    }
}
