//! What is known and what happens next: state, `update(Msg) -> Vec<Effect>`, history. No I/O, no clock.

pub mod row;
pub mod state;
