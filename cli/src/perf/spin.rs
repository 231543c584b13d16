//! Spinning that gives way: on a machine with more to do than processors, an end that only spins
//! keeps the other end from running at all. And, at the end that others ask to spin, spinning that
//! ends: who says nothing has it sleep.

use std::time::{Duration, Instant};

/// How long nothing happens before the processor is offered to others: longer than a round trip on this host.
const PATIENCE: Duration = Duration::from_micros(15);

/// How long nothing happens before an end that others have asked to spin sleeps: longer than any
/// round trip for which spinning makes a difference.
const ENOUGH: Duration = Duration::from_millis(10);

/// Origin of the wish that an end spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// The user of this process.
    Own,
    /// A client of this server, about which nothing is known.
    Clients,
}

/// Knows since when nothing has happened.
pub(super) struct Spin {
    wish: Wish,
    quiet_since: Option<Instant>,
    /// Since it has offered the processor to others.
    kept_since: Option<Instant>,
}

impl Spin {
    pub(super) fn new(wish: Wish) -> Self {
        Spin { wish, quiet_since: None, kept_since: None }
    }

    /// Begins anew, since something has happened.
    pub(super) fn reset(&mut self) {
        (self.quiet_since, self.kept_since) = (None, None);
    }

    /// Spins once, since nothing has happened. Returns whether the caller should go on without
    /// sleeping.
    pub(super) fn turn(&mut self) -> bool {
        let now = Instant::now();
        if self.wish == Wish::Clients && now - *self.quiet_since.get_or_insert(now) >= ENOUGH {
            return false;
        }
        if now - *self.kept_since.get_or_insert(now) < PATIENCE {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
            self.kept_since = None;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_says_nothing_is_not_spun_for() {
        let mut spin = Spin::new(Wish::Clients);
        assert!(spin.turn());
        while spin.turn() {}
        assert!(!spin.turn());
        spin.reset();
        assert!(spin.turn());
    }

    #[test]
    fn an_end_that_spins_of_its_own_accord_goes_on() {
        let mut spin = Spin::new(Wish::Own);
        let begun = Instant::now();
        while begun.elapsed() < 2 * ENOUGH {
            assert!(spin.turn());
        }
    }
}
