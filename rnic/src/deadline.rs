//! Deadlines: time limits as programs give them.

use std::time::{Duration, Instant};

/// The time at which a wait ends. A limit that reaches beyond what the clock can represent counts
/// as no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// Returns the deadline of a wait that begins now and lasts for `limit`.
    pub(crate) fn after(limit: Duration) -> Self {
        Deadline(Instant::now().checked_add(limit))
    }

    /// Returns the deadline of a wait that begins now and lasts for `limit`; `None` is a wait
    /// without an end.
    pub(crate) fn after_any(limit: Option<Duration>) -> Self {
        limit.map_or(Deadline(None), Self::after)
    }

    /// Returns the time of the deadline; `None` if there is none.
    pub(crate) fn moment(self) -> Option<Instant> {
        self.0
    }

    /// Returns the time left, zero when it is over; `None` if there is no deadline.
    pub(crate) fn left(self) -> Option<Duration> {
        self.0.map(|moment| moment.saturating_duration_since(Instant::now()))
    }

    /// Returns whether the deadline has passed at `now`.
    pub(crate) fn is_over(self, now: Instant) -> bool {
        self.0.is_some_and(|moment| moment <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_beyond_the_clock_is_none() {
        let now = Instant::now();
        for limit in [Duration::MAX, Duration::from_secs(i64::MAX as u64)] {
            let deadline = Deadline::after(limit);
            assert_eq!((deadline.moment(), deadline.left(), deadline.is_over(now)), (None, None, false));
        }
        assert!(Deadline::after(Duration::ZERO).is_over(Instant::now()));
        assert!(!Deadline::after(Duration::from_secs(60)).is_over(now));
        assert_eq!(Deadline::after_any(None), Deadline::after(Duration::MAX));
    }
}
