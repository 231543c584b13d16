//! Spinning that gives way: on a machine with more to do than processors, an end that only spins keeps the other end from
//! running at all.

/// Idle turns before the processor is offered to others; about the time of a round trip.
const TURNS: u32 = 64;

/// Counts idle turns.
#[derive(Default)]
pub(super) struct Spin(u32);

impl Spin {
    pub(super) fn turn(&mut self) {
        self.0 += 1;
        if self.0.is_multiple_of(TURNS) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}
