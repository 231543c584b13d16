//! Calls at work on a descriptor's number; `close` waits for them.
//!
//! A call makes several system calls on its descriptor's number. If the number were closed in
//! between and used for another file, the next system call would go to that file: frames of one
//! connection would end up in another. So a call notes when it begins, when it ends and when it
//! sleeps. `close` takes the number out of the table and waits for the calls that are awake; a call
//! that wakes up checks whether its number is still there. The exit of the process does so with all
//! sockets at once.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rddp_stream::Caller;

use super::{Held, Socket};
use crate::{exit, table};

/// A call that is at work, or sleeps, on one of the numbers of a socket.
#[derive(Debug)]
pub struct AtWork<'a> {
    held: &'a Held,
    fd: c_int,
}

impl Held {
    /// Begins a call on `fd`; `None` if that is not, or no longer, a number of this socket.
    #[inline]
    pub fn work_on(&self, fd: c_int) -> Option<AtWork<'_>> {
        let call = AtWork { held: self, fd };
        call.at_work().fetch_add(1, Ordering::SeqCst);
        call.is_there().then_some(call)
    }
}

impl AtWork<'_> {
    fn at_work(&self) -> &AtomicU32 {
        &self.held.socket().at_work
    }

    fn is_there(&self) -> bool {
        table::is(self.fd, self.held.index()) && !exit::is_anothers()
    }
}

impl Caller for AtWork<'_> {
    fn sleeps(&self) {
        self.held.socket().asleep.fetch_add(1, Ordering::SeqCst);
        self.at_work().fetch_sub(1, Ordering::SeqCst);
    }

    fn wakes(&self) -> bool {
        self.at_work().fetch_add(1, Ordering::SeqCst);
        self.held.socket().asleep.fetch_sub(1, Ordering::SeqCst);
        self.is_there()
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.at_work().fetch_sub(1, Ordering::SeqCst);
    }
}

impl Socket {
    /// Resets the counts in the child of a `fork`: the threads that were at work are its parent's.
    /// Counts of zero are not written, so that their page stays shared with the parent.
    pub(super) fn none_at_work(&self) {
        for count in [&self.at_work, &self.asleep] {
            if count.load(Ordering::Relaxed) != 0 {
                count.store(0, Ordering::SeqCst);
            }
        }
    }

    /// Waits, after a number has left the table, for the calls that may not have noticed. They do
    /// not sleep, so the wait takes microseconds, unless the caller is a signal handler that
    /// interrupted one of them.
    pub(super) fn await_calls(&self) {
        if self.at_work.load(Ordering::SeqCst) > 0 {
            self.await_calls_until(Instant::now() + LONGEST);
        }
    }

    /// Waits for the calls until this moment.
    pub(super) fn await_calls_until(&self, until: Instant) {
        while self.at_work.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            std::thread::yield_now();
        }
    }
}

/// The longest wait for a call; one that is at work for longer is the one that this handler
/// interrupted.
pub(super) const LONGEST: Duration = Duration::from_secs(1);
