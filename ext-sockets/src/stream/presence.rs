//! Whether a descriptor is still the socket that it was: another thread may close it while a call sleeps.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

/// What calls on a socket and its `close` know of each other, in one process.
///
/// A closed number is another file's in a moment. So a call that has slept asks whether a number was closed before it touches its own again, and
/// who closes the last one waits until the calls that are awake have left.
#[derive(Debug)]
pub struct Presence {
    cookie: AtomicU64,
    closings: AtomicU32,
    closed: AtomicBool,
    asleep: AtomicU32,
}

impl Presence {
    /// Of no socket yet.
    #[must_use]
    pub const fn new() -> Self {
        let (closings, asleep) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { cookie: AtomicU64::new(0), closings, closed: AtomicBool::new(false), asleep }
    }

    /// Of the socket that has this `SO_COOKIE`.
    pub fn begin(&self, cookie: u64) {
        self.closed.store(false, SeqCst);
        self.asleep.store(0, SeqCst);
        self.cookie.store(cookie, SeqCst);
    }

    /// The socket's `SO_COOKIE`.
    #[must_use]
    pub fn cookie(&self) -> u64 {
        self.cookie.load(SeqCst)
    }

    /// One of its numbers is about to be closed.
    pub fn number_closed(&self) {
        self.closings.fetch_add(1, SeqCst);
    }

    /// The last of them is.
    pub fn close(&self) {
        self.closed.store(true, SeqCst);
    }

    /// Whether [`close`](Self::close) was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// How many calls sleep.
    #[must_use]
    pub fn asleep(&self) -> u32 {
        self.asleep.load(SeqCst)
    }

    /// As long as the result lives, the call sleeps.
    #[must_use]
    pub fn nap(&self) -> Nap<'_> {
        self.asleep.fetch_add(1, SeqCst);
        Nap { presence: self, closings: self.closings.load(SeqCst) }
    }
}

impl Default for Presence {
    fn default() -> Self {
        Self::new()
    }
}

/// See [`Presence::nap`].
#[derive(Debug)]
pub struct Nap<'a> {
    presence: &'a Presence,
    closings: u32,
}

impl Nap<'_> {
    /// Whether a number of the socket was closed since the call fell asleep: its own may be another file's.
    #[must_use]
    pub fn has_missed_something(&self) -> bool {
        self.presence.closings.load(SeqCst) != self.closings
    }
}

impl Drop for Nap<'_> {
    fn drop(&mut self) {
        self.presence.asleep.fetch_sub(1, SeqCst);
    }
}
