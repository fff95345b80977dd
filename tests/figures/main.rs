//! Figures, printed for people: what watching costs the server and this machine, and how fast it is. Run by hand:
//! `cargo test --release --test figures -- --ignored --nocapture --test-threads 1`.
//! What is counted is asserted; times are printed, with ratios where something can be compared.

#[path = "../common/mod.rs"]
mod common;
mod demo;
mod meter;
mod place;
mod queue;
mod screen;
mod server;
