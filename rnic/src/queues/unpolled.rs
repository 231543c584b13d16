//! Completions that the program has not polled yet, of a queue whose requests keep their places
//! until then ([`QpConfig::until_polled`](crate::QpConfig::until_polled)).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The completions of one queue of a queue pair that may still be in its completion queue; of most
/// queue pairs nothing is kept. Completions are taken in the order of their numbers, so that a poll
/// need not look for the queue pair.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unpolled {
    /// The number of completions that the program has taken from the completion queue.
    taken: Option<Arc<AtomicU64>>,
    /// Numbers of completions in that queue, oldest first.
    numbers: VecDeque<u64>,
}

impl Unpolled {
    /// Makes a list for the completions of a queue of which `taken` counts those that the program
    /// has taken.
    pub(crate) fn of(taken: Arc<AtomicU64>) -> Self {
        Unpolled { taken: Some(taken), numbers: VecDeque::new() }
    }

    /// Notes a completion that has got this number in its queue; `None` if that has overflowed.
    #[inline]
    pub(crate) fn note(&mut self, number: Option<u64>) {
        if self.taken.is_some() {
            self.numbers.extend(number);
        }
    }

    /// Returns the number of completions that the program has not taken.
    #[inline]
    pub(crate) fn count(&mut self) -> usize {
        self.taken.as_ref().map_or(0, |taken| {
            let taken = taken.load(Ordering::Acquire);
            while self.numbers.front().is_some_and(|number| *number < taken) {
                self.numbers.pop_front();
            }
            self.numbers.len()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_counts_no_more() {
        let taken = Arc::new(AtomicU64::new(3));
        let mut unpolled = Unpolled::of(taken.clone());
        // Others complete into the queue as well, and one completion has found no room.
        for number in [Some(3), Some(5), None, Some(6)] {
            unpolled.note(number);
        }
        let mut left = |count| {
            taken.store(count, Ordering::Release);
            unpolled.count()
        };
        assert_eq!([3, 4, 5, 6, 7].map(&mut left), [3, 2, 2, 1, 0]);
    }

    #[test]
    fn without_a_counter_nothing_is_kept() {
        let mut unpolled = Unpolled::default();
        unpolled.note(Some(0));
        assert_eq!((unpolled.count(), unpolled.numbers.len()), (0, 0));
    }
}
