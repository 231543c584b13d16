//! The rddp command.
fn main() {}
