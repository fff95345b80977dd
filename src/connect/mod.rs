//! How Postgres is reached: where (dsn), what went wrong (fault), one session with its settings (session), and
//! reading its rows without trusting them (cells).

pub mod cells;
pub mod dsn;
pub mod fault;
mod kept;
pub mod session;

pub use cells::Cells;
pub use dsn::Target;
pub use fault::Fault;
pub use session::{Param, Session};
