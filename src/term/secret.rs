//! Asks for a password on the terminal, without echo, before there is a screen.

use crate::connect::Secret;
use anyhow::{Context, Result, bail, ensure};
use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers, read};
use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use std::io::{IsTerminal, Write};

/// Gives the terminal back, however asking ends.
struct Raw;

impl Drop for Raw {
    fn drop(&mut self) {
        // there is nothing to do where it cannot be
        let _ = disable_raw_mode();
        let _ = writeln!(std::io::stderr());
    }
}

/// Asks for a password. The question goes to stderr, so that stdout may be a file.
pub fn ask(question: &str) -> Result<Secret> {
    ensure!(
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal(),
        "there is no terminal to ask for the password on: use PGPASSWORD, ~/.pgpass or --password-command"
    );
    // first of all, so that not even what is typed early is shown
    enable_raw_mode().context("the terminal cannot hide a password")?;
    let _raw = Raw;
    let mut out = std::io::stderr();
    let asked = write!(out, "{question}").and_then(|()| out.flush());
    asked.context("cannot ask for the password")?;
    let mut text = String::new();
    loop {
        let key = match read().context("the terminal is gone")? {
            Event::Key(key) if key.kind != KeyEventKind::Release => key,
            _ => continue,
        };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Enter => return Ok(Secret::new(text)),
            KeyCode::Char('c' | 'd') if control => bail!("no password was given"),
            KeyCode::Char('u') if control => text.clear(),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(c) if !control => text.push(c),
            _ => {}
        }
    }
}
