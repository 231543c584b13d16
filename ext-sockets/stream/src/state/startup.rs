//! The part of a state that tells how far the startup has come.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::sys::now;

/// The part. All zeros: nothing of the startup is done.
#[repr(C)]
pub(crate) struct Startup {
    /// The phase of a stream that is not over, as a number of [`Phase`](super::Phase).
    pub(super) phase: AtomicU32,
    /// Set if this end may send: a good FPDU of the peer has come, or this end is the initiator
    /// (RFC 5044 §7.1.2).
    pub(crate) may_send: AtomicBool,
    /// Set once TCP is connected: from then on the startup may touch the socket.
    pub(crate) connected: AtomicBool,
    /// Set if no more octets of the program are taken before this end may send.
    pub(crate) early_full: AtomicBool,
    /// Time when the startup began, by [`now`]. 0: it has not.
    pub(super) began: AtomicU64,
}

impl Startup {
    /// Notes the time, unless the startup has begun already.
    pub(crate) fn note_beginning(&self) {
        let _ = self.began.compare_exchange(0, now().max(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns whether the startup has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.began.load(Ordering::Relaxed) > 0
    }

    /// Returns how long ago it began, if it has.
    pub(crate) fn age(&self) -> Option<Duration> {
        let began = self.began.load(Ordering::Relaxed);
        (began > 0).then(|| Duration::from_nanos(now().saturating_sub(began)))
    }

    /// Forgets what has been done, but for the phase: TCP could not connect.
    pub(super) fn begin_again(&self) {
        self.connected.store(false, Ordering::Relaxed);
        self.early_full.store(false, Ordering::Relaxed);
        self.began.store(0, Ordering::Relaxed);
    }
}
