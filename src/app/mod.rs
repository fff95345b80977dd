//! What is known and what happens next: state, `update(Msg) -> Vec<Effect>`, history. No I/O, no clock.

mod back;
pub mod choose;
pub mod cursor;
pub mod dialog;
mod field;
mod lead;
pub mod link;
pub mod log;
pub mod palette;
pub mod row;
pub mod state;
pub mod strike;
pub mod update;
pub mod why_not;

pub use update::{Effect, Msg};

#[cfg(test)]
mod tests;
