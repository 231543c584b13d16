//! Who polls a descriptor now. A close waits until nobody does: a `poll` keeps the connection open, and after it the number may be
//! taken for what it was.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How many do.
#[derive(Debug, Default)]
pub(super) struct Polled {
    count: Mutex<usize>,
    nobody: Condvar,
}

impl Polled {
    fn count(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more is about to.
    pub(super) fn begin(&self) {
        *self.count() += 1;
    }

    /// One has come back, if there is any.
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

    /// Waits until nobody does. Whoever does has been woken.
    pub(super) fn wait(&self) {
        let mut count = self.count();
        while *count != 0 {
            count = self.nobody.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
