//! The two functions that callgrind is told of by name. It would not see them if they were inlined,
//! ended in a jump, or had the same code and so became one.

use std::hint::black_box;

/// Rounds of a scenario. Of the later half the median counts: by then memory has been allocated,
/// and TCP has found its segment size.
pub(crate) const ROUNDS: u32 = 24;

/// What runs in here is counted.
#[inline(never)]
pub(crate) fn measured(operation: &mut dyn FnMut()) {
    operation();
    black_box("measured");
}

/// At the end of it the count is written and begins anew.
#[inline(never)]
pub(crate) fn one_round(round: &mut dyn FnMut()) {
    round();
    black_box("one round");
}
