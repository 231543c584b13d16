//! Objects in a program's hands: calls in any state and any order, and the ways in
//! which a program is woken.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "a test")]

mod capabilities;
mod changes;
#[path = "../common/mod.rs"]
mod common;
mod counts;
mod descriptors;
mod drops;
mod endless;
mod numbers;
mod progress;
mod quiet;
mod racing;
mod reuse;
mod sleeping;
mod states;
mod waking;

use std::time::{Duration, Instant};

use common::{PATIENCE, alone};

/// Returns the numbers of descriptors and threads of this process.
pub fn in_use() -> [usize; 2] {
    ["fd", "task"].map(|what| std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count())
}

/// Waits until the process has this many threads and descriptors again: background threads take a
/// moment to end.
pub fn assert_in_use(expected: [usize; 2]) {
    assert_becomes(in_use, &expected, "descriptors and threads");
}

/// Waits until `count` returns what is expected.
pub fn assert_becomes<T: PartialEq + std::fmt::Debug>(count: impl Fn() -> T, expected: &T, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    while count() != *expected {
        assert!(Instant::now() < deadline, "{:?} {what} in place of {expected:?}", count());
        std::thread::sleep(Duration::from_millis(5));
    }
}
