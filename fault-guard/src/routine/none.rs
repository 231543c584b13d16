//! Where there is no routine: the work is done unguarded.

use std::ffi::c_void;

use crate::Work;

/// Whether faults are guarded on this system.
pub const GUARDED: bool = false;

/// Calls `work(to, from, len)`.
///
/// # Safety
/// That of the call.
pub(crate) unsafe fn call(
    work: Work,
    to: *mut c_void,
    from: *const c_void,
    len: usize,
    _start: usize,
    _end: usize,
) -> u32 {
    // SAFETY: the caller's word.
    unsafe { work(to, from, len) };
    0
}

/// No fault is the guarded work's.
///
/// # Safety
/// None is needed; other systems' needs it.
pub(crate) unsafe fn recover(_address: usize, _context: *mut c_void) -> bool {
    false
}
