//! `epoll_ctl`, as the library itself calls it.

use std::ffi::c_int;

use libc::epoll_event;

use crate::wait::Wanted;

/// Changes a set. Leaves errno as it was.
///
/// # Errors
/// The errno of the call.
pub fn control(epoll: c_int, operation: c_int, fd: c_int, wanted: Wanted) -> Result<(), c_int> {
    let before = super::errno();
    let mut event = epoll_event { events: wanted.events, u64: wanted.data };
    // SAFETY: an event that lives until the call returns.
    let done = unsafe { super::epoll_ctl(epoll, operation, fd, &raw mut event) };
    let errno = super::errno();
    super::set_errno(before);
    if done == 0 { Ok(()) } else { Err(errno) }
}
