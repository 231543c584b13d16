//! Settings of a socket, and what two ends have agreed on.

use core::time::Duration;

/// Settings of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Private receive buffers.
    pub buffers: u16,
    /// Octets of each, the base header included.
    pub buffer_size: u32,
    /// Octets of the longest message that this end makes, the base header included, where that is
    /// more than `buffer_size`: it asks the peer for larger buffers.
    pub send_size: u32,
    /// Octets to which its own receive buffers grow when the peer asks.
    pub largest_buffer: u32,
    /// Adverts of the peer that this end takes at a time.
    pub max_adverts: u8,
    /// Shortest blocking send that is advertised; `None` for `BCopy` alone. 0 advertises each.
    pub source_threshold: Option<usize>,
    /// Shortest blocking receive into which a peer's advert is Read; shorter ones are Read into
    /// private memory. `None` for private memory alone.
    pub sink_threshold: Option<usize>,
    /// Advertises buffers of blocking receives, where the peer's half is in Pipelined mode.
    pub sink_adverts: bool,
    /// Changes to Pipelined mode when two sends are queued.
    pub pipelined: bool,
    /// Changes back to Combined mode when nothing is left to be sent and the peer prefers it.
    pub returns_to_combined: bool,
    /// Changes to Buffered mode at the beginning, if `source_threshold` is `None`: the peer learns
    /// that no advert will come. A peer whose receives want adverts changes back.
    pub buffered: bool,
    /// Longest advert; longer operations have several.
    pub longest_advert: u32,
    /// Octets of a peer's adverts that are Read into private memory before a receive asks for them.
    pub read_ahead: usize,
    /// Time limits.
    pub times: Times,
}

/// Time limits of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Wait for the answer to a cancel, or for progress in closing, before the connection is
    /// aborted.
    pub answer: Duration,
    /// Wait of an advert that nobody reads, before it is taken back and sent as Data.
    pub advert: Duration,
    /// Wait of a peer's advert for a receive, before its octets are Read into private memory.
    pub read_ahead: Duration,
    /// Time between two updates of credits that only answer an update.
    pub update: Duration,
    /// Wait of the passive end for the active one to take its advert back, when both send.
    pub tie_break: Duration,
}

impl Config {
    /// Returns the octets of the longest message that this end makes, the base header included.
    #[must_use]
    pub fn longest_message(&self) -> u32 {
        self.send_size.max(self.buffer_size)
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            buffers: 64,
            buffer_size: 32 * 1024 + 16,
            send_size: 0,
            largest_buffer: 128 * 1024 + 16,
            max_adverts: 8,
            source_threshold: Some(64 * 1024),
            sink_threshold: Some(16 * 1024),
            sink_adverts: true,
            pipelined: true,
            returns_to_combined: false,
            buffered: false,
            longest_advert: 1 << 20,
            read_ahead: 1 << 18,
            times: Times::default(),
        }
    }
}

impl Default for Times {
    fn default() -> Self {
        Times {
            answer: Duration::from_secs(60),
            advert: Duration::from_secs(1),
            read_ahead: Duration::from_millis(100),
            update: Duration::from_millis(250),
            tie_break: Duration::from_millis(100),
        }
    }
}
