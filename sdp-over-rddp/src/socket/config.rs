//! Settings of a socket, and what two ends have agreed on.

use core::time::Duration;

/// Settings of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Private receive buffers.
    pub buffers: u16,
    /// Octets of each, the base header included.
    pub buffer_size: u32,
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
    /// Wait of the passive end for the active one to take its advert back, when both send.
    pub tie_break: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            buffers: 64,
            buffer_size: 32 * 1024 + 16,
            max_adverts: 8,
            source_threshold: Some(64 * 1024),
            sink_threshold: Some(16 * 1024),
            sink_adverts: true,
            pipelined: true,
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
            tie_break: Duration::from_millis(100),
        }
    }
}
