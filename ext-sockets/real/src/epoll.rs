//! Functions of `epoll`, for the library's own use.

use std::ffi::c_int;
use std::time::Duration;

use libc::epoll_event;
use rddp_stream::{Errno, SameErrno};

/// Events to watch for on one descriptor of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Events and flags.
    pub events: u32,
    /// Value of the caller's own, returned with every event.
    pub data: u64,
}

/// Adds a descriptor to a set, changes it or takes it out (`epoll_ctl`). Leaves errno as it was.
///
/// # Errors
/// The errno of the call.
pub fn control(epoll: c_int, operation: c_int, fd: c_int, wanted: Wanted) -> Result<(), Errno> {
    let _same = SameErrno::here();
    let mut event = epoll_event { events: wanted.events, u64: wanted.data };
    // SAFETY: the event lives until the call returns, and the kernel only reads it.
    let done = unsafe { super::epoll_ctl(epoll, operation, fd, &raw mut event) };
    if done == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// Makes a set that `exec` closes. Leaves errno as it was.
pub fn new_set() -> Option<c_int> {
    let _same = SameErrno::here();
    // SAFETY: takes an integer.
    let set = unsafe { super::epoll_create1(libc::EPOLL_CLOEXEC) };
    (set >= 0).then_some(set)
}

/// Sleeps until a descriptor in the set is ready, or `timeout` is over. Fills `ready` with the
/// values given to [`control`] and returns their number. many of `ready` were filled.
pub fn wait_for_set<const ROOM: usize>(set: c_int, ready: &mut [u64; ROOM], timeout: Duration) -> usize {
    let mut events = [epoll_event { events: 0, u64: 0 }; ROOM];
    let timeout = timeout.as_millis() as c_int; // less than a second
    // SAFETY: `events` has a place for each of the `ROOM` events that the kernel may write.
    let count = unsafe { super::epoll_wait(set, events.as_mut_ptr(), ROOM as c_int, timeout) };
    if count < 0 && Errno::last() != Errno::INTERRUPTED {
        // A program that closes every number there is has closed this one. Without the sleep its
        // caller would spin.
        std::thread::sleep(Duration::from_millis(timeout as u64));
    }
    let count = usize::try_from(count).unwrap_or(0);
    ready.iter_mut().zip(&events[..count]).for_each(|(ready, event)| *ready = event.u64);
    count
}
