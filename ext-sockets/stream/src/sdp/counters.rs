//! Counters of a connection, in the state that all holders share: each is one load and one store
//! under a lock. [`SdpInfo::counters`](super::SdpInfo::counters) has them in this order.

use std::sync::atomic::Ordering;

use super::Part;

/// A counter, by its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter(usize);

/// Data messages sent that have octets.
pub(crate) const SENT_MESSAGES: Counter = Counter(0);
/// Octets sent in them.
pub(crate) const SENT: Counter = Counter(1);
/// Octets of the peer's that the program has.
pub(crate) const RECEIVED: Counter = Counter(2);
/// Octets that were moved out of the way of messages behind them.
pub(crate) const ABSORBED: Counter = Counter(3);
/// Octets copied from memory of this end to memory of this end, besides the copies into the kernel
/// and out of it.
pub(crate) const COPIED: Counter = Counter(4);
/// Sleeps of sending calls until credits come.
pub(crate) const CREDIT_WAITS: Counter = Counter(5);
/// Octets of RDMA Reads: those that this end has asked for, and those that it has answered.
pub(crate) const READ: Counter = Counter(6);
/// Octets that this end has written by RDMA Writes. The peer's counter has those it has written.
pub(crate) const WRITTEN: Counter = Counter(7);

impl Part {
    /// Adds to a counter. The caller holds the lock of its direction; without one, a count at the
    /// same moment may be lost.
    #[inline]
    pub(crate) fn count(&self, Counter(place): Counter, more: usize) {
        let counter = &self.counters[place];
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(more as u64), Ordering::Relaxed);
    }

    /// Returns how many octets of the peer's the program has. The caller holds the lock of its
    /// direction.
    pub(crate) fn received(&self) -> u64 {
        self.counters[RECEIVED.0].load(Ordering::Relaxed)
    }

    /// Returns how many octets this end has asked for by Reads, and has answered Reads with.
    #[inline]
    pub(crate) fn asked_to_read(&self) -> u64 {
        self.counters[READ.0].load(Ordering::Relaxed)
    }

    /// Returns the counters.
    pub(crate) fn counters(&self) -> [u64; 8] {
        self.counters.each_ref().map(|counter| counter.load(Ordering::Relaxed))
    }
}
