//! Locks that a signal handler may meet.
//!
//! A handler may call `close`, `getsockopt` or `fork` (POSIX says so) in the middle of such a call of the thread that it interrupts, which would wait for
//! itself. So as long as a thread has one of our locks it takes no signals but those of its own
//! faults; such a one that somebody sends is held back by the fault guard.
//!
//! Each change of the mask is a system call. A call of ours that takes several locks one after the
//! other, and does not sleep in between, begins with a [`NoSignals`]: those of its locks then cost
//! nothing. The mask is really changed, rather than noted for handlers to see: a handler may leave
//! by `siglongjmp`, and what it interrupted is then never gone on with.

use std::cell::Cell;
use std::ffi::c_int;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::sigset_t;
use rddp_fault_guard::mask;

use super::Lockable;

thread_local! {
    /// Number of [`NoSignals`] of this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// The signals that the program had blocked before the first.
    static BEFORE: Cell<Option<sigset_t>> = const { Cell::new(None) };
    /// The calling process, once it has been asked for since then; else 0.
    static PROCESS: Cell<u32> = const { Cell::new(0) };
}

/// A time in which the calling thread takes no signals but those of its own faults.
#[derive(Debug)]
pub struct NoSignals {
    /// It is the thread's own.
    _here: std::marker::PhantomData<*const ()>,
}

impl NoSignals {
    /// From here on.
    #[must_use]
    pub fn here() -> Self {
        let depth = DEPTH.get();
        if depth == 0 {
            // A handler that comes before the lock nests whole; behind it none comes.
            let before = block();
            mask::lock();
            BEFORE.set(Some(before));
        }
        DEPTH.set(depth + 1);
        NoSignals { _here: std::marker::PhantomData }
    }
}

impl Drop for NoSignals {
    fn drop(&mut self) {
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0
            && let Some(before) = BEFORE.take()
        {
            PROCESS.set(0);
            // A handler that runs from here on may leave by a jump.
            mask::unlock();
            // SAFETY: a set that the kernel gave.
            unsafe { super::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
            mask::deliver();
        }
    }
}

/// The number of the calling process: a system call, but not for the second time within a
/// [`NoSignals`].
pub fn process_id() -> u32 {
    if DEPTH.get() == 0 {
        return std::process::id();
    }
    if PROCESS.get() == 0 {
        PROCESS.set(std::process::id());
    }
    PROCESS.get()
}

/// The calling thread is about to fork, with locks of ours.
pub fn forget_process() {
    PROCESS.set(0);
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

/// The signals that a thread brings upon itself. Blocked, each of them would end the process
/// whoever handles it.
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
    _lockable: Lockable,
    _no_signals: NoSignals,
}

/// Takes a lock. Whatever panicked with it, what it guards makes sense field by field.
pub fn lock<T>(mutex: &'static Mutex<T>) -> Locked<T> {
    let no_signals = NoSignals::here();
    let lockable = Lockable::here();
    let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
    Locked { guard, _lockable: lockable, _no_signals: no_signals }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn is_blocked(signal: libc::c_int) -> bool {
        // SAFETY: all zero is a signal set, which lives until the calls return; asks only.
        unsafe {
            let mut now: sigset_t = mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), &raw mut now);
            libc::sigismember(&raw const now, signal) == 1
        }
    }

    #[test]
    fn the_outermost_blocks_all_signals_but_those_of_own_faults() {
        let outer = NoSignals::here();
        drop(NoSignals::here());
        assert!(is_blocked(libc::SIGALRM) && is_blocked(libc::SIGTERM));
        assert!(FAULTS.into_iter().all(|signal| !is_blocked(signal)));
        drop(outer);
        assert!(!is_blocked(libc::SIGALRM));
    }

    #[test]
    fn the_number_of_the_process_is_not_known_from_one_to_the_next() {
        let no_signals = NoSignals::here();
        assert_eq!((process_id(), PROCESS.get()), (std::process::id(), std::process::id()));
        forget_process();
        assert_eq!((process_id(), PROCESS.get()), (std::process::id(), std::process::id()));
        drop(no_signals);
        assert_eq!((process_id(), PROCESS.get()), (std::process::id(), 0));
    }
}
