//! Calls that are at work on a number, for which `close` waits.
//!
//! A call makes several system calls on its descriptor's number. Were the number closed in between, and used for another file, the
//! next of them would go there: frames of one connection into another. So a call says when it begins, when it ends and when it sleeps;
//! `close` takes the number out of the table and waits for those that are awake, and who wakes looks whether the number is still there.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rddp_stream::Caller;

use super::{Held, Socket};
use crate::table;

/// A call that is at work, or sleeps, on one of the numbers of a socket.
#[derive(Debug)]
pub struct AtWork<'a> {
    held: &'a Held,
    fd: c_int,
}

impl Held {
    /// Begins a call on `fd`. `None`: that is not, or no longer, a number of this socket.
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
        table::is(self.fd, self.held.index())
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
    /// In the child of a `fork`: the threads that were at work are its parent's. Where there were
    /// none the page stays as it is, the parent's too.
    pub(super) fn none_at_work(&self) {
        for count in [&self.at_work, &self.asleep] {
            if count.load(Ordering::Relaxed) != 0 {
                count.store(0, Ordering::SeqCst);
            }
        }
    }

    /// A number of it is out of the table: waits for the calls that may not have seen it. They do not sleep, so that it is over in
    /// microseconds, unless the caller is a signal handler in the middle of one.
    pub(super) fn await_calls(&self) {
        if self.at_work.load(Ordering::SeqCst) == 0 {
            return;
        }
        let until = Instant::now() + LONGEST;
        while self.at_work.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            std::thread::yield_now();
        }
    }
}

/// What is at work that long is what called us.
const LONGEST: Duration = Duration::from_secs(1);
