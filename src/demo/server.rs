//! The processes of a private cluster: `initdb`, then the postmaster, and the waiting for both.
//!
//! Everything here runs in the supervisor's main thread. On Linux the kernel signals a child when the
//! *thread* that started it ends, so a server started from a worker thread would die with that thread.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, getppid};

use super::private::Account;

/// How long a server may take to end before it is killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a server may take to answer after its start.
const START_LIMIT: Duration = Duration::from_secs(60);

const TICK: Duration = Duration::from_millis(3);

/// The database superuser of a private cluster.
pub const SUPERUSER: &str = "postgres";

/// The port in the name of the socket; nothing listens on the network.
pub const PORT: u16 = 5432;

/// Why a wait ended without what it waited for.
#[derive(Debug)]
pub enum Stop {
    /// The program that wants this cluster is gone.
    ParentGone,
    /// The server failed: one line.
    Failed(String),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// One server in one private directory.
pub struct Server<'a> {
    bin: PathBuf,
    root: &'a Path,
    account: Option<&'a Account>,
    postmaster: Option<Pid>,
}

impl<'a> Server<'a> {
    /// A server that does not run yet.
    pub fn new(bin: PathBuf, root: &'a Path, account: Option<&'a Account>) -> Self {
        Self {
            bin,
            root,
            account,
            postmaster: None,
        }
    }

    /// Makes sure that the server's user can run the binaries, which may mean another place for them.
    fn reach_binaries(&mut self) -> Result<(), Stop> {
        let runs = |server: &Self, program: &str| {
            server
                .command(program)
                .arg("--version")
                .status()
                .is_ok_and(|status| status.success())
        };
        if self.account.is_none() || (runs(self, "initdb") && runs(self, "postgres")) {
            return Ok(());
        }
        self.bin = super::reach::bring(&self.bin, &self.root.join("pg"))?;
        Ok(())
    }

    /// Creates the data directory. `gone(wait)` sleeps and tells whether the parent is gone.
    pub fn init(
        &mut self,
        settings: &[(String, String)],
        gone: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<(), Stop> {
        self.reach_binaries()?;
        std::fs::write(
            self.root.join("postgresql.conf"),
            super::supervisor::configuration(self.root, settings),
        )?;
        let log = self.root.join("initdb.log");
        let mut command = self.command("initdb");
        command.args([
            "--no-sync",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "-U",
            SUPERUSER,
            "-D",
        ]);
        command
            .arg(self.root.join("data"))
            .stderr(File::create(&log)?);
        let pid = spawn(&mut command)?;
        loop {
            match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => {}
                Ok(WaitStatus::Exited(_, 0)) => return Ok(()),
                _ => return Err(Stop::Failed(format!("initdb failed: {}", complaint(&log)))),
            }
            if gone(TICK) {
                // It works through children of its own, all in its process group.
                let _ = killpg(pid, Signal::SIGKILL);
                let _ = waitpid(pid, None);
                reap_orphans();
                return Err(Stop::ParentGone);
            }
        }
    }

