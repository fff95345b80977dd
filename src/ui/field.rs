//! A text field as drawn: what was typed, with the caret in it.

use super::text::ink;
use super::theme::Ink;
use ratatui::text::Span;
use tui_input::Input;

/// What was typed, the character under the caret on a badge.
pub fn spans(input: &Input) -> [Span<'static>; 3] {
    let (before, after) = split(input.value(), input.cursor());
    let mut after = after.chars();
    let caret = after.next().map_or_else(|| " ".to_string(), String::from);
    [
        ink(before, Ink::Strong),
        ink(caret, Ink::Badge),
        ink(after.as_str(), Ink::Strong),
    ]
}

/// At a position counted in characters.
fn split(text: &str, at: usize) -> (&str, &str) {
    let byte = text.char_indices().nth(at).map_or(text.len(), |(b, _)| b);
    text.split_at(byte)
}
