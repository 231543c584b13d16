//! The time limit of startups that the environment sets.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rddp_real as real;

/// The variable that holds the limit, in milliseconds.
pub const STARTUP_TIMEOUT: &str = "RDDP_STARTUP_TIMEOUT";

/// The limit in milliseconds; 0: none is set.
static OF_PROCESS: AtomicU32 = AtomicU32::new(0);

/// Returns the limit of this process, if the environment sets one.
pub fn of_process() -> Option<Duration> {
    match OF_PROCESS.load(Ordering::Relaxed) {
        0 => None,
        milliseconds => Some(Duration::from_millis(milliseconds.into())),
    }
}

/// Reads the limit from the environment, when the library is loaded. A value that is no number is
/// ignored.
pub fn load() {
    let number = real::secure_variable(STARTUP_TIMEOUT).and_then(|word| word.to_str()?.parse().ok());
    OF_PROCESS.store(number.unwrap_or(0), Ordering::Relaxed);
}
