//! The real binary in a real pty, and a terminal emulator that shows what a person would see.

use nix::poll::{PollFd, PollFlags, poll};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Machines under test are slow and noisy; what is waited for comes within this or not at all.
pub const PATIENCE: Duration = Duration::from_secs(30);

struct Seen {
    parser: vt100::Parser,
    bytes: Vec<u8>,
}

/// A program in a terminal.
pub struct Pty {
    child: Box<dyn Child + Send + Sync>,
    master: Option<Box<dyn MasterPty + Send>>,
    writer: Option<Box<dyn Write + Send>>,
    reading: Option<JoinHandle<()>>,
    hung_up: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
}

fn size(columns: u16, rows: u16) -> PtySize {
    PtySize {
        rows,
        cols: columns,
        pixel_width: 0,
        pixel_height: 0,
    }
}

fn cells(n: u16) -> NonZeroU16 {
    NonZeroU16::new(n).expect("at least one")
}

impl Pty {
    /// Starts a command; `env` comes over a clean environment.
    pub fn start(command: &[&str], columns: u16, rows: u16, env: &[(&str, &str)]) -> Self {
        let pair = native_pty_system()
            .openpty(size(columns, rows))
            .expect("a pty");
        let mut builder = CommandBuilder::new(command[0]);
        builder.args(&command[1..]);
        builder.cwd(std::env::temp_dir());
        for name in [
            "NO_COLOR",
            "COLORTERM",
            "RUST_BACKTRACE",
            "JOBTOP_CONFIG",
            "PGHOST",
            "PGUSER",
        ] {
            builder.env_remove(name);
        }
        builder.env("TERM", "xterm-256color");
        builder.env("LC_ALL", "C.UTF-8");
        builder.env("XDG_CONFIG_HOME", "/nonexistent");
        builder.env("XDG_STATE_HOME", super::state_home());
        for (name, value) in env {
            builder.env(name, value);
        }
        let child = pair.slave.spawn_command(builder).expect("the program");
        drop(pair.slave);
        let seen = Arc::new(Mutex::new(Seen {
            parser: vt100::Parser::new(cells(rows), cells(columns), 0),
            bytes: Vec::new(),
        }));
        let master = borrow(&*pair.master);
        let mut reader = File::from(nix::unistd::dup(master).expect("a reader"));
        let hung_up = Arc::new(AtomicBool::new(false));
        let (shared, stop) = (seen.clone(), hung_up.clone());
        let reading = std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            while !stop.load(Ordering::Relaxed) {
                let mut fds = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
                if !matches!(poll(&mut fds, 20u8), Ok(1..)) {
                    continue;
                }
                let Ok(n @ 1..) = reader.read(&mut buffer) else {
                    break;
                };
                let mut seen = shared.lock().expect("the screen");
                seen.parser.process(&buffer[..n]);
                seen.bytes.extend_from_slice(&buffer[..n]);
            }
        });
        Self {
            reading: Some(reading),
            hung_up,
            writer: Some(pair.master.take_writer().expect("a writer")),
            master: Some(pair.master),
            child,
            seen,
        }
    }

    /// Starts jobtop itself.
    pub fn jobtop(args: &[&str], columns: u16, rows: u16) -> Self {
        let mut command = vec![env!("CARGO_BIN_EXE_jobtop")];
        command.extend(args);
        Self::start(&command, columns, rows, &[])
    }

    /// Types.
    pub fn keys(&mut self, keys: &str) {
        let writer = self.writer.as_mut().expect("still open");
        writer.write_all(keys.as_bytes()).expect("typed");
        writer.flush().expect("typed");
    }

    /// What stands on the screen.
    pub fn screen(&self) -> String {
        let seen = self.seen.lock().expect("the screen");
        seen.parser.screen().contents()
    }

    /// Everything that was written so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.seen.lock().expect("the screen").bytes.clone()
    }

    /// Is the alternate screen shown?
    pub fn alternate(&self) -> bool {
        let seen = self.seen.lock().expect("the screen");
        seen.parser.screen().alternate_screen()
    }

    /// Is the cursor hidden?
    pub fn cursor_hidden(&self) -> bool {
        let seen = self.seen.lock().expect("the screen");
        seen.parser.screen().hide_cursor()
    }

    /// Waits until the screen satisfies a condition.
    pub fn wait(&self, what: &str, condition: impl Fn(&str) -> bool) -> String {
        self.wait_within(PATIENCE, what, condition)
    }

    /// Waits until the screen satisfies a condition, for as long as given.
    pub fn wait_within(
        &self,
        limit: Duration,
        what: &str,
        condition: impl Fn(&str) -> bool,
    ) -> String {
        let end = Instant::now() + limit;
        loop {
            let screen = self.screen();
            if condition(&screen) {
                return screen;
            }
            assert!(Instant::now() < end, "no {what} on:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for a text.
    pub fn wait_text(&self, text: &str) -> String {
        self.wait(&format!("{text:?}"), |screen| screen.contains(text))
    }

    /// Waits until a text is gone.
    pub fn wait_no_text(&self, text: &str) -> String {
        self.wait(&format!("end of {text:?}"), |screen| !screen.contains(text))
    }

    /// Changes the size of the window.
    pub fn resize(&self, columns: u16, rows: u16) {
        self.seen
            .lock()
            .expect("the screen")
            .parser
            .screen_mut()
            .set_size(cells(rows), cells(columns));
        let master = self.master.as_ref().expect("still open");
        master.resize(size(columns, rows)).expect("resized");
    }

    /// The program's pid.
    pub fn pid(&self) -> i32 {
        self.child.process_id().expect("a pid") as i32
    }

    /// Sends a signal.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), signal).expect("sent");
    }

    /// Closes the terminal as a dropped ssh does.
    pub fn hang_up(&mut self) {
        self.hung_up.store(true, Ordering::Relaxed);
        if let Some(reading) = self.reading.take() {
            reading.join().expect("the reader");
        }
        self.writer = None;
        self.master = None;
    }

    /// Waits for the end and returns the exit code (128 + n for a signal).
    pub fn exit_code(&mut self) -> u32 {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a status") {
                return status.exit_code();
            }
            assert!(Instant::now() < end, "still runs:\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The flags of the terminal that a shell needs: canonical mode and echo.
    pub fn cooked(&self) -> bool {
        use nix::sys::termios::{LocalFlags, tcgetattr};
        let master = self.master.as_ref().expect("still open");
        let flags = tcgetattr(borrow(&**master))
            .expect("the terminal's flags")
            .local_flags;
        flags.contains(LocalFlags::ICANON | LocalFlags::ECHO)
    }
}

#[allow(unsafe_code, reason = "portable-pty gives a raw descriptor only")]
fn borrow(master: &dyn MasterPty) -> BorrowedFd<'_> {
    let fd = master.as_raw_fd().expect("a descriptor");
    // SAFETY: the descriptor is open as long as `master` is borrowed
    unsafe { BorrowedFd::borrow_raw(fd) }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
