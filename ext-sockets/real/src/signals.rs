//! Locks that a signal handler may try to take.
//!
//! A handler may call `close`, `getsockopt` or `fork` (POSIX allows it) while the thread that it
//! interrupts is inside such a call; it would wait for a lock of its own thread. For that reason a
//! thread that holds one of our locks takes no signals but those of its own faults; a signal of
//! these that another process sends is held back by the fault guard.
//!
//! Each change of the mask is a system call. A call of ours that takes several locks one after the
//! other, and does not sleep in between, begins with a [`NoSignals`]: the locks in it then cost no
//! system call. The mask is really changed, rather than noted for handlers to see: a handler may
//! leave by `siglongjmp`, and the call that it interrupted is then never finished.

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
    /// Number of [`NoSignals`] values of this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// The signals that the program had blocked before the first of them.
    static BEFORE: Cell<Option<sigset_t>> = const { Cell::new(None) };
    /// The process ID, once it was asked for within them; else 0.
    static PROCESS: Cell<u32> = const { Cell::new(0) };
}

/// A span in which the calling thread takes no signals but those of its own faults.
#[derive(Debug)]
pub struct NoSignals {
    /// Keeps the value on its thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl NoSignals {
    /// Blocks the signals from here until the value is dropped.
    #[must_use]
    pub fn here() -> Self {
        let depth = DEPTH.get();
        if depth == 0 {
            // A handler that comes before the mask is set runs to its end; after that none comes.
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
            // A handler that runs from here on may leave by `siglongjmp`.
            mask::unlock();
            // SAFETY: `before` is a set that the kernel gave, and lives until the call returns.
            unsafe { super::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
            mask::deliver();
        }
    }
}

/// Returns the ID of the calling process: by a system call, but for later calls within a
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

/// Forgets the process ID: the calling thread is about to fork while it holds locks of ours.
pub fn forget_process() {
    PROCESS.set(0);
}

fn block() -> sigset_t {
    // SAFETY: all zero is a valid signal set; both sets live until the calls return.
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

/// The signals of a thread's own faults. If one of them is blocked, the fault ends the process
/// whatever handler the program has set.
const FAULTS: [c_int; 6] =
    [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Gives the fault guard the C library's own functions: by name it would find ours.
pub fn guard_by_these() {
    unsafe extern "C" fn sigaction(
        signal: c_int,
        new: *const libc::sigaction,
        old: *mut libc::sigaction,
    ) -> c_int {
        // SAFETY: the arguments are passed on unchanged to the C library's function of the same
        // contract.
        unsafe { super::sigaction(signal, new, old) }
    }
    unsafe extern "C" fn sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
        // SAFETY: as in `sigaction` here.
        unsafe { super::pthread_sigmask(how, set, old) }
    }
    // SAFETY: both keep the contract of the C library's functions of these names, which they call.
    unsafe { rddp_fault_guard::use_system(sigaction, sigmask) };
}

/// Blocks the signals of faults for the calling thread, one of ours that moves no octets of the
/// program's and has no faults of its own. One that is sent to the process is then for a thread of
/// the program's.
pub fn block_faults() {
    change_faults(libc::SIG_BLOCK);
    // The fault guard notes that they are blocked here, and would unblock them for its own use.
    mask::adopt_thread();
    change_faults(libc::SIG_BLOCK);
}

/// Unblocks the signals of faults for the calling thread. If one of them is blocked, the fault ends
/// the process whatever handler the program has set.
pub fn take_faults() {
    change_faults(libc::SIG_UNBLOCK);
}

fn change_faults(how: c_int) {
    // SAFETY: all zero is a valid signal set; it lives until the call returns.
    unsafe {
        let mut faults: sigset_t = mem::zeroed();
        for signal in FAULTS {
            libc::sigaddset(&raw mut faults, signal);
        }
        super::pthread_sigmask(how, &raw const faults, ptr::null_mut());
    }
}

/// A lock that is held, with signals blocked.
#[derive(Debug)]
pub struct Locked<T: 'static> {
    // Fields are dropped in this order.
    guard: MutexGuard<'static, T>,
    _lockable: Lockable,
    _no_signals: NoSignals,
}

/// Takes a lock. A panic while it was held does not poison it: each field of the guarded value
/// makes sense by itself.
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
        // SAFETY: all zero is a valid signal set, which lives until the calls return; the mask is
        // only read.
        unsafe {
            let mut now: sigset_t = mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), &raw mut now);
            libc::sigismember(&raw const now, signal) == 1
        }
    }

    #[test]
    fn the_outermost_span_blocks_all_signals_but_those_of_own_faults() {
        let outer = NoSignals::here();
        drop(NoSignals::here());
        assert!(is_blocked(libc::SIGALRM) && is_blocked(libc::SIGTERM));
        assert!(FAULTS.into_iter().all(|signal| !is_blocked(signal)));
        drop(outer);
        assert!(!is_blocked(libc::SIGALRM));
    }

    #[test]
    fn the_process_id_is_asked_for_anew_in_each_span_without_signals() {
        let no_signals = NoSignals::here();
        assert_eq!((process_id(), PROCESS.get()), (std::process::id(), std::process::id()));
        forget_process();
        assert_eq!((process_id(), PROCESS.get()), (std::process::id(), std::process::id()));
        drop(no_signals);
        assert_eq!((process_id(), PROCESS.get()), (std::process::id(), 0));
    }
}
