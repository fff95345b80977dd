//! How a server is reached, against a real one with TLS, with psql's own results as the reference.

#[path = "../common/mod.rs"]
mod common;

mod binary;
mod certificates;
mod chains;
mod hosts;
mod passwords;
mod refused;
mod server;
mod settings;
mod tls;