    /// Starts the postmaster and waits until it takes connections; its process id.
    pub fn start(&mut self, gone: &mut dyn FnMut(Duration) -> bool) -> Result<Pid, Stop> {
        let log = self.root.join("log");
        let file = File::options().create(true).append(true).open(&log)?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.root.join("data"));
        command.arg(format!(
            "--config-file={}",
            self.root.join("postgresql.conf").display()
        ));
        command.stderr(file);
        let pid = spawn(&mut command)?;
        self.postmaster = Some(pid);
        let deadline = Instant::now() + START_LIMIT;
        while !self.ready(pid) {
            if self.ended() {
                return Err(Stop::Failed(complaint(&log)));
            }
            if Instant::now() > deadline {
                let seconds = START_LIMIT.as_secs();
                return Err(Stop::Failed(format!(
                    "it takes no connections after {seconds} s"
                )));
            }
            if gone(TICK) {
                return Err(Stop::ParentGone);
            }
        }
        Ok(pid)
    }

    /// Ends the postmaster: at once (like a crash), or by closing the sessions and writing everything.
    pub fn stop(&mut self, immediate: bool) {
        let Some(pid) = self.postmaster else { return };
        let signal = if immediate {
            Signal::SIGQUIT
        } else {
            Signal::SIGINT
        };
        let _ = kill(pid, signal);
        let deadline = Instant::now() + PATIENCE;
        while !self.ended() {
            if Instant::now() > deadline {
                let _ = kill(pid, Signal::SIGKILL);
            }
            std::thread::sleep(TICK);
        }
        reap_orphans();
    }

    /// Whether no postmaster runs; buries it when it has died.
    pub fn ended(&mut self) -> bool {
        let Some(pid) = self.postmaster else {
            return true;
        };
        if !matches!(
            waitpid(pid, Some(WaitPidFlag::WNOHANG)),
            Ok(WaitStatus::StillAlive)
        ) {
            self.postmaster = None;
        }
        self.postmaster.is_none()
    }

    /// The last line of the server's pid file is its state: what `pg_ctl -w` waits for, too. A standby takes connections as well.
    fn ready(&self, pid: Pid) -> bool {
        let file =
            std::fs::read_to_string(self.root.join("data/postmaster.pid")).unwrap_or_default();
        let mut lines = file.lines();
        lines.next() == Some(pid.to_string().as_str())
            && lines
                .nth(6)
                .is_some_and(|state| matches!(state.trim(), "ready" | "standby"))
    }

    /// A command in the environment and under the account of the server.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.env_clear().env("LC_ALL", "C").env("TZ", "UTC");
        for name in ["PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        if let Some(account) = self.account {
            command.uid(account.uid.as_raw()).gid(account.gid.as_raw());
        }
        command.current_dir(self.root.join("data"));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.process_group(0);
        die_with_us(&mut command);
        command
    }
}

/// Makes the child die when this process does, and gives it back the signals that we hold off.
#[allow(unsafe_code)]
fn die_with_us(command: &mut Command) {
    let us = getpid();
    let prepare = move || {
        SigSet::empty().thread_set_mask()?;
        // The second line of defence: where it is not to be had, the pipe is enough.
        #[cfg(target_os = "linux")]
        let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGINT);
        // We may have died before the kernel was told.
        if getppid() == us {
            Ok(())
        } else {
            Err(Errno::ESRCH.into())
        }
    };
    // SAFETY: between fork and exec the closure makes three system calls, each of them
    // async-signal-safe, and neither allocates nor locks. The standard library runs it after the
    // change of user, which would clear the death signal.
    unsafe { command.pre_exec(prepare) };
}

/// Starts it; the handle is not kept because processes are awaited by id here.
fn spawn(command: &mut Command) -> Result<Pid, Stop> {
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command
        .spawn()
        .map_err(|error| Stop::Failed(format!("{program} cannot be run: {error}")))?;
    Ok(Pid::from_raw(child.id().cast_signed()))
}

/// Waits for what dead children of ours left behind (on Linux orphans are handed to us).
fn reap_orphans() {
    let deadline = Instant::now() + Duration::from_secs(1);
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            if Instant::now() > deadline {
                return;
            }
            std::thread::sleep(TICK);
        }
    }
}

/// The part of a log that says what went wrong, without time and process.
fn complaint(log: &Path) -> String {
    let text = String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned();
    let mut last = text.lines().rev().take(20);
    let line = last
        .by_ref()
        .find(|line| line.contains("FATAL:") || line.contains("error:"));
    let line = match line {
        // The line before has the name of the setting.
        Some(line) if line.contains("contains errors") => last.next(),
        Some(line) => Some(line),
        None => text.lines().last(),
    };
    let line = line.unwrap_or("it left no message");
    line.split_once(":  ")
        .map_or(line, |(_, message)| message)
        .trim()
        .to_owned()
}
