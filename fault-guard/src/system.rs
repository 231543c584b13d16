//! The C library's functions for signals, as this library calls them.

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

/// Has these called in place of those that this library is linked to: a library that puts its own
/// `sigaction` before the C library's names the C library's here, when it is loaded.
///
/// # Safety
/// They keep the contracts of the functions whose types they have.
pub unsafe fn use_system(sigaction: Sigaction, sigmask: Sigmask) {
    SIGACTION.store(sigaction as *mut (), Ordering::Relaxed);
    SIGMASK.store(sigmask as *mut (), Ordering::Relaxed);
}

/// Returns the action that is installed for a signal, and installs `new`, if there is one.
pub(crate) fn action(signal: c_int, new: Option<&libc::sigaction>) -> Result<libc::sigaction, c_int> {
    let new = new.map_or(ptr::null(), ptr::from_ref);
    let mut before = no_action();
    // SAFETY: the statics hold functions of this type alone; both actions live until it returns.
    let done = unsafe {
        let sigaction: Sigaction = transmute(SIGACTION.load(Ordering::Relaxed));
        sigaction(signal, new, &raw mut before)
    };
    if done == 0 { Ok(before) } else { Err(errno()) }
}

/// Changes the calling thread's mask as `pthread_sigmask` does, and returns the one before.
pub(crate) fn mask(how: c_int, set: Option<&libc::sigset_t>) -> Result<libc::sigset_t, c_int> {
    let set = set.map_or(ptr::null(), ptr::from_ref);
    let mut before = no_signals();
    // SAFETY: as in `action`.
    let failed = unsafe {
        let sigmask: Sigmask = transmute(SIGMASK.load(Ordering::Relaxed));
        sigmask(how, set, &raw mut before)
    };
    if failed == 0 { Ok(before) } else { Err(failed) }
}

/// The default action, with no signal blocked.
pub(crate) fn no_action() -> libc::sigaction {
    // SAFETY: `sigaction` is integers, a set of signals and a nullable pointer: all zeros is a
    // value of it.
    unsafe { std::mem::zeroed() }
}

/// The empty set.
pub(crate) fn no_signals() -> libc::sigset_t {
    // SAFETY: a set is integers.
    unsafe { std::mem::zeroed() }
}

/// The calling thread's number, as the kernel counts.
pub(crate) fn thread() -> c_int {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)
}
