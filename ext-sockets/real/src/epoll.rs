//! `epoll_ctl`, as the library itself calls it.

use std::ffi::c_int;
use std::time::Duration;

use libc::epoll_event;
use rddp_stream::{Errno, SameErrno};

/// What is asked of one descriptor in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Events and flags.
    pub events: u32,
    /// The asker's own, told with every event.
    pub data: u64,
}

/// Changes a set. Leaves errno as it was.
///
/// # Errors
/// That of the call.
pub fn control(epoll: c_int, operation: c_int, fd: c_int, wanted: Wanted) -> Result<(), Errno> {
    let _same = SameErrno::here();
    let mut event = epoll_event { events: wanted.events, u64: wanted.data };
    // SAFETY: an event that lives until the call returns.
    let done = unsafe { super::epoll_ctl(epoll, operation, fd, &raw mut event) };
    if done == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// A set of our own, closed by `exec`. Leaves errno as it was.
pub fn new_set() -> Option<c_int> {
    let _same = SameErrno::here();
    // SAFETY: an integer.
    let set = unsafe { super::epoll_create1(libc::EPOLL_CLOEXEC) };
    (set >= 0).then_some(set)
}

/// Sleeps until a set of our own has something to tell, or for so long. Whose events there are: how
/// many of `ready` were filled.
pub fn wait_for_set<const ROOM: usize>(set: c_int, ready: &mut [u64; ROOM], timeout: Duration) -> usize {
    let mut events = [epoll_event { events: 0, u64: 0 }; ROOM];
    let timeout = timeout.as_millis() as c_int; // a part of a second
    // SAFETY: there is room for as many events as are said.
    let count = unsafe { super::epoll_wait(set, events.as_mut_ptr(), ROOM as c_int, timeout) };
    if count < 0 && Errno::last() != Errno::INTERRUPTED {
        // A program that closes every number there is has closed this one.
        std::thread::sleep(Duration::from_millis(timeout as u64));
    }
    let count = usize::try_from(count).unwrap_or(0);
    ready.iter_mut().zip(&events[..count]).for_each(|(ready, event)| *ready = event.u64);
    count
}
