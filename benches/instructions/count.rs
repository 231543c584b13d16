//! Two functions that callgrind knows by name. It would not see them if they were inlined, ended in
//! a jump, or had the same code and so became one.

use std::hint::black_box;

/// Rounds of a scenario. Of the later half the median counts: by then memory has been allocated,
/// and TCP has found its segment size.
pub(crate) const ROUNDS: u32 = 24;

/// Runs an operation whose instructions are counted.
#[inline(never)]
pub(crate) fn measured(operation: &mut dyn FnMut()) {
    operation();
    black_box("measured");
}

/// Runs one round. When it returns, callgrind writes the count and begins a new one.
#[inline(never)]
pub(crate) fn one_round(round: &mut dyn FnMut()) {
    round();
    black_box("one round");
}
