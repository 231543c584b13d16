//! The C library's functions for signals, as called by this library.

use std::ffi::c_int;
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The type of `sigaction`.
pub type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
/// The type of `pthread_sigmask`.
pub type Sigmask = unsafe extern "C" fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int;

static SIGACTION: AtomicPtr<()> = AtomicPtr::new(libc::sigaction as Sigaction as *mut ());
static SIGMASK: AtomicPtr<()> = AtomicPtr::new(libc::pthread_sigmask as Sigmask as *mut ());

/// Sets the functions to call in place of those that this library is linked to. A library whose own
/// `sigaction` comes before the C library's passes the C library's functions here when it is
/// loaded.
///
/// # Safety
/// The functions keep the contracts of those whose types they have.
pub unsafe fn use_system(sigaction: Sigaction, sigmask: Sigmask) {
    SIGACTION.store(sigaction as *mut (), Ordering::Relaxed);
    SIGMASK.store(sigmask as *mut (), Ordering::Relaxed);
}

/// Returns the action that is installed for a signal, and installs `new`, if there is one.
pub(crate) fn action(signal: c_int, new: Option<&libc::sigaction>) -> Result<libc::sigaction, c_int> {
    let new = new.map_or(ptr::null(), ptr::from_ref);
    let mut before = no_action();
    // SAFETY: the static holds only functions of this type; both actions live until the call
    // returns.
    let done = unsafe {
        let sigaction: Sigaction = transmute(SIGACTION.load(Ordering::Relaxed));
        sigaction(signal, new, &raw mut before)
    };
    if done == 0 { Ok(before) } else { Err(errno()) }
}

/// Changes the calling thread's mask as `pthread_sigmask` does, and returns the mask from before.
pub(crate) fn mask(how: c_int, set: Option<&libc::sigset_t>) -> Result<libc::sigset_t, c_int> {
    let set = set.map_or(ptr::null(), ptr::from_ref);
    let mut before = no_signals();
    // SAFETY: the static holds only functions of this type; both sets live until the call returns.
    let failed = unsafe {
        let sigmask: Sigmask = transmute(SIGMASK.load(Ordering::Relaxed));
        sigmask(how, set, &raw mut before)
    };
    if failed == 0 { Ok(before) } else { Err(failed) }
}

/// Returns the default action, with no signal blocked.
pub(crate) fn no_action() -> libc::sigaction {
    // SAFETY: `sigaction` consists of integers, a set of signals and a nullable pointer, for which
    // all zeros is a value.
    unsafe { std::mem::zeroed() }
}

/// Returns the empty set.
pub(crate) fn no_signals() -> libc::sigset_t {
    // SAFETY: a set consists of integers.
    unsafe { std::mem::zeroed() }
}

/// Returns the kernel's number for the calling thread.
pub(crate) fn thread() -> c_int {
    // SAFETY: `gettid` has no arguments and cannot fail.
    unsafe { libc::gettid() }
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)
}
