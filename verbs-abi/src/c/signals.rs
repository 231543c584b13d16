//! Signals during a sleep that the kernel cannot begin again.
//!
//! A `read(2)` that a signal ends goes on if the signal's handler was installed with `SA_RESTART`.
//! `poll` and `epoll_wait` never do, and do not tell which handler has run: so the handlers that
//! the program has installed are looked at.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU8, Ordering};

/// The effect of the program's handlers on calls, as far as has been looked.
static FOUND: AtomicU8 = AtomicU8::new(UNKNOWN);

const UNKNOWN: u8 = 0;
/// Each call goes on: there are no handlers, or they all have `SA_RESTART`.
const RESTART: u8 = 1;
/// Each call ends.
const END: u8 = 2;
/// That depends on the signal.
const MIXED: u8 = RESTART | END;

/// Signals that a thread raises itself by what it does, and so not in its sleep.
const FAULTS: [i32; 6] =
    [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Returns whether some of the program's handlers have `SA_RESTART` and others do not. Looked at
/// when it is first asked for, and again when a signal has ended a sleep that cannot go on.
pub(super) fn are_mixed() -> bool {
    let found = match FOUND.load(Ordering::Relaxed) {
        UNKNOWN => look(),
        found => found,
    };
    found == MIXED
}

/// Returns whether the signal that has just ended a sleep ends the program's call, too. If handlers
/// are mixed it does: a program that is told once too often asks again, one that is not may sleep
/// for ever.
pub(super) fn end_calls() -> bool {
    look() & END != 0
}

fn look() -> u8 {
    let others = (1..=libc::SIGRTMAX()).filter(|signal| !FAULTS.contains(signal));
    let found = others.filter_map(of_handler).fold(UNKNOWN, |found, one| found | one);
    let found = if found == UNKNOWN { RESTART } else { found };
    FOUND.store(found, Ordering::Relaxed);
    found
}

/// Returns what the handler of a signal does, if it has one.
fn of_handler(signal: i32) -> Option<u8> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: no action is set, and there is room for the one that is asked for. The call fails for
    // the signals that the C library keeps to itself.
    let action = unsafe {
        if libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) != 0 {
            return None;
        }
        action.assume_init()
    };
    match action.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => None,
        _ if action.sa_flags & libc::SA_RESTART != 0 => Some(RESTART),
        _ => Some(END),
    }
}
