//! A device whose background thread does nothing.
//!
//! That thread becomes active when a program has not polled for a while, which on a busy machine is
//! a matter of chance: it would then read octets that the measured thread was to read. Here it is
//! stopped for good: a QP receives an FPDU whose CRC is wrong, the thread logs that, and the log
//! never returns. The only lock that it holds then is that QP's.

use std::io::Write;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rddp_rnic::Rnic;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, Subscriber, set_global_default};
use tracing::{Event, Metadata, level_filters::LevelFilter};

use crate::{End, Wire};

/// Time limit until the thread logs.
const PATIENCE: Duration = Duration::from_secs(60);

/// An FPDU of no octets with a wrong CRC.
const BAD_FPDU: [u8; 8] = [0, 0, 0, 0, 1, 2, 3, 4];

/// Name of the devices' background threads.
const BACKGROUND: &str = "rddp-progress";

/// Number of background threads that are stopped.
static STOPPED: AtomicUsize = AtomicUsize::new(0);

/// Makes a device whose background thread is stopped.
///
/// # Panics
/// As for [`freeze`].
pub(crate) fn frozen_rnic() -> Rnic {
    let rnic = Rnic::open().expect("a device");
    freeze(&rnic);
    rnic
}

/// Stops the background thread of a device.
///
/// # Panics
/// If its background thread logs nothing, or there is another log already.
pub(crate) fn freeze(rnic: &Rnic) {
    stop_background_by(|| {
        let bait = End::of(rnic, Wire::CRC);
        bait.peer().write_all(&BAD_FPDU).expect("the bait is connected");
        // Dropping it would wait for its lock.
        std::mem::forget(bait);
    });
}

/// Stops the background thread of a device for which this function finds something to log.
///
/// # Panics
/// If the background thread logs nothing, or there is another log already.
pub fn stop_background_by(bait: impl FnOnce()) {
    static TRAP: Once = Once::new();
    TRAP.call_once(|| set_global_default(Trap).expect("no other log"));
    let before = STOPPED.load(Ordering::Acquire);
    bait();
    let begun = Instant::now();
    while STOPPED.load(Ordering::Acquire) == before {
        assert!(begun.elapsed() < PATIENCE, "the background thread has not logged");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A log that never returns to background threads.
struct Trap;

impl Subscriber for Trap {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        thread::current().name() == Some(BACKGROUND)
    }

    /// Finer events are disabled as they are without a log, so that they cost no instructions
    /// either.
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn event(&self, _: &Event<'_>) {
        STOPPED.fetch_add(1, Ordering::Release);
        loop {
            thread::park();
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
