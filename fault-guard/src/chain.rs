//! The program's own signal handlers, called for faults that are not ours.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{mem, ptr};

use crate::{actions, held, mask, system};

/// The signals of a memory access that fails.
pub(crate) const SIGNALS: [c_int; 2] = [libc::SIGBUS, libc::SIGSEGV];

/// The program's action for each of these; null for the default.
static BEFORE: [AtomicPtr<libc::sigaction>; 2] = [const { AtomicPtr::new(ptr::null_mut()) }; 2];

/// Memory that went bad and that nobody has touched yet: `BUS_MCEERR_AO`.
const ABOUT_MEMORY_NOT_TOUCHED: c_int = 5;

fn before(signal: c_int) -> &'static AtomicPtr<libc::sigaction> {
    &BEFORE[usize::from(signal == SIGNALS[1])]
}

/// Notes the program's action, and returns the one before. Safe in a signal handler.
pub(crate) fn note(signal: c_int, action: libc::sigaction) -> libc::sigaction {
    let kept = ptr::from_ref(actions::keep(action)).cast_mut();
    let noted = before(signal).swap(kept, Ordering::AcqRel);
    // SAFETY: as in `program`.
    unsafe { noted.as_ref() }.copied().unwrap_or_else(system::no_action)
}

/// The program's action.
pub(crate) fn program(signal: c_int) -> libc::sigaction {
    // SAFETY: null, or an action that `actions::keep` has kept: it is never freed or changed.
    unsafe { before(signal).load(Ordering::Acquire).as_ref() }.copied().unwrap_or_else(system::no_action)
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
    // SAFETY: the caller's word.
    unsafe { mask::at_signal(context.cast()) };
    let noted = before(signal).load(Ordering::Acquire);
    // SAFETY: as in `program`.
    let action = unsafe { noted.as_ref() };
    // SAFETY: the caller passes on what the kernel gave its handler, which with `SA_SIGINFO` is a
    // `siginfo_t` that lives until the handler returns.
    let code = unsafe { (*info).si_code };
    let recurs = code > 0 && !(signal == libc::SIGBUS && code == ABOUT_MEMORY_NOT_TOUCHED);
    if mask::is_blocked(signal, !recurs) {
        if recurs {
            return by_default(signal, recurs);
        }
        // SAFETY: the caller's word.
        return unsafe { held::hold(signal, info) };
    }
    match action {
        Some(action) if calls(action) => {
            if action.sa_flags & libc::SA_RESETHAND != 0 && !reset(signal, noted) {
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

/// Makes the action the default one, as the kernel does, unless it has changed.
fn reset(signal: c_int, noted: *mut libc::sigaction) -> bool {
    // SAFETY: as in `program`.
    let mut action = unsafe { noted.as_ref() }.copied().unwrap_or_else(system::no_action);
    action.sa_sigaction = libc::SIG_DFL;
    let kept = ptr::from_ref(actions::keep(action)).cast_mut();
    before(signal).compare_exchange(noted, kept, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Calls the program's handler with its signals blocked. The mask before is in the context, and
/// comes back with it.
///
/// # Safety
/// As of [`pass_on`]; `action` calls a function.
unsafe fn call(action: &libc::sigaction, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let mut blocked = action.sa_mask;
    if action.sa_flags & libc::SA_NODEFER == 0 {
        // SAFETY: a set that lives.
        unsafe { libc::sigaddset(&raw mut blocked, signal) };
    }
    let at = ptr::from_ref(&blocked).addr();
    let mut kernels = blocked;
    let adopted = mask::is_adopted();
    if adopted {
        mask::scrub(&mut kernels);
        // SAFETY: `context` is the kernel's, by the caller's promise.
        unsafe { mask::begin_handler(at, &blocked, context.cast()) };
    }
    let _ = system::mask(libc::SIG_BLOCK, Some(&kernels));
    // SAFETY: the program gave the kernel this function, to be called so.
    unsafe {
        if action.sa_flags & libc::SA_SIGINFO != 0 {
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                mem::transmute(action.sa_sigaction);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(c_int) = mem::transmute(action.sa_sigaction);
            handler(signal);
        }
    }
    // Or the handler was the first to make a guarded call in this thread.
    if adopted || mask::is_adopted() {
        // SAFETY: as above.
        unsafe { mask::end_handler(at, context.cast()) };
    }
}

/// Ends the process by the signal: at the fault, which recurs, or here.
fn by_default(signal: c_int, recurs: bool) {
    let _ = system::action(signal, Some(&system::no_action()));
    if !recurs {
        // SAFETY: `raise` may be called in a signal handler, and the signal is not blocked, since
        // it has come.
        unsafe { libc::raise(signal) };
    }
}
