//! Thresholds of SDP: the lengths from which on octets go without buffers at both ends.

use super::parse;

/// The threshold that no length reaches.
pub const NO_THRESHOLD: u32 = u32::MAX;

/// The thresholds that a policy sets, in octets; `None` where it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thresholds {
    /// The least call to send that is advertised to the peer (`SrcAvail`).
    pub source: Option<u32>,
    /// The least call to receive that is advertised (`SinkAvail`), or reads what a peer advertises
    /// into the program's memory.
    pub sink: Option<u32>,
}

impl Thresholds {
    /// Returns the threshold that a word means: a number of octets, `all` or `none`.
    pub fn of_word(word: &str) -> Option<u32> {
        parse::threshold(word)
    }
}
