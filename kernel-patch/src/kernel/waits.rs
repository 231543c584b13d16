//! [`Waits`]: a wait for the program, which is in the midst of a copy on another processor.

use std::hint::spin_loop;
use std::thread::yield_now;

/// Turns of a wait. A copy takes a microsecond; longer only where its thread has been preempted (a
/// kernel that handles packets in threads).
#[derive(Debug, Default)]
pub(super) struct Waits {
    turns: u32,
}

impl Waits {
    /// Waits a little.
    pub(super) fn turn(&mut self) {
        self.turns = self.turns.saturating_add(1);
        if self.turns < 1000 { spin_loop() } else { yield_now() }
    }
}
