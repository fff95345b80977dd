//! What is typed and pasted into text fields.

use super::state::{App, Layer};
use super::update::Effect;
use crate::keys::Action;
use crossterm::event::{Event, KeyCode, KeyEvent};
use tui_input::InputRequest;
use tui_input::backend::crossterm::EventHandler;

/// Characters taken from one paste.
const PASTED: usize = 200;

impl App {
    pub(super) fn filter_key(&mut self, key: KeyEvent, action: Option<Action>) -> Vec<Effect> {
        match key.code {
            KeyCode::Enter | KeyCode::Down | KeyCode::Up => self.editing_filter = false,
            KeyCode::Esc => {
                self.editing_filter = false;
                self.view_mut(self.focus).filter.reset();
            }
            _ if key.code == KeyCode::Char('c') && action == Some(Action::Quit) => {
                self.editing_filter = false;
            }
            _ => {
                let view = self.view_mut(self.focus);
                view.filter.handle_event(&Event::Key(key));
            }
        }
        vec![]
    }

    /// Pasted text goes into the text field that is open, and nowhere else.
    pub(super) fn paste(&mut self, text: &str) {
        let text: String = crate::text::clean(text).chars().take(PASTED).collect();
        let field = match self.layers.last_mut() {
            Some(Layer::Confirm(dialog)) if dialog.types() => &mut dialog.input,
            Some(Layer::Strike(question)) if question.types() => &mut question.input,
            Some(Layer::Palette(palette)) => palette.typing(),
            None if self.editing_filter => &mut self.views.entry(self.focus).or_default().filter,
            _ => return,
        };
        for c in text.chars() {
            field.handle(InputRequest::InsertChar(c));
        }
    }
}
