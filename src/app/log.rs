//! Toasts, and the log that keeps them.

use super::state::{App, LogLine, Toast, Tone};
use crate::text::clean;

/// An info toast is gone after this many seconds; others wait for a key.
const INFO_S: f64 = 6.0;
/// Lines the log keeps.
const KEPT: usize = 1000;

impl App {
    /// Shows a toast and logs it.
    pub fn toast(&mut self, tone: Tone, text: impl Into<String>) {
        let text = clean(&text.into());
        self.note(tone, text.clone());
        self.toasts.retain(|t| t.text != text);
        self.toasts.push(Toast {
            tone,
            text,
            at: self.now,
        });
        if self.toasts.len() > 5 {
            self.toasts.remove(0);
        }
    }

    /// Logs a line without showing it.
    pub fn note(&mut self, tone: Tone, text: impl Into<String>) {
        let clock = self.server_now().map(|t| t.format("%H:%M:%S").to_string());
        let n = self.log.back().map_or(1, |l| l.n + 1);
        self.log.push_back(LogLine {
            n,
            clock: clock.unwrap_or_default(),
            tone,
            text: clean(&text.into()),
        });
        if self.log.len() > KEPT {
            self.log.pop_front();
        }
    }

    /// The server's clock now: the snapshot's, plus the time since it arrived.
    pub fn server_now(&self) -> Option<chrono::DateTime<chrono::Utc>> {
        let taken = self.snapshot.as_ref()?.taken_at?;
        taken.plus((self.now - self.arrived).max(0.0)).to_utc()
    }

    /// Drops info toasts whose time is over.
    pub fn expire_toasts(&mut self) {
        let now = self.now;
        self.toasts
            .retain(|t| t.tone != Tone::Info || now - t.at < INFO_S);
    }

    /// A key was pressed: warnings have been read.
    pub fn acknowledge_toasts(&mut self) {
        let now = self.now;
        // one that appeared in this very moment cannot have been read
        self.toasts
            .retain(|t| t.tone == Tone::Info || now - t.at < 0.5);
    }
}
