//! Loops in which nothing happens: when to yield the processor, and when to give up.

use std::time::{Duration, Instant};

use crate::Outcome;

/// Time without any progress after which the measurement is given up.
const PATIENCE: Duration = Duration::from_secs(20);

/// Number of fruitless turns after which a spinning end yields the processor: another end that
/// shares it could otherwise not run at all.
const YIELD_EVERY: u32 = 64;

/// Number of fruitless turns after which a spinning end checks the time; a multiple of
/// [`YIELD_EVERY`].
const CHECK_EVERY: u32 = 4096;

/// A counter of fruitless turns, those of a loop in which nothing happened, and their time.
#[derive(Default)]
pub(crate) struct Turns {
    fruitless: u32,
    /// Time of the first check since something happened.
    since: Option<Instant>,
}

impl Turns {
    /// Begins anew, since something happened.
    pub(crate) fn reset(&mut self) {
        *self = Turns::default();
    }

    /// Counts a turn of an end that spins. Fails as [`check`](Self::check) does.
    pub(crate) fn spin(&mut self) -> Outcome<()> {
        self.fruitless = self.fruitless.wrapping_add(1);
        if !self.fruitless.is_multiple_of(YIELD_EVERY) {
            std::hint::spin_loop();
            return Ok(());
        }
        std::thread::yield_now();
        if self.fruitless.is_multiple_of(CHECK_EVERY) { self.check() } else { Ok(()) }
    }

    /// Fails if nothing has happened for [`PATIENCE`]. An end that sleeps calls it in each turn.
    pub(crate) fn check(&mut self) -> Outcome<()> {
        if self.since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err("nothing has happened for 20 s".into());
        }
        Ok(())
    }
}
