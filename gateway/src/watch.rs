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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn numbers_are_told_when_they_have_changed_and_are_due() {
        let told = RefCell::new(Vec::new());
        let tell = |counts: Counts| told.borrow_mut().push(counts.writes);
        let of = |writes| Counts { writes, ..Counts::default() };
        let mut watch = Watch::new(Some(Duration::ZERO), &tell);
        for writes in [0, 0, 1, 1, 3] {
            assert_eq!(watch.due(of(writes)).is_some(), watch.told != of(writes));
            watch.look(of(writes));
        }
        let mut late = Watch::new(Some(Duration::from_secs(1000)), &tell);
        late.look(of(5));
        assert!(late.due(of(5)).is_some());
        let mut never = Watch::new(None, &tell);
        never.look(of(6));
        assert_eq!(never.due(of(6)), None);
        assert_eq!(*told.borrow(), [1, 3]);
    }
}
