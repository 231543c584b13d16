//! Spinning with limits: a poller that hears nothing for a few round trips sleeps, and the kernel
//! wakes it when something comes. It does not yield instead: where another program wants the
//! processor, a yield gives it away for a slice of some milliseconds, and a peer that shares the
//! processor can run while this end sleeps. Both ends give up in time.

use std::time::{Duration, Instant};

use rddp_command::failure::Failure;

/// Round trips without any event after which an end sleeps.
const ROUND_TRIPS: u32 = 4;

/// The least time without any event after which an end sleeps: longer than a round trip within a
/// host.
const LEAST: Duration = Duration::from_micros(15);

/// The most, whatever the round trip: a server spins because a client, of which nothing is known,
/// asked for it.
const MOST: Duration = Duration::from_millis(1);

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
    /// Time of the first turn since the last event, or of the sleep that followed it.
    quiet_since: Option<Instant>,
    /// The shortest silence of lately, which is about a round trip.
    shortest: Duration,
    /// Time at which this end gives up: an end that measures when nothing has happened for long,
    /// one that serves a client when the client's slice has to be over.
    deadline: Option<Instant>,
}

impl Spin {
    pub(super) fn new(wish: Wish) -> Self {
        Spin { wish, quiet_since: None, shortest: Duration::ZERO, deadline: None }
    }

    /// Begins anew, since something has happened.
    pub(super) fn reset(&mut self) {
        if let Some(since) = self.quiet_since.take() {
            self.note(since.elapsed());
        }
        if self.wish == Wish::Own {
            self.deadline = None;
        }
    }

    /// Notes how long a silence was: a shorter one counts at once, longer ones by and by.
    fn note(&mut self, silence: Duration) {
        let longer = silence.min(MOST).saturating_sub(self.shortest);
        self.shortest = silence.min(self.shortest + longer / 16);
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

    /// Spins once, since nothing has happened. Returns false if the caller should sleep, until
    /// something comes; fails as [`check`](Self::check) does.
    pub(super) fn turn(&mut self) -> Result<bool, Failure> {
        let now = Instant::now();
        self.check_at(now)?;
        let since = *self.quiet_since.get_or_insert(now);
        if now - since < (ROUND_TRIPS * self.shortest).clamp(LEAST, MOST) {
            std::hint::spin_loop();
            return Ok(true);
        }
        // Time of spinning in vain is none of the peer's, which may share the processor.
        self.quiet_since = Some(now);
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_sleeps_after_some_round_trips_of_silence() {
        let mut spin = Spin::new(Wish::Clients);
        (0..100).for_each(|_| spin.note(Duration::from_micros(100)));
        let begun = Instant::now();
        while spin.turn().unwrap() {}
        assert!(begun.elapsed() > 2 * Duration::from_micros(100));
        // A short silence counts at once, and a long one is no round trip.
        spin.note(Duration::from_micros(5));
        spin.note(Duration::from_secs(1));
        assert!(spin.shortest < Duration::from_micros(100));
        spin.reset();
        assert!(spin.turn().unwrap());
    }

    #[test]
    fn a_client_whose_slice_is_over_is_given_up() {
        let mut spin = Spin::new(Wish::Clients);
        spin.serve_until(Instant::now() + 10 * SILENCE);
        assert!(spin.check().is_ok());
        spin.serve_until(Instant::now() - MOST);
        spin.reset();
        assert!(spin.check().is_err() && spin.turn().is_err());
    }

    #[test]
    fn an_end_that_measures_gives_up_in_silence_alone() {
        let mut spin = Spin::new(Wish::Own);
        assert!(spin.turn().unwrap());
        spin.deadline = Some(Instant::now() - MOST);
        assert!(spin.turn().is_err() && spin.check().is_err());
        spin.reset();
        assert!(spin.turn().unwrap());
    }
}
