//! Locks that a signal handler may meet.
//!
//! A handler may call `close`, `getsockopt` or `fork` (POSIX says so) in the middle of such a call of the thread that it interrupts, which would wait for
//! itself. So as long as a thread has one of our locks it takes no signals but those of its own
//! faults; such a one that somebody sends is held back by the fault guard.

use std::cell::Cell;
use std::ffi::c_int;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::sigset_t;
use rddp_fault_guard::mask;

thread_local! {
    /// How many [`NoSignals`] there are, and the signals that the program had blocked before the first.
    static HELD: Cell<(u32, Option<sigset_t>)> = const { Cell::new((0, None)) };
}

/// As long as this lives the calling thread takes no signals.
#[derive(Debug)]
pub struct NoSignals {
    /// It is the thread's own.
    _here: std::marker::PhantomData<*const ()>,
}

impl NoSignals {
    /// From here on.
    #[must_use]
    pub fn here() -> Self {
        let (depth, before) = HELD.get();
        if depth == 0 {
            mask::lock();
            HELD.set((1, Some(block())));
        } else {
            HELD.set((depth + 1, before));
        }
        NoSignals { _here: std::marker::PhantomData }
    }
}

impl Drop for NoSignals {
    fn drop(&mut self) {
        let (depth, before) = HELD.get();
        HELD.set((depth - 1, before));
        if depth == 1
            && let Some(before) = before
        {
            // SAFETY: a set that the kernel gave.
            unsafe { super::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
            mask::unlock();
        }
    }
}

fn block() -> sigset_t {
    // SAFETY: all zero is a signal set; both live until the calls return.
    unsafe {
        let (mut all, mut before) = (mem::zeroed(), mem::zeroed());
        libc::sigfillset(&raw mut all);
        for signal in FAULTS {
            libc::sigdelset(&raw mut all, signal);
        }
        super::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        before
    }
}

/// The signals that a thread brings upon itself. Blocked, each of them would end the process whoever handles it.
const FAULTS: [c_int; 6] =
    [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Has the fault guard use the C library's own functions: those of these names are ours.
pub fn guard_by_these() {
    unsafe extern "C" fn sigaction(
        signal: c_int,
        new: *const libc::sigaction,
        old: *mut libc::sigaction,
    ) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { super::sigaction(signal, new, old) }
    }
    unsafe extern "C" fn sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { super::pthread_sigmask(how, set, old) }
    }
    // SAFETY: they are the C library's, of these names.
    unsafe { rddp_fault_guard::use_system(sigaction, sigmask) };
}

/// From here on the calling thread takes the signals of its own faults. Blocked, each of them would
/// end the process whoever handles it.
pub fn take_faults() {
    // SAFETY: all zero is a signal set; it lives until the call returns.
    unsafe {
        let mut faults: sigset_t = mem::zeroed();
        for signal in FAULTS {
            libc::sigaddset(&raw mut faults, signal);
        }
        super::pthread_sigmask(libc::SIG_UNBLOCK, &raw const faults, ptr::null_mut());
    }
}

/// A lock, held, and no signals.
#[derive(Debug)]
pub struct Locked<T: 'static> {
    // Dropped in this order.
    guard: MutexGuard<'static, T>,
    _no_signals: NoSignals,
}

/// Takes a lock. Whatever panicked with it, what it guards makes sense field by field.
pub fn lock<T>(mutex: &'static Mutex<T>) -> Locked<T> {
    let no_signals = NoSignals::here();
    Locked { guard: mutex.lock().unwrap_or_else(PoisonError::into_inner), _no_signals: no_signals }
}

impl<T> Deref for Locked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Locked<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
