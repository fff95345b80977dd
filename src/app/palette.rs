//! `:`: every action of the key table, to choose from by typing.

use super::state::{App, Layer, Tone};
use super::update::Effect;
use crate::keys::{Action, Binding, KEYS, Risk};
use crate::ui;
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use tui_input::Input;
use tui_input::backend::crossterm::EventHandler;

/// What was typed and chosen.
#[derive(Clone, Debug, Default)]
pub struct Palette {
    /// Words that all occur in what is listed.
    pub input: Input,
    /// The action chosen; the first one listed where it is not listed (any more).
    pub chosen: Option<Action>,
}

/// One action as listed.
pub struct Entry {
    /// Its row of the key table.
    pub binding: &'static Binding,
    /// Why it is not possible now, in one sentence.
    pub why_not: Option<String>,
}

impl Entry {
    /// What it may do to the data, in words.
    pub fn risk(&self) -> &'static str {
        match self.binding.risk {
            Risk::Looks => "looks",
            Risk::Writes => "asks first, then writes",
        }
    }
}

impl Palette {
    /// The text field, about to be changed: the choice goes back to the first that matches.
    pub(super) fn typing(&mut self) -> &mut Input {
        self.chosen = None;
        &mut self.input
    }

    /// Which of these entries is chosen, by number.
    pub fn at(&self, entries: &[Entry]) -> usize {
        let at = |action| entries.iter().position(|e| e.binding.action == action);
        self.chosen.and_then(at).unwrap_or(0)
    }
}

impl App {
    /// The actions that match what was typed, in the order of the table; those called so come first. A word may name what it looks at:
    /// `key:R`, `risk:writes`, `now:off`.
    pub fn palette_entries(&self, palette: &Palette) -> Vec<Entry> {
        let row = self.row_in_hand();
        let listed = KEYS.iter().map(|binding| Entry {
            binding,
            why_not: self.why_not_with(binding.action, row.as_ref()),
        });
        let words = palette.input.value();
        let matching = |e: &Entry| {
            let keys = e.binding.label();
            let now = e
                .why_not
                .as_ref()
                .map_or(String::new(), |w| format!("off: {w}"));
            let fields = [
                ("does", e.binding.help),
                ("key", &keys),
                ("risk", e.risk()),
                ("now", &now),
            ];
            ui::order::matches(words, &fields)
        };
        let mut found: Vec<Entry> = listed.filter(matching).collect();
        // whoever types what an action is called means that one, not another whose help speaks of it
        found.sort_by_key(|e| words.is_empty() || !e.binding.help.starts_with(words));
        found
    }

    pub(super) fn palette_key(&mut self, key: KeyEvent, action: Option<Action>) -> Vec<Effect> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => {
                self.layers.pop();
            }
            KeyCode::Char('c') if control && action == Some(Action::Quit) => {
                self.layers.pop();
            }
            KeyCode::Enter => return self.palette_run(),
            KeyCode::Up => self.palette_move(Action::Up),
            KeyCode::Down => self.palette_move(Action::Down),
            KeyCode::PageUp => self.palette_move(Action::PageUp),
            KeyCode::PageDown => self.palette_move(Action::PageDown),
            KeyCode::Char('p') if control => self.palette_move(Action::Up),
            KeyCode::Char('n') if control => self.palette_move(Action::Down),
            _ => {
                if let Some(Layer::Palette(palette)) = self.layers.last_mut() {
                    let before = palette.input.value().to_string();
                    palette.input.handle_event(&Event::Key(key));
                    if palette.input.value() != before {
                        palette.chosen = None;
                    }
                }
            }
        }
        vec![]
    }

    /// Moves the choice; at either end it stays.
    pub(super) fn palette_move(&mut self, action: Action) {
        let page = ui::palette_page(self);
        let Some(Layer::Palette(palette)) = self.layers.last() else {
            return;
        };
        let entries = self.palette_entries(palette);
        let at = palette.at(&entries);
        let to = match action {
            Action::Up => at.saturating_sub(1),
            Action::PageUp => at.saturating_sub(page),
            Action::PageDown => at + page,
            _ => at + 1,
        };
        let chosen = entries.get(to).or(entries.last());
        let chosen = chosen.map(|e| e.binding.action);
        if let Some(Layer::Palette(palette)) = self.layers.last_mut() {
            palette.chosen = chosen;
        }
    }

    /// Runs the action chosen, as its key would below the palette; one that is not possible now says why and leaves
    /// the palette open.
    fn palette_run(&mut self) -> Vec<Effect> {
        let Some(Layer::Palette(palette)) = self.layers.last() else {
            return vec![];
        };
        let entries = self.palette_entries(palette);
        let Some(entry) = entries.get(palette.at(&entries)) else {
            return vec![];
        };
        if let Some(why) = &entry.why_not {
            let tone = match entry.binding.risk {
                Risk::Looks => Tone::Info,
                Risk::Writes => Tone::Warning,
            };
            self.toast(tone, format!("not now: {why}"));
            return vec![];
        }
        self.layers.pop();
        self.run(entry.binding.action)
    }

    /// What lies topmost when the palette is not counted: what its actions are about.
    pub(super) fn under_palette(&self) -> Option<&Layer> {
        let mut layers = self.layers.iter().rev();
        layers.find(|l| !matches!(l, Layer::Palette(_)))
    }
}
