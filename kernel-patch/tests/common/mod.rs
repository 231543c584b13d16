//! What the tests of the program share: a network namespace of their own, connections in it, and
//! frames made by hand.
#![allow(dead_code, missing_docs, unreachable_pub)] // each test uses a part

pub mod frame;
pub mod net;
pub mod tap;

/// Rounds of a test: fewer where a machine is emulated (`RDDP_QUICK`).
pub fn rounds(all: usize) -> usize {
    if std::env::var_os("RDDP_QUICK").is_some() { all / 20 } else { all }
}
