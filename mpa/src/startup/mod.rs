//! From a TCP connection to Full Operation: the Request and the Reply (RFC 5044 §7.1, RFC 6581).
//!
//! [`Initiator`] and [`Responder`] are shown what has come of the peer's one frame, like
//! [`Deframer`](crate::Deframer) is; both end in a [`Negotiated`], which says how to frame each direction and how
//! deep the Read queues are. Timers, closing and the sending of a Terminate are the caller's, and so is holding back
//! the responder's FPDUs until one of the initiator's has come (RFC 5044 §7.1.2 rule 4). The private data of either
//! side is opaque here; the four octets that RFC 6581 puts in front of it never reach the ULP.

mod error;
mod frame;
mod initiator;
mod negotiation;
mod responder;

use std::fmt;

use crate::framing::Framing;

pub use error::{StartupError, StartupMisuse};
pub use frame::{EnhancedData, Frame, FrameKind, Parsed};
pub use initiator::{Initiator, InitiatorStep};
pub use responder::{Request, Responder, ResponderStep};

/// The most private data in a plain frame (RFC 5044 §7.1.1).
pub const MAX_PRIVATE_DATA: usize = 512;
/// The most private data of the ULP in an enhanced frame: four octets go to [`EnhancedData`] (RFC 6581 §9).
pub const MAX_ENHANCED_PRIVATE_DATA: usize = MAX_PRIVATE_DATA - EnhancedData::LEN;
/// In place of an IRD or ORD: the ULP sees to this depth, leave it alone (RFC 6581 §9.1).
pub const ULP_NEGOTIATES: u16 = 0x3fff;
/// The deepest IRD or ORD that can be negotiated.
pub const DEPTH_MAX: u16 = ULP_NEGOTIATES - 1;

/// The revision of MPA in a startup frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// RFC 5044.
    One = 1,
    /// RFC 6581.
    Two = 2,
}

/// The zero-length message by which the initiator of a peer-to-peer connection says that it is ready to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rtr {
    /// A Send. It consumes a receive of the responder's user.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read. It takes a place in both ends' Read queues until it has been answered.
    Read,
}

/// Kinds of RTR: offered in a Request, accepted in a Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtrSet {
    /// [`Rtr::Send`], control flag B.
    pub send: bool,
    /// [`Rtr::Write`], control flag C.
    pub write: bool,
    /// [`Rtr::Read`], control flag D.
    pub read: bool,
}

impl RtrSet {
    /// No kind at all.
    pub const NONE: Self = Self { send: false, write: false, read: false };
    /// The kinds that do not consume a receive of the responder's user.
    pub const SILENT: Self = Self { send: false, write: true, read: true };
    /// Every kind.
    pub const ALL: Self = Self { send: true, write: true, read: true };

    /// This kind alone.
    #[must_use]
    pub const fn only(kind: Rtr) -> Self {
        Self {
            send: matches!(kind, Rtr::Send),
            write: matches!(kind, Rtr::Write),
            read: matches!(kind, Rtr::Read),
        }
    }

    /// Whether `kind` is among them.
    #[must_use]
    pub const fn contains(self, kind: Rtr) -> bool {
        match kind {
            Rtr::Send => self.send,
            Rtr::Write => self.write,
            Rtr::Read => self.read,
        }
    }

    /// Whether there is no kind among them.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        !(self.send || self.write || self.read)
    }

    /// The kinds that are in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            send: self.send && other.send,
            write: self.write && other.write,
            read: self.read && other.read,
        }
    }
}

impl fmt::Display for Rtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "Send",
            Self::Write => "Write",
            Self::Read => "Read",
        })
    }
}

impl fmt::Display for RtrSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [Rtr::Send, Rtr::Write, Rtr::Read].into_iter().filter(|&kind| self.contains(kind));
        for (nth, kind) in kinds.enumerate() {
            write!(f, "{}{kind}", if nth == 0 { "" } else { ", " })?;
        }
        if self.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

/// What this end of a connection wants.
///
/// The default is to ask for CRCs and for no markers, with Read queues 32 deep, offering both kinds of RTR that cost
/// the peer's user nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupConfig {
    /// Initiator only: `Two` sends RFC 6581's frames, `One` plain ones. A responder answers in kind.
    pub revision: Revision,
    /// Prefer CRCs. They are used if either end does. RFC 5044 §4.4 wants this on unless an administrator said no.
    pub crc: bool,
    /// The peer must put markers into what it sends here.
    pub markers: bool,
    /// Inbound Reads that this end takes at a time.
    pub ird: u16,
    /// Outbound Reads that this end wants outstanding at a time.
    pub ord: u16,
    /// Up to where `ird` may be raised when the peer wants more.
    pub max_ird: u16,
    /// Inbound Reads that a peer is taken to stand at a time where the startup does not say
    /// (revision 1): outbound ones are no more than that. The default is 1, since one too many ends
    /// the connection (RFC 5040 §6.1).
    pub assumed_ird: u16,
    /// Initiator only: ask for a peer-to-peer connection, in which an RTR goes first. Revision 2 only.
    pub peer_to_peer: bool,
    /// Initiator: the kinds of RTR it can send. Responder: those it accepts.
    pub rtr: RtrSet,
}

impl Default for StartupConfig {
    fn default() -> Self {
        Self {
            revision: Revision::Two,
            // RFC 5044 §4.4: the default is to use CRCs.
            crc: true,
            markers: false,
            ird: 32,
            ord: 32,
            max_ird: 128,
            assumed_ird: 1,
            peer_to_peer: true,
            rtr: RtrSet::SILENT,
        }
    }
}

/// What both ends hold to once the Reply has been sent or received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Of the Reply.
    pub revision: Revision,
    /// RFC 6581's data was exchanged.
    pub enhanced: bool,
    /// CRCs are generated and checked, both ways.
    pub crc: bool,
    /// Markers go into what this end sends.
    pub markers_tx: bool,
    /// Markers are in what this end receives.
    pub markers_rx: bool,
    /// Inbound Reads that this end must be ready for.
    pub ird: u16,
    /// Outbound Reads that this end may have outstanding.
    pub ord: u16,
    /// Initiator: the RTR it must send before anything else. Responder: the kind it named.
    pub rtr: Option<Rtr>,
    /// The peer's IRD as it was sent, for the ULP. It may be [`ULP_NEGOTIATES`].
    pub peer_ird: Option<u16>,
    /// The peer's ORD as it was sent, for the ULP. It may be [`ULP_NEGOTIATES`].
    pub peer_ord: Option<u16>,
}

impl Negotiated {
    /// For the [`Framer`](crate::Framer).
    #[must_use]
    pub const fn tx(&self) -> Framing {
        Framing { crc: self.crc, markers: self.markers_tx }
    }

    /// For the [`Deframer`](crate::Deframer).
    #[must_use]
    pub const fn rx(&self) -> Framing {
        Framing { crc: self.crc, markers: self.markers_rx }
    }
}
