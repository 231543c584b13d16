//! Settings of the Sockets Direct Protocol on a stream.

use rddp_sdp::wire::Mode;

/// Contents of the FPDUs of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The program's octets alone.
    Octets,
    /// Messages of SDP.
    Sdp(SdpOptions),
}

/// Ways of octets between the program's memory and the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// Each octet is copied by the kernel alone, from and to the program's memory.
    Direct,
    /// Each octet is also copied to a private buffer at either end, as in the papers on SDP.
    Private,
}

/// The settings of SDP; each end has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SdpOptions {
    /// Private receive buffers (Bufs): 256 to 2000, and no more than hold 32 MiB together; others
    /// are brought there. 0: as many as hold 4 MiB in FPDUs of the path.
    pub bufs: u16,
    /// Octets of a private receive buffer, the base header included; 65,517 at most. 0: those of
    /// four FPDUs of the path.
    pub size: u32,
    /// Octets from which a send advertises the program's memory; `u64::MAX`: never.
    pub threshold: u64,
    /// Octets from which the room of a receive decides how much is Read of the peer's adverts, and
    /// is offered to be written to. Smaller ones are served from what is Read for all calls.
    pub sink_threshold: u64,
    /// Way of the octets.
    pub copies: Copies,
    /// Mode that this end asks for on the half on which it sends. `None`: Combined, and Pipelined
    /// for sends of several adverts, or where the peer would like it. Buffered is asked for once:
    /// a peer that wants adverts changes it to Combined.
    pub mode: Option<Mode>,
    /// Sends without credits leave their octets in memory of the stream, where short ones are
    /// joined, and return. Somebody has to call
    /// [`meet_obligation`](crate::Stream::meet_obligation) for them.
    pub joins: bool,
}

impl SdpOptions {
    /// The default settings.
    pub const DEFAULT: Self = Self {
        bufs: 0,
        size: 0,
        threshold: u64::MAX,
        sink_threshold: 16 << 10,
        copies: Copies::Direct,
        mode: None,
        joins: false,
    };
}

impl Default for SdpOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}
