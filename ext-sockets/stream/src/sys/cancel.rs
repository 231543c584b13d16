//! `pthread_cancel`: a thread is cancelled where it sleeps and nowhere else.
//!
//! That unwinds its stack through frames of ours. Only there nothing is held that another thread waits for, and nothing is on the move.

use std::cell::Cell;
use std::ffi::c_int;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

const ENABLE: c_int = 0;
const DISABLE: c_int = 1;

thread_local! {
    /// Whether the program lets this thread be cancelled, as long as we do not.
    static ALLOWED: Cell<bool> = const { Cell::new(false) };
}

fn set(state: c_int) -> c_int {
    let mut before = ENABLE;
    // SAFETY: an integer, and one that is set.
    unsafe { pthread_setcancelstate(state, &raw mut before) };
    before
}

/// As long as this lives the calling thread is not cancelled, but where it sleeps.
#[derive(Debug)]
pub struct Uncancelled {
    /// It is the outermost.
    ends: bool,
}

impl Uncancelled {
    /// From here on.
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

/// As long as this lives the calling thread may be cancelled, if the program lets it.
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
