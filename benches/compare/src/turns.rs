//! Counts turns in which nothing happened.

use std::time::{Duration, Instant};

use crate::Outcome;

/// Time without any progress after which the measurement is given up.
const PATIENCE: Duration = Duration::from_secs(20);

/// Number of fruitless turns after which a spinning end offers the processor to others (another end
/// that shares it could otherwise not run at all) and looks at the clock.
const YIELD_EVERY: u32 = 64;
const LOOK_EVERY: u32 = 4096;

/// A counter of fruitless turns.
#[derive(Default)]
pub(crate) struct Turns {
    fruitless: u32,
    since: Option<Instant>,
}

impl Turns {
    /// Begins anew, since something happened.
    pub(crate) fn reset(&mut self) {
        *self = Turns::default();
    }

    /// Counts a turn of an end that spins.
    pub(crate) fn spin(&mut self) -> Outcome<()> {
        self.fruitless = self.fruitless.wrapping_add(1);
        if !self.fruitless.is_multiple_of(YIELD_EVERY) {
            std::hint::spin_loop();
            return Ok(());
        }
        std::thread::yield_now();
        if self.fruitless.is_multiple_of(LOOK_EVERY) { self.look() } else { Ok(()) }
    }

    /// Counts a turn of an end that has slept or will.
    pub(crate) fn look(&mut self) -> Outcome<()> {
        if self.since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err("nothing has happened for 20 s".into());
        }
        Ok(())
    }
}
