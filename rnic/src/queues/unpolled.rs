//! Completions that the program has not polled yet, of a queue whose requests keep their places
//! until then ([`QpConfig::until_polled`](crate::QpConfig::until_polled)).

use std::collections::VecDeque;
use std::iter::repeat_n;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The completions of one queue of a queue pair that may still be in its completion queue; of most
/// queue pairs nothing is kept. Completions are taken in the order of their numbers, so that a poll
/// need not look for the queue pair.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unpolled {
    /// The number of completions that the program has taken from the completion queue.
    taken: Option<Arc<AtomicU64>>,
    /// Numbers of completions in that queue, oldest first: one for each request whose place the
    /// completion frees.
    numbers: VecDeque<u64>,
    /// Requests that make no completion count, too: see
    /// [`QpConfig::quiet_until_polled`](crate::QpConfig::quiet_until_polled).
    counts_quiet: bool,
    /// Number of such requests behind the last that has made a completion.
    quiet: usize,
}

impl Unpolled {
    /// Makes a list for the completions of a queue of which `taken` counts those that the program
    /// has taken.
    pub(crate) fn of(taken: Arc<AtomicU64>) -> Self {
        Unpolled { taken: Some(taken), ..Unpolled::default() }
    }

    /// Has requests count that make no completion, if `counts` says so.
    pub(crate) fn counting_quiet(self, counts: bool) -> Self {
        Unpolled { counts_quiet: counts, ..self }
    }

    /// Notes a completion that has got this number in its queue; `None` if that has overflowed.
    #[inline]
    pub(crate) fn note(&mut self, number: Option<u64>) {
        if self.taken.is_some() {
            self.numbers.extend(number);
            if self.quiet > 0 {
                self.free_quiet(number);
            }
        }
    }

    /// Has a completion free the places of the quiet requests before it.
    #[cold]
    fn free_quiet(&mut self, number: Option<u64>) {
        let quiet = std::mem::take(&mut self.quiet);
        self.numbers.extend(number.into_iter().flat_map(|number| repeat_n(number, quiet)));
    }

    /// Notes a request that is done and makes no completion.
    #[inline]
    pub(crate) fn note_quiet(&mut self) {
        self.quiet += usize::from(self.counts_quiet);
    }

    /// Forgets completions that have left their queue.
    pub(crate) fn forget(&mut self) {
        self.numbers.clear();
    }

    /// Forgets the quiet requests of a connection that is over.
    pub(crate) fn forget_quiet(&mut self) {
        self.quiet = 0;
    }

    /// Returns the number of requests that still count.
    #[inline]
    pub(crate) fn count(&mut self) -> usize {
        self.taken.as_ref().map_or(0, |taken| {
            let taken = taken.load(Ordering::Acquire);
            while self.numbers.front().is_some_and(|number| *number < taken) {
                self.numbers.pop_front();
            }
            self.numbers.len() + self.quiet
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
    fn quiet_requests_count_until_a_later_completion_is_taken() {
        let taken = Arc::new(AtomicU64::new(0));
        let mut unpolled = Unpolled::of(taken.clone()).counting_quiet(true);
        unpolled.note_quiet();
        unpolled.note_quiet();
        unpolled.note(Some(0));
        unpolled.note_quiet();
        unpolled.note(Some(2));
        unpolled.note_quiet();
        let mut left = |count| {
            taken.store(count, Ordering::Release);
            unpolled.count()
        };
        assert_eq!([0, 1, 2, 3].map(&mut left), [6, 3, 3, 1]);
        unpolled.forget_quiet();
        assert_eq!(unpolled.count(), 0);
    }

    #[test]
    fn without_a_counter_nothing_is_kept() {
        let mut unpolled = Unpolled::default();
        unpolled.note(Some(0));
        unpolled.note_quiet();
        assert_eq!((unpolled.count(), unpolled.numbers.len()), (0, 0));
    }
}
