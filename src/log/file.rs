//! The log's file and the thread that writes it. Whoever has something to tell leaves it in memory and goes on, so that a
//! slow disk holds up neither drawing nor polling; what finds no room there is counted, and the count is written.

use super::line::{self, quoted};
use anyhow::{Result, bail};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::Level;

/// Bytes that wait for the disk at most, twice: those that come, and those being written.
const ROOM: usize = 1 << 20;
/// After a failure it is tried again this often.
const RETRY: Duration = Duration::from_secs(1);
/// How long the end of the program waits for the disk.
const LAST: Duration = Duration::from_secs(1);

/// Where events are appended.
pub(super) struct File {
    path: PathBuf,
    state: Mutex<State>,
    /// Something has come, or the end; or all is written.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Whole lines.
    waiting: Vec<u8>,
    /// Events for which there was no room.
    dropped: u64,
    /// The program ends.
    ends: bool,
    /// Nothing more is written.
    ended: bool,
    /// Writing has failed: why, until that was told.
    trouble: Option<String>,
    failed: bool,
}

impl File {
    /// Opens the file once, so that what is wrong with it is known before anything else happens, and begins to write.
    pub fn open(path: PathBuf) -> Result<Arc<Self>> {
        let log = Arc::new(Self {
            path,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        if log.appendable()?.is_terminal() {
            bail!("it is a terminal");
        }
        let writer = log.clone();
        let thread = std::thread::Builder::new().name("log".into());
        thread.spawn(move || writer.run())?;
        Ok(log)
    }

    /// Never waits for the reader of a pipe.
    fn appendable(&self) -> io::Result<fs::File> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        options.custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits());
        options.open(&self.path)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why it could not be written, once.
    pub fn trouble(&self) -> Option<String> {
        self.state().trouble.take()
    }

    /// Waits until all is written, for a moment; trouble that nobody has heard of.
    pub fn end(&self) -> Option<String> {
        let mut state = self.state();
        state.ends = true;
        self.changed.notify_all();
        let end = Instant::now() + LAST;
        while !state.ended {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.trouble.take()
    }

    fn run(&self) {
        let (mut bytes, mut file) = (Vec::new(), None);
        loop {
            let ends = self.next(&mut bytes);
            let written = self.write(&mut file, &mut bytes);
            let mut state = self.state();
            if let Err(error) = written {
                if !state.failed {
                    state.failed = true;
                    state.trouble = Some(format!(
                        "the log {} cannot be written: {error}; jobtop goes on without it, and tries again",
                        self.path.display()
                    ));
                }
                if !ends {
                    let more = |s: &mut State| !s.ends;
                    let waited = self.changed.wait_timeout_while(state, RETRY, more);
                    drop(waited);
                    continue;
                }
            }
            let nothing_left = state.waiting.is_empty() && state.dropped == 0;
            if ends && (nothing_left || !bytes.is_empty()) {
                state.ended = true;
                self.changed.notify_all();
                return;
            }
        }
    }

    /// Waits for something to write, unless some is left, and for the end.
    fn next(&self, bytes: &mut Vec<u8>) -> bool {
        let mut state = self.state();
        if bytes.is_empty() {
            let nothing = |s: &mut State| s.waiting.is_empty() && s.dropped == 0 && !s.ends;
            let waited = self.changed.wait_while(state, nothing);
            state = waited.unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut state.waiting, bytes);
            let dropped = std::mem::take(&mut state.dropped);
            if dropped > 0 {
                let head = line::head(&Level::ERROR);
                let why = quoted("the file could not be written as fast as they came");
                bytes.extend(
                    format!("{head} events were dropped count={dropped} reason={why}\n").bytes(),
                );
            }
        }
        state.ends
    }

    /// Writes what it can; what it could not is left. A file that was moved away is followed by a fresh one.
    fn write(&self, open: &mut Option<fs::File>, bytes: &mut Vec<u8>) -> io::Result<()> {
        let here = |file: &fs::File| match (file.metadata(), fs::metadata(&self.path)) {
            (Ok(ours), Ok(named)) => ours.dev() == named.dev() && ours.ino() == named.ino(),
            _ => false,
        };
        let mut file = match open.take().filter(here) {
            Some(file) => file,
            None => self.appendable()?,
        };
        while !bytes.is_empty() {
            match file.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => drop(bytes.drain(..n)),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        *open = Some(file);
        Ok(())
    }
}

/// One line a call, as the formatting layer has it.
impl Write for &File {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.state();
        match state.waiting.len() + line.len() <= ROOM {
            true => state.waiting.extend_from_slice(line),
            false => state.dropped += 1,
        }
        drop(state);
        self.changed.notify_all();
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
