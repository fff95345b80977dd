//! What the operator does: choose, look at what that is now, confirm; then one short transaction after another, an
//! outcome per id, and a journal.
//!
//! [`Choice`] says which tasks, [`Asker`] reads them into a [`Preview`], a person confirms it as a [`Plan`], and a
//! [`Run`] carries that out on any session and ends as an [`Outcome`]. [`strike`] ends a session instead.

mod chunk;
mod diary;
pub mod facts;
pub(crate) mod journal;
mod outcome;
mod plan;
mod preview;
mod progress;
mod run;
pub mod strike;
mod verb;

pub use outcome::Outcome;
pub use plan::{Choice, Fate, Plan, Target};
pub use preview::{Asker, Held, MOST, Preview};
pub use progress::Progress;
pub use run::{CHUNK, Run, drive};
pub use verb::Verb;
