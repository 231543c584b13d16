//! SDP's part of the state that all holders of a socket share, besides what lies under the locks of
//! the directions; and the settings that a program may change at any time.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rddp_sdp::wire::Mode;

use super::options::{AskedFormat, SdpOptions, mode_of};
use crate::Errno;
use crate::fields::{Field, fields};
use crate::state::State;
use crate::sys::Guarded;

/// The part. All zeros until a stream of SDP begins, and in all others.
#[repr(C)]
pub(crate) struct Part {
    /// Set while a send waits for credits of the peer, and not for room at TCP: see [`BLOCKED`].
    pub(crate) blocked: AtomicU32,
    /// Mode that this end asks for where it sends, as a number of [`mode_of`].
    mode: AtomicU32,
    /// Octets from which a send advertises its memory, inverted: 0 is never.
    not_threshold: AtomicU64,
    /// Octets from which the room of a receive counts for itself, inverted.
    not_sink_threshold: AtomicU64,
    /// The thresholds that were set for this socket alone, as bits.
    own_thresholds: AtomicU32,
    /// 1 while an update of credits that only answers one is held back.
    pub(super) holds_update: AtomicU32,
    /// Time by [`now`](crate::sys::now) from which such an update may go.
    pub(super) next_update: AtomicU64,
    /// The nudges that may yet go, and when: see `nudge.rs`.
    pub(super) nudges: AtomicU64,
    /// Number of adverts of this end that stand in memory of the stream, or that the last octets of
    /// them are owed.
    pub(super) spilled: AtomicU64,
    /// Counts of the connection: see `counters.rs`.
    pub(super) counters: [AtomicU64; 8],
    /// Held by the thread whose call has its memory behind adverts of this end; the number of such
    /// calls.
    pub(super) lender: Guarded<u64>,
}

impl Part {
    pub(crate) const FIELDS: &[Field] = fields!(Part: blocked, mode, not_threshold, not_sink_threshold,
        own_thresholds, holds_update, next_update, nudges, spilled, counters, lender);

    /// Begins with the options of a stream.
    pub(crate) fn begin(&mut self, asked: &AskedFormat) -> Result<(), Errno> {
        let SdpOptions { threshold, sink_threshold, mode, .. } = asked.sdp();
        self.not_threshold.store(!threshold, Ordering::Relaxed);
        self.not_sink_threshold.store(!sink_threshold, Ordering::Relaxed);
        self.set_mode(mode);
        self.lender.init()
    }

    /// Returns whether sends wait for credits, as [`BLOCKED`] and others tell, and whether a nudge
    /// may yet be due.
    pub(crate) fn condition(&self) -> (u32, bool) {
        (self.blocked.load(Ordering::Acquire), self.may_nudge())
    }

    fn set_mode(&self, mode: Option<Mode>) {
        self.mode.store(mode.map_or(0, |mode| mode as u32 + 1), Ordering::Relaxed);
    }
}

impl State {
    /// Sets the octets from which a blocking send advertises the program's memory, so that the peer
    /// reads from there (SDP). `u64::MAX`: never.
    pub fn set_threshold(&self, octets: u64) {
        self.sdp.not_threshold.store(!octets, Ordering::Relaxed);
    }

    /// Returns what [`set_threshold`](Self::set_threshold) has set.
    #[inline]
    #[must_use]
    pub fn threshold(&self) -> u64 {
        !self.sdp.not_threshold.load(Ordering::Relaxed)
    }

    /// Sets [`SdpOptions::sink_threshold`] for receives from now on. `u64::MAX`: all receives are
    /// served from what is Read for all calls.
    pub fn set_sink_threshold(&self, octets: u64) {
        self.sdp.not_sink_threshold.store(!octets, Ordering::Relaxed);
    }

    pub(super) fn sink_threshold(&self) -> u64 {
        !self.sdp.not_sink_threshold.load(Ordering::Relaxed)
    }

    /// Notes which of the thresholds were set for this socket alone, and are not the program's.
    pub fn note_own_thresholds(&self, source: bool, sink: bool) {
        let bits = if source { OF_SOURCE } else { 0 } | if sink { OF_SINK } else { 0 };
        self.sdp.own_thresholds.store(bits, Ordering::Relaxed);
    }

    /// Returns the thresholds of source and sink that were set for this socket alone: they hold in
    /// whatever program has the socket.
    #[must_use]
    pub fn own_thresholds(&self) -> (Option<u64>, Option<u64>) {
        let bits = self.sdp.own_thresholds.load(Ordering::Relaxed);
        let source = (bits & OF_SOURCE != 0).then(|| self.threshold());
        (source, (bits & OF_SINK != 0).then(|| self.sink_threshold()))
    }

    /// Sets [`SdpOptions::mode`] for what is sent from now on.
    pub fn set_mode(&self, mode: Option<Mode>) {
        self.sdp.set_mode(mode);
    }

    #[inline]
    pub(super) fn mode(&self) -> Option<Mode> {
        mode_of(self.sdp.mode.load(Ordering::Relaxed))
    }
}

const OF_SOURCE: u32 = 1;
const OF_SINK: u32 = 2;

/// A send has credits.
pub(crate) const NOT_BLOCKED: u32 = 0;
/// A send waits for octets, which bring credits.
pub(crate) const BLOCKED: u32 = 1;
/// A send waits for octets behind some that the program has not read: the socket is readable, and
/// cannot tell of more.
pub(crate) const BLOCKED_BEHIND: u32 = 2;
/// Set besides where the only octet that is there is the urgent one, which is none of the stream.
pub(crate) const AT_MARK: u32 = 4;
/// Set besides where a send would find a few credits, of which no wait is told.
pub(crate) const SHORT: u32 = 8;
