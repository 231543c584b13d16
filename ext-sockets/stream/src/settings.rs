//! Settings of a stream that the program may change at any time: time limits, and the low-water
//! mark. They hold for all processes that hold the socket.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::state::State;

impl State {
    /// Sets how long a receiving call may wait (`SO_RCVTIMEO`). `None`, or zero, is without limit.
    pub fn set_receive_timeout(&self, timeout: Option<Duration>) {
        self.flow.receive_timeout.store(nanoseconds(timeout), Ordering::Relaxed);
    }

    /// Sets how long a sending call may wait (`SO_SNDTIMEO`).
    pub fn set_send_timeout(&self, timeout: Option<Duration>) {
        self.flow.send_timeout.store(nanoseconds(timeout), Ordering::Relaxed);
    }

    /// Sets how many octets a receiving call that waits returns at least, if there is room for them
    /// (`SO_RCVLOWAT`).
    pub fn set_low_water(&self, octets: u32) {
        self.flow.low_water.store(octets, Ordering::Relaxed);
    }

    pub(super) fn low_water(&self) -> usize {
        self.flow.low_water.load(Ordering::Relaxed).max(1) as usize
    }

    /// Returns the time set by [`set_receive_timeout`](Self::set_receive_timeout).
    #[must_use]
    pub fn receive_timeout(&self) -> Option<Duration> {
        duration(self.flow.receive_timeout.load(Ordering::Relaxed))
    }

    /// Returns the time set by [`set_send_timeout`](Self::set_send_timeout).
    #[must_use]
    pub fn send_timeout(&self) -> Option<Duration> {
        duration(self.flow.send_timeout.load(Ordering::Relaxed))
    }
}

fn nanoseconds(timeout: Option<Duration>) -> u64 {
    timeout.map_or(0, |timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
}

fn duration(nanoseconds: u64) -> Option<Duration> {
    (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
}
