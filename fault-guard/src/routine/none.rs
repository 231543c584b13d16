//! Unguarded access, on systems for which there is no routine.

use std::ffi::c_void;

pub(crate) use libc::memcpy as copy;

use crate::Work;
use crate::mask::Signals;

/// Faults are not guarded on this system.
pub const GUARDED: bool = false;

/// Calls `work(to, from, len)`.
///
/// # Safety
/// The call is sound without a guard.
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

/// Calls `work(to, from, len)`, of which the compiler is asked to see nothing.
///
/// # Safety
/// The call is sound.
#[inline]
pub(crate) unsafe fn call_unseen(work: Work, to: *mut c_void, from: *const c_void, len: usize) {
    // SAFETY: the caller promises that this call is sound with these arguments.
    unsafe { std::hint::black_box(work)(to, from, len) };
}

/// Returns false: nothing is guarded, so guarded work caused no fault.
///
/// # Safety
/// Nothing is required here. The routines of other systems read the context.
pub(crate) unsafe fn recover(_address: Option<usize>, _context: *mut c_void) -> bool {
    false
}

/// Returns 0: no handler of this library is installed that could ask.
///
/// # Safety
/// Nothing is required here. The routines of other systems read the context.
pub(crate) unsafe fn stack_pointer(_context: *const libc::ucontext_t) -> usize {
    0
}

/// Returns the record of the calling thread's signals, which nothing here writes.
pub(crate) fn signals() -> &'static Signals {
    thread_local! {
        // SAFETY: `Signals` consists of integers, for which all zeros is a value.
        static SIGNALS: Signals = const { unsafe { std::mem::zeroed() } };
    }
    // SAFETY: the record belongs to the thread and exists as long as it runs: it has nothing to
    // drop.
    SIGNALS.with(|signals| unsafe { &*std::ptr::from_ref(signals) })
}
