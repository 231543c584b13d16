//! Who makes progress with operations that could not be finished at once.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use rddp_real as real;

/// The variable that names the default: `caller` or `threads`.
pub const PROGRESS: &str = "RDDP_PROGRESS";

/// See the module.
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
    /// The one of this number.
    pub fn numbered(value: c_int) -> Option<Self> {
        [Progress::Caller, Progress::Threads].into_iter().find(|progress| *progress as c_int == value)
    }

    /// What the environment says; `caller` when it says nothing.
    pub fn of_process() -> Self {
        Self::numbered(DEFAULT.load(Ordering::Relaxed)).unwrap_or(Progress::Caller)
    }
}

/// Reads what the environment names; a word that is none of ours changes nothing. When the library is loaded.
pub fn load() {
    let word = real::secure_variable(PROGRESS);
    if word.is_some_and(|word| word == "threads") {
        DEFAULT.store(Progress::Threads as c_int, Ordering::Relaxed);
    }
}
