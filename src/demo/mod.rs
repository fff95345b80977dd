//! A private Postgres to try things on: found or fetched, started, and gone again without a trace.
//!
//! `locate` finds server binaries and `fetch` brings them when there are none. `cluster` is what the
//! rest of the program holds; behind it runs a `supervisor`, a second process of this same binary, which
//! owns the `private` directory and the `server` in it and outlives the program just long enough to
//! remove both.

pub mod cluster;
mod error;
pub mod fetch;
pub mod locate;
mod package;
mod private;
mod reach;
mod server;
pub mod supervisor;

pub use error::Error;
