//! `pthread_cancel`: a thread is cancelled where it sleeps and nowhere else.
//!
//! Cancelling a thread unwinds its stack through frames of ours. While it sleeps it holds nothing
//! that another thread waits for, and no octets are being moved.

use std::cell::Cell;
use std::ffi::c_int;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

const ENABLE: c_int = 0;
const DISABLE: c_int = 1;

thread_local! {
    /// Set if the program lets this thread be cancelled; we forbid it meanwhile.
    static ALLOWED: Cell<bool> = const { Cell::new(false) };
}

fn set(state: c_int) -> c_int {
    let mut before = ENABLE;
    // SAFETY: takes an integer, and sets one that lives until the call returns.
    unsafe { pthread_setcancelstate(state, &raw mut before) };
    before
}

/// Keeps the calling thread from being cancelled, but where it sleeps, until dropped.
#[derive(Debug)]
pub struct Uncancelled {
    /// Set in the outermost value of the thread.
    ends: bool,
}

impl Uncancelled {
    /// Forbids cancelling from here on.
    #[must_use]
    pub fn here() -> Self {
        let ends = set(DISABLE) == ENABLE;
        if ends {
            ALLOWED.set(true);
        }
        Self { ends }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        if self.ends {
            ALLOWED.set(false);
            set(ENABLE);
        }
    }
}

/// Lets the calling thread be cancelled, if the program does, until dropped.
pub(super) struct Cancellable {
    allowed: bool,
}

impl Cancellable {
    pub(super) fn here() -> Self {
        let allowed = ALLOWED.get();
        if allowed {
            set(ENABLE);
        }
        Self { allowed }
    }
}

impl Drop for Cancellable {
    fn drop(&mut self) {
        if self.allowed {
            set(DISABLE);
        }
    }
}
