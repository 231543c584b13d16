//! What a program may do with its objects, in any state and in any order, and how it is woken.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "a test")]

#[path = "../common/mod.rs"]
mod common;
mod drops;
mod endless;
mod progress;
mod reuse;
mod sleeping;
mod states;
mod waking;

use std::time::{Duration, Instant};

use common::PATIENCE;

/// Runs a test again in a process of its own, where nothing else uses descriptors, threads or the processor. Whether this
/// is that process.
pub fn alone(test: &str) -> bool {
    const ALONE: &str = "RDDP_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let output = [child.stdout, child.stderr].concat();
    let output = String::from_utf8_lossy(&output);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
    false
}

/// Descriptors and threads of this process.
pub fn in_use() -> [usize; 2] {
    ["fd", "task"].map(|what| std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count())
}

/// It comes to that again: background threads take a moment to end.
pub fn assert_in_use(expected: [usize; 2]) {
    let deadline = Instant::now() + PATIENCE;
    while in_use() != expected {
        assert!(Instant::now() < deadline, "{:?} descriptors and threads, {expected:?} before", in_use());
        std::thread::sleep(Duration::from_millis(5));
    }
}
