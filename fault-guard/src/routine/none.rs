//! Unguarded work, on systems for which there is no routine.

use std::ffi::c_void;

use crate::Work;
use crate::mask::Signals;

/// Faults are not guarded on this system.
pub const GUARDED: bool = false;

/// Calls `work(to, from, len)`.
///
/// # Safety
/// The call is sound, also without a guard.
pub(crate) unsafe fn call(
    work: Work,
    to: *mut c_void,
    from: *const c_void,
    len: usize,
    _start: usize,
    _end: usize,
) -> u32 {
    // SAFETY: the caller promises that this call is sound with these arguments.
    unsafe { work(to, from, len) };
    0
}

/// Returns false: no fault is guarded work's, as none is guarded.
///
/// # Safety
/// Nothing is required here; the routines of other systems read the context.
pub(crate) unsafe fn recover(_address: Option<usize>, _context: *mut c_void) -> bool {
    false
}

/// Returns 0: no handler of ours asks.
///
/// # Safety
/// Nothing is required here, as of [`recover`].
pub(crate) unsafe fn stack_pointer(_context: *const libc::ucontext_t) -> usize {
    0
}

/// Returns what is noted of the calling thread's signals: nothing, as none is guarded.
pub(crate) fn signals() -> &'static Signals {
    thread_local! {
        // SAFETY: it is integers.
        static SIGNALS: Signals = const { unsafe { std::mem::zeroed() } };
    }
    // SAFETY: the thread's own, for as long as it runs: it has nothing to drop.
    SIGNALS.with(|signals| unsafe { &*std::ptr::from_ref(signals) })
}
