//! Spinning that gives way: on a machine with more to do than processors, an end that only spins keeps the other end from
//! running at all.

use std::time::{Duration, Instant};

/// How long nothing happens before the processor is offered to others: longer than a round trip on this host.
const PATIENCE: Duration = Duration::from_micros(15);

/// Knows since when nothing has happened.
#[derive(Default)]
pub(super) struct Spin(Option<Instant>);

impl Spin {
    /// Something has happened.
    pub(super) fn reset(&mut self) {
        self.0 = None;
    }

    /// Nothing has.
    pub(super) fn turn(&mut self) {
        let now = Instant::now();
        if now.duration_since(*self.0.get_or_insert(now)) < PATIENCE {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
            self.reset();
        }
    }
}
