//! The part of a state that tells which processes hold the socket, besides those that stand beside
//! the slot: see `sys/slots/holders.rs`.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::State;
use crate::sys::now;

/// The part. All zeros: nobody but those beside the slot.
#[repr(C)]
pub(crate) struct Holders {
    /// Set if some processes that hold the socket have no place among the holders.
    pub(crate) uncounted: AtomicBool,
    /// The block of holders that have no place here.
    pub(crate) more_in: AtomicU32,
    pub(crate) more: [AtomicU64; HOLDERS],
    /// Moment at which a process last said that it holds the socket no longer, by [`now`].
    pub(crate) left: AtomicU64,
    /// Time by [`now`] up to which a process that has not joined the holders probably has the
    /// socket; 0: nobody is expected.
    pub(super) expected: AtomicU64,
}

impl State {
    /// Notes that the program of a child has the socket, and joins the holders once its library
    /// looks at it. One that has joined already is not expected.
    pub fn expect_holder(&self) {
        self.expect_receiver();
        if self.is_held_by_others() {
            self.holder_came();
        }
    }

    /// Notes that another process will get the socket in a message, and joins the holders then,
    /// whoever holds it now.
    pub fn expect_receiver(&self) {
        self.holders.expected.store(now().saturating_add(EXPECTED), Ordering::SeqCst);
    }

    /// Notes that the process that was expected has joined.
    pub(crate) fn holder_came(&self) {
        self.holders.expected.store(0, Ordering::SeqCst);
    }

    /// Returns whether another process holds the socket, or one is expected to.
    pub fn is_left_to_others(&self) -> bool {
        now() < self.holders.expected.load(Ordering::Acquire) || self.is_held_by_others()
    }
}

/// Number of holders with a place in the state, besides those beside the slot.
const HOLDERS: usize = 12;

/// Time in nanoseconds for which a process is expected to join the holders: as long as the state
/// stays for it.
const EXPECTED: u64 = 30_000_000_000;
