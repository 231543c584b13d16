//! The count of threads that poll a descriptor. A close waits until it is 0: a `poll` keeps the
//! connection open, and once it has ended the number may belong to another file.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Number of threads in a `poll` of the descriptor.
#[derive(Debug, Default)]
pub(super) struct Polled {
    count: Mutex<usize>,
    nobody: Condvar,
}

impl Polled {
    fn count(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a thread that is about to poll.
    pub(super) fn begin(&self) {
        *self.count() += 1;
    }

    /// Counts off a thread that has come back, if there is any.
    pub(super) fn end(&self) {
        let mut count = self.count();
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.nobody.notify_all();
        }
    }

    pub(super) fn is_polled(&self) -> bool {
        *self.count() != 0
    }

    /// Waits until no thread polls. The caller has woken those that do.
    pub(super) fn wait(&self) {
        let mut count = self.count();
        while *count != 0 {
            count = self.nobody.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
