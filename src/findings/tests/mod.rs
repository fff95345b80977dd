//! Findings as a whole: examples for every rule, the tracker over time, causes over symptoms, anything thrown at it.

mod build;
mod examples;
mod hostile;
mod order;
mod page;
mod tracker;
mod where_line;

pub use build::*;
pub use examples::example;
