//! Modes, credits and buffers of a connection, for a program that asks.

use rddp_sdp::wire::Mode;

use crate::sdp::Stream;

/// Modes, buffers and credits of a connection, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SdpInfo {
    /// The mode of the half in which this end sends.
    pub send_mode: Mode,
    /// The mode of the half in which it receives.
    pub receive_mode: Mode,
    /// Messages that the peer has buffers for.
    pub credits: u32,
    /// Private receive buffers of this end.
    pub bufs: u32,
    /// Octets of each.
    pub buf_size: u32,
    /// Octets of each of the peer's.
    pub peer_buf_size: u32,
    /// Messages and octets sent by Data, octets that the program has received, octets absorbed,
    /// octets copied in memory of this end, waits for credits, octets of RDMA Reads (asked for, and
    /// answered), octets that this end has written by RDMA Writes.
    pub counters: [u64; 8],
}

impl Stream<'_> {
    /// Returns what there is to tell once the startup is over; `None` before.
    #[must_use]
    pub fn sdp_info(&self) -> Option<SdpInfo> {
        let rx = self.is_connected().then(|| self.lock_rx().ok()).flatten()?;
        Some(SdpInfo { counters: self.state.sdp.counters(), ..rx.sdp.info() })
    }
}
