//! Ctrl-C and SIGTERM: a request to stop, which every wait checks now and then.
//!
//! The signals are blocked in all threads but one, which waits for them. A second signal ends the
//! process at once, and so does a program that has not stopped a few seconds after the first.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

use crate::failure::{Failure, Kind};

static STOP: AtomicBool = AtomicBool::new(false);

/// Time within which the program must stop in good order.
const GRACE: Duration = Duration::from_secs(3);

/// The longest time that a wait should last between two checks.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// Begins to handle the signals. To be called before any other thread is started.
pub(crate) fn install() -> Result<(), Failure> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    let failed = |error: std::io::Error| Failure::failed(format!("handling signals: {error}"));
    signals.thread_block().map_err(|error| failed(error.into()))?;
    thread::Builder::new().name("rddp-signals".into()).spawn(move || watch(signals)).map_err(failed)?;
    Ok(())
}

fn watch(signals: SigSet) {
    if signals.wait().is_err() {
        return;
    }
    STOP.store(true, Ordering::Relaxed);
    // Without this thread the program still stops: the thread only limits how long that takes.
    let _ = thread::Builder::new().spawn(|| {
        thread::sleep(GRACE);
        leave();
    });
    let _ = signals.wait();
    leave();
}

fn leave() -> ! {
    std::process::exit(i32::from(Kind::Interrupted.code()))
}

/// Returns whether the program was asked to stop.
pub(crate) fn stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Returns an error if the program was asked to stop, for `?`.
pub(crate) fn check() -> Result<(), Failure> {
    if stopped() { Err(Failure::interrupted()) } else { Ok(()) }
}

/// Makes the program stop, as Ctrl-C does.
pub(crate) fn stop() {
    STOP.store(true, Ordering::Relaxed);
}

/// Sleeps, unless the program was asked to stop.
pub(crate) fn sleep(time: Duration) -> Result<(), Failure> {
    let until = std::time::Instant::now() + time;
    loop {
        check()?;
        let left = until.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(LOOK));
    }
}
