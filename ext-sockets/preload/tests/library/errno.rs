//! Calls that succeed leave errno as it was, as the C library's do: lftp sets it to 0, calls
//! `getsockopt(SO_ERROR)`, and takes whatever errno is then for the outcome.

use std::collections::BTreeSet;

use tempfile::TempDir;

use crate::exports;
use crate::support::{FRAMED, command, compile, succeeded};

/// Functions that do not return when they succeed, or that cannot.
const ONLY_FAIL: [&str; 10] = [
    "execl",
    "execle",
    "execlp",
    "execv",
    "execve",
    "execveat",
    "execvp",
    "execvpe",
    "fexecve",
    "sigsuspend",
];

/// Calls of rddp's own headers are in the programs of `exs.rs` and `raw.rs`, whose `IS` checks the
/// same.
#[test]
fn a_call_that_succeeds_leaves_errno_alone() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["errno.c"], scratch.path(), &["-pthread"]);
    let of_c = |name: &&str| !name.starts_with("ddp_") && !name.starts_with("exs_");
    let all: BTreeSet<_> = exports::golden().filter(of_c).filter(|name| !ONLY_FAIL.contains(name)).collect();
    for family in FRAMED.iter().map(Some).chain([None]) {
        let mut command = command(&program, true, scratch.path());
        let output = command.envs(family.map(|family| ("RDDP_FAMILY", family))).output().unwrap();
        let said = succeeded(&output);
        let made: BTreeSet<_> = said.lines().collect();
        let missing: Vec<_> = all.difference(&made).collect();
        assert!(missing.is_empty(), "{family:?}: {missing:?}");
    }
}
