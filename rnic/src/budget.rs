//! Octets that the QPs of a device keep, counted together: what peers make us keep is
//! bounded (RFC 5042 §6.4.1).

use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug)]
pub(crate) struct Budget {
    held: AtomicUsize,
    max: usize,
}

impl Budget {
    pub(crate) fn new(max: usize) -> Self {
        Budget { held: AtomicUsize::new(0), max }
    }

    pub(crate) fn charge(&self, octets: usize) {
        self.held.fetch_add(octets, Ordering::Relaxed);
    }

    pub(crate) fn release(&self, octets: usize) {
        self.held.fetch_sub(octets, Ordering::Relaxed);
    }

    /// Returns how many octets are kept now.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns whether the limit is reached: a QP that keeps octets now should not begin to keep
    /// more.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.held.load(Ordering::Relaxed) >= self.max
    }

    /// Returns whether half of the limit is reached: a QP that can do without octets should leave
    /// the rest to those that can't.
    pub(crate) fn is_scarce(&self) -> bool {
        self.held.load(Ordering::Relaxed) >= self.max / 2
    }
}
