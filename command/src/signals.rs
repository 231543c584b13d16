//! Ctrl-C and SIGTERM: a request to stop, for which every wait looks now and then.
//!
//! All threads block the signals, and one takes them by `sigwait`. A second signal ends the process
//! at once. So does the end of `GRACE` after the first, if the program has not stopped by then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

use crate::failure::{Failure, FailureKind};

static STOP: AtomicBool = AtomicBool::new(false);

/// Time limit for stopping in good order, from the first signal on. A server tells its clients, for
/// at most two seconds, and then waits for their ends of the connections as long.
const GRACE: Duration = Duration::from_secs(5);

/// The longest time that a wait should last between two checks.
pub const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Begins to handle the signals. To be called before any other thread is started.
pub fn install() -> Result<(), Failure> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    let failed = |error: std::io::Error| Failure::failed(format!("handling signals: {error}"));
    signals.thread_block().map_err(|error| failed(error.into()))?;
    thread::Builder::new().name("rddp-signals".into()).spawn(move || watch(signals)).map_err(failed)?;
    Ok(())
}

/// Waits for the signals, in a thread of its own.
fn watch(signals: SigSet) {
    if signals.wait().is_err() {
        return;
    }
    STOP.store(true, Ordering::Relaxed);
    // Should the thread not start, the program still stops: it only enforces the time limit.
    let _ = thread::Builder::new().spawn(|| {
        thread::sleep(GRACE);
        exit();
    });
    let _ = signals.wait();
    exit();
}

/// Ends the process at once.
fn exit() -> ! {
    std::process::exit(i32::from(FailureKind::Interrupted.code()))
}

/// Returns whether the program was asked to stop.
pub fn stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Returns an error if the program was asked to stop, for `?`.
pub fn check() -> Result<(), Failure> {
    if stopped() { Err(Failure::interrupted()) } else { Ok(()) }
}

/// Asks the program to stop, as the first Ctrl-C does, but sets no time limit.
pub fn stop() {
    STOP.store(true, Ordering::Relaxed);
}

/// Sleeps, unless the program was asked to stop.
pub fn sleep(time: Duration) -> Result<(), Failure> {
    let until = std::time::Instant::now() + time;
    loop {
        check()?;
        let left = until.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(CHECK_INTERVAL));
    }
}
