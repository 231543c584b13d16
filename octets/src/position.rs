//! The receiving direction between two calls, as plain data.

use rddp_ddp::Msn;
use rddp_mpa::{Framing, Negotiated};

/// The values of the receiving direction that both ends have agreed on.
/// ```
/// use rddp_mpa::Framing;
/// use rddp_octets::Terms;
///
/// let terms = Terms { crc: true, ..Terms::default() };
/// assert_eq!(terms.framing(), Framing { crc: true, markers: false });
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// True if FPDUs have a CRC.
    pub crc: bool,
    /// True if markers stand in the peer's stream (RFC 5044 §4.3).
    pub markers: bool,
    /// Reads of the peer that may be outstanding.
    pub ird: u32,
    /// Reads of this end that may be outstanding.
    pub ord: u32,
}

impl Terms {
    /// Returns what a startup has agreed on.
    #[must_use]
    pub fn of(negotiated: &Negotiated) -> Self {
        let &Negotiated { crc, markers_rx: markers, ird, ord, .. } = negotiated;
        Self { crc, markers, ird: ird.into(), ord: ord.into() }
    }

    /// Returns the framing of the peer's stream.
    #[inline]
    #[must_use]
    pub const fn framing(&self) -> Framing {
        Framing { crc: self.crc, markers: self.markers }
    }
}

/// The state of the receiving direction between two calls.
///
/// It is plain data, and may lie in memory that processes share: whoever reads it there makes sure
/// that the truths are 0 or 1. Any other values are a stream's.
///
/// ```
/// use rddp_octets::Position;
///
/// // An initiator whose RTR was a Read awaits the Response to it.
/// let at = Position { rtr_read: true, ..Position::FIRST };
/// assert_eq!((at.octets, at.msn), (0, 1));
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Octets of the FPDUs taken, counted as [`rddp_mpa::Deframer::at`] does.
    pub octets: u64,
    /// Message Offset in the Send that comes or is open.
    pub mo: u64,
    /// MSN of that Send.
    pub msn: u32,
    /// MSN of the peer's next Read Request.
    pub request_msn: u32,
    /// True while a Send is open: more of its segments follow.
    pub is_open: bool,
    /// `RsvdULP` of the open Send.
    pub open_ulp: u8,
    /// True if a Read without octets was this end's RTR (RFC 6581 §9.2), and is not answered yet.
    pub rtr_read: bool,
}

impl Position {
    /// The position before the first FPDU.
    pub const FIRST: Self = Self {
        octets: 0,
        mo: 0,
        msn: Msn::FIRST.0,
        request_msn: Msn::FIRST.0,
        is_open: false,
        open_ulp: 0,
        rtr_read: false,
    };
}
