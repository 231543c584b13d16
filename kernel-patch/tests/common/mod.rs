//! Tools that the tests of the program share: a network namespace of their own, connections in it,
//! and frames made by hand.
#![allow(dead_code, missing_docs, unreachable_pub)] // each test uses a part

pub mod frame;
pub mod net;
pub mod tap;

/// Returns whether the machine is emulated, so that tests do less (`RDDP_QUICK`).
pub fn is_quick() -> bool {
    std::env::var_os("RDDP_QUICK").is_some()
}

/// Rounds of a test: fewer where the machine is emulated.
pub fn rounds(all: usize) -> usize {
    if is_quick() { all / 20 } else { all }
}
