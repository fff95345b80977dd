//! What a server, a network, or other people can do to the monitor while somebody watches: keys answer throughout, the
//! last data stay, the reason is on the screen, and it is live again by itself.
//!
//! `cargo test --test survive -- --nocapture | grep '^|'` prints the table of what was survived and how.

#[path = "../common/mod.rs"]
mod common;

mod changes;
#[cfg(target_os = "linux")]
mod clock;
mod crowd;
mod extremes;
mod help;
mod hostile;
mod line;
mod network;
#[cfg(target_os = "linux")]
mod notify;
mod restarts;
mod slots;
#[cfg(target_os = "linux")]
mod soak;
mod standby;
mod systems;
