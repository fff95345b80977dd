//! A private Postgres to try things on, and life in it: `jobtop demo`, `jobtop seed`, `jobtop work`.
//!
//! The server is found or fetched, started, and gone again without a trace: `locate` finds server binaries and
//! `fetch` brings them when there are none. `cluster` is what the rest of the program holds; behind it runs a
//! `supervisor`, a second process of this same binary, which owns the `private` directory and the `server` in it and
//! outlives the program just long enough to remove both.
//!
//! The life is real clients over real connections. `show` puts it all together; `seed` writes the past, `crew`
//! starts those who work (`agents`), ask for work and report (`office`), and the workers of two other queues
//! (`houses`); `scenario` lets the `acts` make trouble on a `stage`. All share one `world`.

mod acts;
mod agents;
mod calls;
mod catalog;
pub mod cluster;
mod copy;
pub mod crew;
mod dice;
mod error;
pub mod fetch;
mod houses;
pub mod link;
pub mod locate;
mod office;
mod package;
mod private;
pub mod reach;
pub mod roles;
pub mod scenario;
pub mod seed;
mod server;
pub mod settings;
pub mod show;
mod stage;
pub mod supervisor;
pub mod world;

pub use acts::{ACTS, Act};
pub use error::Error;
pub use scenario::Scenario;
pub use settings::settings;
pub use show::{Demo, DemoOptions};
