//! The signal handler for faults in guarded work, and its installation: [`install`].

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, mem, ptr};

use crate::chain::{self, SIGNALS};
use crate::routine;

/// Installs the handler of SIGBUS and SIGSEGV, once for the process. What the program had installed
/// is called for every signal that is not a guarded copy's.
///
/// A program that installs its own later, and calls from it what it found, keeps the guard; one
/// that does not call it has none. Nor has a thread that blocks these signals: there the kernel
/// ends the process. The handler runs on the thread's alternate stack, if it has one, whatever the
/// program's asked for.
pub fn install() -> io::Result<()> {
    static DONE: AtomicBool = AtomicBool::new(!routine::GUARDED);
    if DONE.load(Ordering::Acquire) {
        return Ok(());
    }
    // Two threads may both do this. Neither waits for the other, which `fork` may take away.
    SIGNALS.into_iter().try_for_each(install_for)?;
    DONE.store(true, Ordering::Release);
    Ok(())
}

fn install_for(signal: c_int) -> io::Result<()> {
    let before = action(signal, None)?;
    if before.sa_sigaction == ours() {
        return Ok(());
    }
    // Known before the first signal can come.
    chain::note(signal, before);
    // SAFETY: `sigaction` is integers, a set of signals and a nullable pointer: all zeros is a
    // value of it, and means the default action with no signal blocked.
    let mut new: libc::sigaction = unsafe { mem::zeroed() };
    new.sa_sigaction = ours();
    // A call that a stray signal interrupts is restarted as it was before.
    let restart = if chain::calls(&before) { before.sa_flags & libc::SA_RESTART } else { libc::SA_RESTART };
    new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | restart;
    let replaced = action(signal, Some(&new))?;
    // Another thread of the program may have come in between; or another of ours.
    if replaced.sa_sigaction != ours() && replaced.sa_sigaction != before.sa_sigaction {
        chain::note(signal, replaced);
    }
    Ok(())
}

/// Returns the action that is installed for a signal, and installs `new`, if there is one.
fn action(signal: c_int, new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: as in `install_for`, all zeros is a value of `sigaction`; the kernel overwrites it.
    let mut before: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: both are actions, or null; the handler is fit for any signal at any time.
    match unsafe { libc::sigaction(signal, new, &raw mut before) } {
        0 => Ok(before),
        _ => Err(io::Error::last_os_error()),
    }
}

fn ours() -> libc::sighandler_t {
    on_signal as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as libc::sighandler_t
}

/// Allocates and locks nothing, and changes no `errno` of the program's.
extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: with `SA_SIGINFO` the kernel gives both; of these signals of its own it tells the
    // address.
    let recovered = unsafe {
        let by_kernel = (*info).si_code > 0;
        by_kernel && routine::recover((*info).si_addr().addr(), context)
    };
    if !recovered {
        // SAFETY: this is a signal handler, and all three are what the kernel called it with.
        unsafe { chain::pass_on(signal, info, context) };
    }
}
