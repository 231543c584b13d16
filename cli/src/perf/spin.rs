//! Spinning that yields the processor: with more busy threads than processors, an end that only
//! spins would keep the other end from running at all. A server that spins because a client asked
//! for it falls asleep when nothing happens. Both ends give up in time.

use std::time::{Duration, Instant};

use rddp_command::failure::Failure;

/// Time of spinning without any event after which the processor is yielded: longer than a round
/// trip on this host.
const PATIENCE: Duration = Duration::from_micros(15);

/// Time without any event after which a server sleeps that a client has asked to spin: longer than
/// any round trip for which spinning makes a difference.
const ENOUGH: Duration = Duration::from_millis(10);

/// Time without any event after which the end that measures gives up.
const SILENCE: Duration = Duration::from_secs(20);

/// Number of turns after which a passive end that always has something to do calls
/// [`Spin::check`].
pub(super) const CHECK_EVERY: u64 = 4096;

/// The party that asked for spinning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// The user of this process asked.
    Own,
    /// A client of this server asked. Nothing is known about the client, so it gets no processor to
    /// itself for long.
    Clients,
}

/// Tracks the time since the last event, and decides what to do after it.
pub(super) struct Spin {
    wish: Wish,
    /// Time of the first turn since the last event.
    quiet_since: Option<Instant>,
    /// Time of the first turn since the last event, or since the processor was last yielded.
    kept_since: Option<Instant>,
    /// Time at which this end gives up: an end that measures when nothing has happened for long,
    /// one that serves a client when the client's slice has to be over.
    deadline: Option<Instant>,
}

impl Spin {
    pub(super) fn new(wish: Wish) -> Self {
        Spin { wish, quiet_since: None, kept_since: None, deadline: None }
    }

    /// Begins anew, since something has happened.
    pub(super) fn reset(&mut self) {
        (self.quiet_since, self.kept_since) = (None, None);
        if self.wish == Wish::Own {
            self.deadline = None;
        }
    }

    /// Begins a client's slice, which has to be over at `deadline`.
    pub(super) fn serve_until(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
    }

    /// Fails when this end has to give up. An end that sleeps when nothing happens calls it instead
    /// of [`turn`](Self::turn), and an end that serves also calls it now and then.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        self.check_at(Instant::now())
    }

    fn check_at(&mut self, now: Instant) -> Result<(), Failure> {
        match self.wish {
            Wish::Own if now > *self.deadline.get_or_insert(now + SILENCE) => {
                Err(Failure::peer("the server has stopped answering on the data connections"))
            }
            Wish::Clients if self.deadline.is_some_and(|deadline| now > deadline) => {
                Err(Failure::peer("the client has not ended its slice in time"))
            }
            _ => Ok(()),
        }
    }

    /// Spins once, since nothing has happened. Returns whether the caller should go on without
    /// sleeping; fails as [`check`](Self::check) does.
    pub(super) fn turn(&mut self) -> Result<bool, Failure> {
        let now = Instant::now();
        self.check_at(now)?;
        if self.wish == Wish::Clients && now - *self.quiet_since.get_or_insert(now) >= ENOUGH {
            return Ok(false);
        }
        if now - *self.kept_since.get_or_insert(now) < PATIENCE {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
            self.kept_since = None;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_does_not_spin_for_a_silent_client() {
        let mut spin = Spin::new(Wish::Clients);
        assert!(spin.turn().unwrap());
        while spin.turn().unwrap() {}
        assert!(!spin.turn().unwrap());
        spin.reset();
        assert!(spin.turn().unwrap());
    }

    #[test]
    fn an_end_that_spins_of_its_own_accord_goes_on() {
        let mut spin = Spin::new(Wish::Own);
        let begun = Instant::now();
        while begun.elapsed() < 2 * ENOUGH {
            assert!(spin.turn().unwrap());
        }
    }

    #[test]
    fn a_client_whose_slice_is_over_is_given_up() {
        let mut spin = Spin::new(Wish::Clients);
        spin.serve_until(Instant::now() + 10 * SILENCE);
        assert!(spin.check().is_ok());
        spin.serve_until(Instant::now() - ENOUGH);
        spin.reset();
        assert!(spin.check().is_err() && spin.turn().is_err());
    }

    #[test]
    fn an_end_that_measures_gives_up_in_silence_alone() {
        let mut spin = Spin::new(Wish::Own);
        assert!(spin.turn().unwrap());
        spin.deadline = Some(Instant::now() - ENOUGH);
        assert!(spin.turn().is_err() && spin.check().is_err());
        spin.reset();
        assert!(spin.turn().unwrap());
    }
}
