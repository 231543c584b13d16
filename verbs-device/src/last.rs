//! Events of a device by which a queue pair has taken its last receive from a shared queue.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The queue pairs of a device that have taken their last shared receive.
#[derive(Debug, Default)]
pub(crate) struct Last {
    ended: Mutex<BTreeSet<u32>>,
    /// The device has not told so of one that should have.
    is_silent: AtomicBool,
}

impl Last {
    /// Notes what the device tells of a queue pair.
    pub(crate) fn note(&self, qp: u32) {
        self.ended().insert(qp);
        self.is_silent.store(false, Ordering::Relaxed);
    }

    pub(crate) fn has(&self, qp: u32) -> bool {
        self.ended().contains(&qp)
    }

    /// Forgets a queue pair: others get its number.
    pub(crate) fn forget(&self, qp: u32) {
        self.ended().remove(&qp);
    }

    /// Returns whether the device is one that does not tell: rxe of Linux 6.1, and RNICs of older
    /// drivers.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Notes that the device has not told in time.
    pub(crate) fn note_silence(&self) {
        self.is_silent.store(true, Ordering::Relaxed);
    }

    fn ended(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_tells_is_not_taken_for_a_silent_one_any_more() {
        let last = Last::default();
        last.note_silence();
        assert!(last.is_silent() && !last.has(7));
        last.note(7);
        assert!(!last.is_silent() && last.has(7));
    }
}
