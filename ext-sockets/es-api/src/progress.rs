//! The choice of the threads that make progress with operations that had to wait.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use rddp_real as real;

/// Name of the environment variable that sets the default: `caller` or `threads`.
pub const PROGRESS: &str = "RDDP_PROGRESS";

/// The threads that make progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Progress {
    /// The program's own threads, in the calls that they make.
    Caller = 0,
    /// Two threads of the process, one for each direction ([`crate::threads`]).
    Threads = 1,
}

static DEFAULT: AtomicI32 = AtomicI32::new(Progress::Caller as c_int);

impl Progress {
    /// Returns the choice of this number.
    pub fn numbered(value: c_int) -> Option<Self> {
        [Progress::Caller, Progress::Threads].into_iter().find(|progress| *progress as c_int == value)
    }

    /// Returns the choice of the environment; `caller` if there is none.
    pub fn of_process() -> Self {
        Self::numbered(DEFAULT.load(Ordering::Relaxed)).unwrap_or(Progress::Caller)
    }
}

/// Reads the environment when the library is loaded; an unknown word changes nothing.
pub fn load() {
    let word = real::secure_variable(PROGRESS);
    if word.is_some_and(|word| word == "threads") {
        DEFAULT.store(Progress::Threads as c_int, Ordering::Relaxed);
    }
}
