//! How Postgres is reached: what was given (settings, from url, keyvalue, service; encoding), where that is (target, endpoint, wire),
//! how it is protected (tls), the password (secret, password, passfile, person), one connection (open, attempt, gate, suits), one session with
//! its settings (session, purpose, ear), what went wrong (fault, reasons), what to do about it (advice), and reading rows without
//! trusting them (cells).

pub mod advice;
mod attempt;
pub mod cells;
mod ear;
mod encoding;
mod endpoint;
pub mod fault;
mod gate;
mod kept;
mod keyvalue;
pub mod open;
mod passfile;
mod password;
pub mod person;
mod purpose;
mod reasons;
mod secret;
mod service;
pub mod session;
pub mod settings;
mod suits;
pub mod target;
mod tls;
mod url;
mod wire;

pub use cells::Cells;
pub use fault::Fault;
pub use open::Reached;
pub use secret::Secret;
pub use session::{Footing, Param, Session};
pub use settings::Given;
pub use target::Target;
