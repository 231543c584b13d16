//! Count of the process's descriptors that are framed sockets, kept by the caller that makes and
//! closes them.
//!
//! Memory that a program lends is guarded in a process that has such a descriptor
//! ([`lent`](crate::lent)); any other has no signal handler of ours.

use std::sync::atomic::{AtomicUsize, Ordering};

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Returns whether any descriptor is a framed socket.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Counts a descriptor that has become a framed socket.
#[inline]
pub fn add() {
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// Counts off a descriptor that no longer is one.
#[inline]
pub fn remove() {
    COUNT.fetch_sub(1, Ordering::Relaxed);
}
