//! The terminal: raw mode and back, whole frames in one write, the clipboard, and the ways a program ends.

pub mod secret;
pub mod signals;
mod sink;

use crossterm::clipboard::CopyToClipboard;
use crossterm::cursor::{Hide, Show};
use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use ratatui::backend::{Backend, ClearType, CrosstermBackend};
use ratatui::{Frame, Terminal};
use sink::Sink;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Is the terminal in our hands? The panic hook must know.
static RAW: AtomicBool = AtomicBool::new(false);

/// The terminal in raw mode on its alternate screen; restored when dropped, also by a panic.
pub struct Tui {
    terminal: Terminal<CrosstermBackend<Sink>>,
    sink: Sink,
    mouse: bool,
}

impl Tui {
    /// Takes the terminal.
    pub fn enter(mouse: bool) -> io::Result<Self> {
        let sink = Sink::default();
        let terminal = Terminal::new(CrosstermBackend::new(sink.clone()))?;
        let mut tui = Self {
            terminal,
            sink,
            mouse,
        };
        tui.take()?;
        Ok(tui)
    }

    fn take(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        RAW.store(true, Ordering::SeqCst);
        let mut out = io::stdout();
        // a program that was killed here may have left the alternate screen, and its text on it
        execute!(
            out,
            EnterAlternateScreen,
            crossterm::terminal::Clear(crossterm::terminal::ClearType::All),
            EnableBracketedPaste,
            Hide
        )?;
        if self.mouse {
            execute!(out, EnableMouseCapture)?;
        }
        Ok(())
    }

    /// Draws a frame; it reaches the terminal in one write, or not at all when nothing changed.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame)) -> io::Result<()> {
        queue!(self.sink, BeginSynchronizedUpdate)?;
        let empty = self.sink.len();
        self.terminal.draw(draw)?;
        if self.sink.changes_nothing(empty) {
            self.sink.discard();
            return Ok(());
        }
        queue!(self.sink, EndSynchronizedUpdate)?;
        self.sink.send()
    }

    /// Forgets what is on the screen, so that the next frame paints all of it. Never asks the terminal anything.
    pub fn repaint(&mut self) -> io::Result<()> {
        self.terminal.backend_mut().clear_region(ClearType::All)?;
        self.terminal.swap_buffers();
        Ok(())
    }

    /// Sends a text to the terminal's clipboard (OSC 52).
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        execute!(io::stdout(), CopyToClipboard::to_clipboard_from(text))
    }

    /// Gives the terminal back, stops until the shell continues us, and takes it again.
    pub fn suspend(&mut self) -> io::Result<()> {
        restore();
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP)?;
        self.take()?;
        self.terminal.autoresize()?;
        self.repaint()
    }
}

impl Drop for Tui {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back. Harmless when it is not ours; errors are ignored, since it may be gone.
pub fn restore() {
    if !RAW.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = io::stdout();
    let _ = queue!(
        out,
        EndSynchronizedUpdate,
        DisableMouseCapture,
        DisableBracketedPaste,
        LeaveAlternateScreen,
        Show
    );
    let _ = out.flush();
    let _ = disable_raw_mode();
}

/// A panic gives the terminal back before it is told.
pub fn install_panic_hook() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        restore();
        tell(info);
    }));
}

/// Has the terminal gone (ssh dropped, window closed)? Its reader would spin on it.
pub fn gone() -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    let stdin = io::stdin();
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
    let hung_up = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    poll(&mut fds, PollTimeout::ZERO).is_ok()
        && fds[0].revents().is_some_and(|r| r.intersects(hung_up))
}
