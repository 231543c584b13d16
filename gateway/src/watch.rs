//! A connection's numbers, told while it goes on.

use std::time::{Duration, Instant};

use crate::bridge::Counts;

/// The hearer of a connection's numbers, and the time for it.
pub(crate) struct Watch<'a> {
    interval: Option<Duration>,
    next: Instant,
    told: Counts,
    tell: &'a dyn Fn(Counts),
}

impl<'a> Watch<'a> {
    pub(crate) fn new(interval: Option<Duration>, tell: &'a dyn Fn(Counts)) -> Self {
        let next = Instant::now() + interval.unwrap_or_default();
        Watch { interval, next, told: Counts::default(), tell }
    }

    /// Returns when these numbers are to be told: never where nothing has moved.
    pub(crate) fn due(&self, counts: Counts) -> Option<Instant> {
        self.interval.filter(|_| counts != self.told).map(|_| self.next)
    }

    /// Tells the numbers, if they are due.
    pub(crate) fn look(&mut self, counts: Counts) {
        let Some(interval) = self.interval else { return };
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + interval;
        if counts != self.told {
            self.told = counts;
            (self.tell)(counts);
        }
    }
}

impl std::fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("interval", &self.interval).finish_non_exhaustive()
    }
}
