//! Exit code and error printing, nothing else.

fn main() {}
