//! Count of the process's descriptors that are ours, kept by whoever knows which they are.
//!
//! Memory that a program lends is guarded in a process that has such a descriptor
//! ([`lent`](crate::lent)); any other has no signal handler of ours.

use std::sync::atomic::{AtomicUsize, Ordering};

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Returns whether any descriptor is ours.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Counts a descriptor that has become ours.
#[inline]
pub fn add() {
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// Counts a descriptor that is ours no more.
#[inline]
pub fn remove() {
    COUNT.fetch_sub(1, Ordering::Relaxed);
}
