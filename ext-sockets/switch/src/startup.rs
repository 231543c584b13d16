//! Time limit of startups, where the environment has one.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rddp_real as real;

/// The variable that names it, in milliseconds.
pub const STARTUP_TIMEOUT: &str = "RDDP_STARTUP_TIMEOUT";

/// Milliseconds; 0: nothing is said.
static OF_PROCESS: AtomicU32 = AtomicU32::new(0);

/// Returns what the environment says.
pub fn of_process() -> Option<Duration> {
    match OF_PROCESS.load(Ordering::Relaxed) {
        0 => None,
        milliseconds => Some(Duration::from_millis(milliseconds.into())),
    }
}

/// Reads what the environment names; what is no number changes nothing. When the library is loaded.
pub fn load() {
    let number = real::secure_variable(STARTUP_TIMEOUT).and_then(|word| word.to_str()?.parse().ok());
    OF_PROCESS.store(number.unwrap_or(0), Ordering::Relaxed);
}
