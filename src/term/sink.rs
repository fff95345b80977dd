//! Where a frame is collected, so that it leaves in one write whatever ratatui flushes in between.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

/// A buffer shared by the backend and the frame that is being made.
#[derive(Clone, Default)]
pub struct Sink(Rc<RefCell<Vec<u8>>>);

/// What an unchanged frame still writes: the cursor is hidden once more, and colours are reset.
const NOTHING: [&[u8]; 5] = [
    b"\x1b[?25l",
    b"\x1b[39m",
    b"\x1b[49m",
    b"\x1b[59m",
    b"\x1b[0m",
];

impl Sink {
    /// Bytes collected.
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Would what came since `from` change nothing on the screen?
    pub fn changes_nothing(&self, from: usize) -> bool {
        let bytes = self.0.borrow();
        let mut rest = &bytes[from..];
        while !rest.is_empty() {
            match NOTHING.iter().find_map(|n| rest.strip_prefix(*n)) {
                Some(after) => rest = after,
                None => return false,
            }
        }
        true
    }

    /// Forgets what was collected.
    pub fn discard(&self) {
        self.0.borrow_mut().clear();
    }

    /// Writes what was collected to the terminal.
    pub fn send(&self) -> io::Result<()> {
        let bytes = std::mem::take(&mut *self.0.borrow_mut());
        let mut out = io::stdout().lock();
        out.write_all(&bytes)?;
        out.flush()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
