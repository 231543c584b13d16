//! The program's own signal handlers, called for faults that are not ours.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{mem, ptr};

/// The signals of a memory access that fails.
pub(crate) const SIGNALS: [c_int; 2] = [libc::SIGBUS, libc::SIGSEGV];

/// The program's action for each of these; null for the default.
static BEFORE: [AtomicPtr<libc::sigaction>; 2] = [const { AtomicPtr::new(ptr::null_mut()) }; 2];

/// Memory that went bad and that nobody has touched yet: `BUS_MCEERR_AO`.
const ABOUT_MEMORY_NOT_TOUCHED: c_int = 5;

fn before(signal: c_int) -> &'static AtomicPtr<libc::sigaction> {
    &BEFORE[usize::from(signal == SIGNALS[1])]
}

/// Notes the program's action. The memory for it stays: a handler may be reading it.
pub(crate) fn note(signal: c_int, action: libc::sigaction) {
    before(signal).store(Box::into_raw(Box::new(action)), Ordering::Release);
}

/// Returns whether an action calls a function.
pub(crate) fn calls(action: &libc::sigaction) -> bool {
    ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction)
}

/// Does what the program's action asks for.
///
/// # Safety
/// In a signal handler, with what the kernel gave it.
pub(crate) unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let noted = before(signal).load(Ordering::Acquire);
    // SAFETY: null, or a `Box` that `note` has leaked: it is never freed or changed.
    let action = unsafe { noted.as_ref() };
    // SAFETY: the caller passes on what the kernel gave its handler, which with `SA_SIGINFO` is a
    // `siginfo_t` that lives until the handler returns.
    let code = unsafe { (*info).si_code };
    let recurs = code > 0 && !(signal == libc::SIGBUS && code == ABOUT_MEMORY_NOT_TOUCHED);
    match action {
        Some(action) if calls(action) => {
            if action.sa_flags & libc::SA_RESETHAND != 0
                && before(signal)
                    .compare_exchange(noted, ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed)
                    .is_err()
            {
                // Another thread had its signal first: for this one the action is the default.
                return by_default(signal, recurs);
            }
            // SAFETY: `info` and `context` are the kernel's, by the caller's promise; `calls` has
            // found that the action calls a function.
            unsafe { call(action, signal, info, context) }
        }
        // A fault that is ignored would recur for ever: the kernel ends the process.
        Some(action) if action.sa_sigaction == libc::SIG_IGN && !recurs => {}
        _ => by_default(signal, recurs),
    }
}

/// Calls the program's handler with its signals blocked. The mask before is in the context, and
/// comes back with it.
///
/// # Safety
/// As of [`pass_on`]; `action` calls a function.
unsafe fn call(action: &libc::sigaction, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let mut blocked = action.sa_mask;
    // SAFETY: the program gave the kernel this function, to be called so.
    unsafe {
        if action.sa_flags & libc::SA_NODEFER == 0 {
            libc::sigaddset(&raw mut blocked, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, ptr::null_mut());
        if action.sa_flags & libc::SA_SIGINFO != 0 {
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                mem::transmute(action.sa_sigaction);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(c_int) = mem::transmute(action.sa_sigaction);
            handler(signal);
        }
    }
}

/// Ends the process by the signal: at the fault, which recurs, or here.
fn by_default(signal: c_int, recurs: bool) {
    // SAFETY: all zeros is the default action. Both calls may be made in a signal handler, and the
    // signal is not blocked, since it has come.
    unsafe {
        let default: libc::sigaction = mem::zeroed();
        libc::sigaction(signal, &raw const default, ptr::null_mut());
        if !recurs {
            libc::raise(signal);
        }
    }
}
