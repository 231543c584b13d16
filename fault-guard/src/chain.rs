//! The program's own actions for SIGBUS and SIGSEGV, carried out for signals that guarded work did
//! not cause.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{mem, ptr};

use crate::{actions, held, mask, system};

/// The signals that the kernel sends for a memory access that fails.
pub(crate) const SIGNALS: [c_int; 2] = [libc::SIGBUS, libc::SIGSEGV];

/// The program's action for each of [`SIGNALS`]; null stands for the default action.
static BEFORE: [AtomicPtr<libc::sigaction>; 2] = [const { AtomicPtr::new(ptr::null_mut()) }; 2];

/// `BUS_MCEERR_AO`: memory has failed that no instruction has accessed yet.
const ABOUT_MEMORY_NOT_TOUCHED: c_int = 5;

/// Returns the place of a signal in [`SIGNALS`].
pub(crate) fn index(signal: c_int) -> usize {
    usize::from(signal == SIGNALS[1])
}

fn before(signal: c_int) -> &'static AtomicPtr<libc::sigaction> {
    &BEFORE[index(signal)]
}

/// Records the program's action, and returns the one recorded before. Safe in a signal handler.
pub(crate) fn record(signal: c_int, action: libc::sigaction) -> libc::sigaction {
    let kept = ptr::from_ref(actions::keep(action)).cast_mut();
    let recorded = before(signal).swap(kept, Ordering::AcqRel);
    // SAFETY: null, or an action that `actions::keep` has stored: it is never freed or changed.
    unsafe { recorded.as_ref() }.copied().unwrap_or_else(system::no_action)
}

/// Returns the program's action.
pub(crate) fn program(signal: c_int) -> libc::sigaction {
    // SAFETY: null, or an action that `actions::keep` has stored: it is never freed or changed.
    unsafe { before(signal).load(Ordering::Acquire).as_ref() }.copied().unwrap_or_else(system::no_action)
}

/// Returns whether an action calls a function.
pub(crate) fn calls(action: &libc::sigaction) -> bool {
    ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction)
}

/// Does what the program's action asks for.
///
/// # Safety
/// The caller is a signal handler, and passes what the kernel gave it.
pub(crate) unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: `context` is what the kernel gave the calling signal handler: a `ucontext_t` that
    // lives until it returns.
    unsafe { mask::at_signal(context.cast()) };
    let recorded = before(signal).load(Ordering::Acquire);
    // SAFETY: null, or an action that `actions::keep` has stored: it is never freed or changed.
    let action = unsafe { recorded.as_ref() };
    // SAFETY: the caller passes on what the kernel gave its handler, which with `SA_SIGINFO` is a
    // `siginfo_t` that lives until the handler returns.
    let code = unsafe { (*info).si_code };
    // A fault of an instruction happens again when the handler returns, unless the handler has
    // removed the cause. A signal that somebody sent, or a report of memory not accessed yet, does
    // not.
    let recurs = code > 0 && !(signal == libc::SIGBUS && code == ABOUT_MEMORY_NOT_TOUCHED);
    if mask::is_blocked(signal, !recurs) {
        // The kernel ends a process whose thread blocks the signal of its own fault.
        if recurs {
            return by_default(signal, recurs);
        }
        // SAFETY: `info` is what the kernel gave the handler of `signal`.
        return unsafe { held::hold(signal, info) };
    }
    match action {
        Some(action) if calls(action) => {
            if action.sa_flags & libc::SA_RESETHAND != 0 && !reset(signal, recorded) {
                // Another thread's signal has already used up an action for one call: for this one
                // the action is the default.
                return by_default(signal, recurs);
            }
            // SAFETY: `info` and `context` are the kernel's, by the caller's promise; `calls` has
            // found that the action calls a function.
            unsafe { call(action, signal, info, context) }
        }
        // A fault that is ignored would happen again for ever; the kernel ends the process, and so
        // does `by_default`.
        Some(action) if action.sa_sigaction == libc::SIG_IGN && !recurs => {}
        _ => by_default(signal, recurs),
    }
}

/// Sets the action to the default, as the kernel does for `SA_RESETHAND`. Returns false if the
/// action has changed since `recorded` was read.
fn reset(signal: c_int, recorded: *mut libc::sigaction) -> bool {
    // SAFETY: null, or an action that `actions::keep` has stored: it is never freed or changed.
    let mut action = unsafe { recorded.as_ref() }.copied().unwrap_or_else(system::no_action);
    action.sa_sigaction = libc::SIG_DFL;
    let kept = ptr::from_ref(actions::keep(action)).cast_mut();
    before(signal).compare_exchange(recorded, kept, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Calls the program's handler with the signals blocked that its action asks for. The mask from
/// before is in the context, and is restored with it when our handler returns.
///
/// # Safety
/// Those of [`pass_on`]; and `action` calls a function.
unsafe fn call(action: &libc::sigaction, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let mut blocked = action.sa_mask;
    if action.sa_flags & libc::SA_NODEFER == 0 {
        // SAFETY: `blocked` is a valid set on this stack.
        unsafe { libc::sigaddset(&raw mut blocked, signal) };
    }
    let at = ptr::from_ref(&blocked).addr();
    let mut kernels = blocked;
    let adopted = mask::is_adopted();
    if adopted {
        mask::scrub(&mut kernels);
        // SAFETY: `context` is what the kernel gave the calling handler, in whose frames `blocked`
        // lies.
        unsafe { mask::begin_handler(at, &blocked, context.cast()) };
    }
    let _ = system::mask(libc::SIG_BLOCK, Some(&kernels));
    // SAFETY: the program installed this function as a handler of the kind that its flags say, and
    // the arguments are what the kernel passes to one.
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
    // The handler may itself have been the first to make a guarded call in this thread, and so have
    // adopted it.
    if adopted || mask::is_adopted() {
        // SAFETY: `context` is what the kernel gave the calling handler.
        unsafe { mask::end_handler(at, context.cast()) };
    }
}

/// Ends the process by the signal, as its default action does. A fault that happens again ends it
/// when the handler returns; any other signal is raised here.
fn by_default(signal: c_int, recurs: bool) {
    let _ = system::action(signal, Some(&system::no_action()));
    if !recurs {
        // SAFETY: `raise` may be called in a signal handler, and the signal is not blocked, since
        // it has come.
        unsafe { libc::raise(signal) };
    }
}
