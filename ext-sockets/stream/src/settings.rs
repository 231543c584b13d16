//! Settings of a stream that the program may change at any time: thresholds and mode of SDP, time
//! limits, and the low-water mark. They hold for all processes that hold the socket.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::SdpMode;
use super::sdp::mode_of;
use super::state::State;

impl State {
    /// Sets the octets from which a blocking send advertises the program's memory, so that the peer
    /// reads from there (SDP). `u64::MAX`: never.
    pub fn set_threshold(&self, octets: u64) {
        self.not_threshold.store(!octets, Ordering::Relaxed);
    }

    /// Returns what [`set_threshold`](Self::set_threshold) has set.
    #[inline]
    #[must_use]
    pub fn threshold(&self) -> u64 {
        !self.not_threshold.load(Ordering::Relaxed)
    }

    /// Sets [`SdpOptions::sink_threshold`](crate::SdpOptions::sink_threshold) for receives from now
    /// on. `u64::MAX`: all receives are served from what is Read for all calls.
    pub fn set_sink_threshold(&self, octets: u64) {
        self.not_sink_threshold.store(!octets, Ordering::Relaxed);
    }

    pub(super) fn sink_threshold(&self) -> u64 {
        !self.not_sink_threshold.load(Ordering::Relaxed)
    }

    /// Notes which of the thresholds were set for this socket alone, and are not the program's.
    pub fn note_own_thresholds(&self, source: bool, sink: bool) {
        let bits = if source { OF_SOURCE } else { 0 } | if sink { OF_SINK } else { 0 };
        self.own_thresholds.store(bits, Ordering::Relaxed);
    }

    /// Returns the thresholds of source and sink that were set for this socket alone: they hold in
    /// whatever program has the socket.
    #[must_use]
    pub fn own_thresholds(&self) -> (Option<u64>, Option<u64>) {
        let bits = self.own_thresholds.load(Ordering::Relaxed);
        let source = (bits & OF_SOURCE != 0).then(|| self.threshold());
        (source, (bits & OF_SINK != 0).then(|| self.sink_threshold()))
    }

    /// Sets [`SdpOptions::mode`](crate::SdpOptions::mode) for what is sent from now on.
    pub fn set_mode(&self, mode: Option<SdpMode>) {
        self.mode.store(mode.map_or(0, |mode| mode as u32 + 1), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn mode(&self) -> Option<SdpMode> {
        mode_of(self.mode.load(Ordering::Relaxed))
    }

    /// Sets how long a receiving call may wait (`SO_RCVTIMEO`). `None`, or zero, is without limit.
    pub fn set_receive_timeout(&self, timeout: Option<Duration>) {
        self.receive_timeout.store(nanoseconds(timeout), Ordering::Relaxed);
    }

    /// Sets how long a sending call may wait (`SO_SNDTIMEO`).
    pub fn set_send_timeout(&self, timeout: Option<Duration>) {
        self.send_timeout.store(nanoseconds(timeout), Ordering::Relaxed);
    }

    /// Sets how many octets a receiving call that waits returns at least, if there is room for them
    /// (`SO_RCVLOWAT`).
    pub fn set_low_water(&self, octets: u32) {
        self.low_water.store(octets, Ordering::Relaxed);
    }

    pub(super) fn low_water(&self) -> usize {
        self.low_water.load(Ordering::Relaxed).max(1) as usize
    }

    /// Returns the time set by [`set_receive_timeout`](Self::set_receive_timeout).
    #[must_use]
    pub fn receive_timeout(&self) -> Option<Duration> {
        duration(self.receive_timeout.load(Ordering::Relaxed))
    }

    /// Returns the time set by [`set_send_timeout`](Self::set_send_timeout).
    #[must_use]
    pub fn send_timeout(&self) -> Option<Duration> {
        duration(self.send_timeout.load(Ordering::Relaxed))
    }
}

fn nanoseconds(timeout: Option<Duration>) -> u64 {
    timeout.map_or(0, |timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
}

fn duration(nanoseconds: u64) -> Option<Duration> {
    (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
}

const OF_SOURCE: u32 = 1;
const OF_SINK: u32 = 2;
