//! Startup: from a TCP connection to Full Operation by a Request and a Reply (RFC 5044 §7.1,
//! RFC 6581).
//!
//! The caller shows [`Initiator`] and [`Responder`] what has arrived of the peer's one frame, as it
//! does with [`Deframer`](crate::Deframer). Both end in a [`Negotiated`], which says how each
//! direction is framed and how deep the Read queues are. The caller keeps the timers, closes, sends
//! a Terminate, and holds back the responder's FPDUs until one of the initiator's has arrived
//! (RFC 5044 §7.1.2 rule 4). The private data of both sides is opaque here; the four octets that
//! RFC 6581 puts in front of it never reach the ULP.

mod error;
mod frame;
mod initiator;
mod negotiation;
mod responder;

use std::fmt;

use crate::framing::Framing;

pub use error::{StartupError, StartupMisuse};
pub use frame::{EnhancedData, Frame, FrameKind, FrameOctets, Parsed};
pub use initiator::{Initiator, InitiatorStep};
pub use responder::{Request, Responder, ResponderStep};

/// The most private data in a plain frame (RFC 5044 §7.1.1).
pub const MAX_PRIVATE_DATA: usize = 512;
/// The most private data of the ULP in an enhanced frame: four octets go to [`EnhancedData`]
/// (RFC 6581 §9).
pub const MAX_ENHANCED_PRIVATE_DATA: usize = MAX_PRIVATE_DATA - EnhancedData::LEN;
/// The value in place of an IRD or ORD that says: the ULP settles this depth, MPA leaves it alone
/// (RFC 6581 §9.1).
pub const ULP_NEGOTIATES: u16 = 0x3fff;
/// The deepest IRD or ORD that can be negotiated.
pub const DEPTH_MAX: u16 = ULP_NEGOTIATES - 1;

/// The revision of MPA in a startup frame.
///
/// ```
/// use rddp_mpa::{Revision, StartupConfig};
/// assert_eq!(StartupConfig::default().revision, Revision::Two);
/// assert!(Revision::One < Revision::Two);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// RFC 5044.
    One = 1,
    /// RFC 6581.
    Two = 2,
}

/// The zero-length message (ready to receive) that the initiator of a peer-to-peer connection sends
/// before all others.
///
/// ```
/// use rddp_mpa::{Rtr, RtrSet};
/// // A Send would take a receive of the program's, which the silent kinds do not.
/// assert!(!RtrSet::SILENT.contains(Rtr::Send) && RtrSet::SILENT.contains(Rtr::Read));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rtr {
    /// A Send. It consumes a receive that the responder's program posted.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read. It occupies an entry of both ends' Read queues until it has been answered.
    Read,
}

impl Rtr {
    /// Returns whether the responder answers an RTR of this kind. An initiator has to read the
    /// Response to a Read: a kernel that closes a connection with octets unread resets it.
    #[must_use]
    pub const fn is_answered(self) -> bool {
        matches!(self, Self::Read)
    }
}

/// A set of kinds of RTR: those offered in a Request, or accepted in a Reply.
///
/// ```
/// use rddp_mpa::{Rtr, RtrSet};
/// let (offered, wanted) = (RtrSet::SILENT, RtrSet { send: true, ..RtrSet::only(Rtr::Write) });
/// assert_eq!(offered.and(wanted), RtrSet::only(Rtr::Write));
/// ```
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
    /// The kinds that do not consume a receive of the responder's program.
    pub const SILENT: Self = Self { send: false, write: true, read: true };
    /// Every kind.
    pub const ALL: Self = Self { send: true, write: true, read: true };

    /// The set of this kind alone.
    #[must_use]
    pub const fn only(kind: Rtr) -> Self {
        Self {
            send: matches!(kind, Rtr::Send),
            write: matches!(kind, Rtr::Write),
            read: matches!(kind, Rtr::Read),
        }
    }

    /// Returns whether `kind` is in the set.
    #[must_use]
    pub const fn contains(self, kind: Rtr) -> bool {
        match kind {
            Rtr::Send => self.send,
            Rtr::Write => self.write,
            Rtr::Read => self.read,
        }
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        !(self.send || self.write || self.read)
    }

    /// Returns the kinds that are not [answered](Rtr::is_answered).
    #[must_use]
    pub const fn unanswered(self) -> Self {
        Self { read: false, ..self }
    }

    /// Returns the kinds that a responder accepts of those `offered`, if the initiator's program
    /// should neither wake for a Response nor have to read it: of kinds that both ends know, a
    /// Write alone.
    #[must_use]
    pub const fn write_if_offered(self, offered: Self) -> Self {
        if self.and(offered).write { Self::only(Rtr::Write) } else { self }
    }

    /// Returns the kinds that are in both sets.
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

/// The parameters that this end of a connection asks for.
///
/// The default asks for CRCs and for no markers, has Read queues 32 deep, and offers both kinds of
/// RTR that do not consume a receive of the peer's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupConfig {
    /// Initiator only: `Two` sends the frames of RFC 6581, `One` plain ones. A responder replies in
    /// the revision of the Request.
    pub revision: Revision,
    /// Ask for CRCs. They are used if either end asks. RFC 5044 §4.4 wants this on unless an
    /// administrator turns it off.
    pub crc: bool,
    /// Ask for markers: the peer must put them into what it sends here.
    pub markers: bool,
    /// Inbound Reads that this end takes at a time.
    pub ird: u16,
    /// Outbound Reads that this end wants outstanding at a time.
    pub ord: u16,
    /// The value up to which `ird` may be raised when the peer wants more.
    pub max_ird: u16,
    /// Inbound Reads that the peer is assumed to take at a time when the startup does not say
    /// (revision 1). This end's ORD is then at most this. The default is 1, since one Read too many
    /// ends the connection (RFC 5040 §6.1).
    pub assumed_ird: u16,
    /// Initiator only, and only in revision 2: ask for a peer-to-peer connection, in which the
    /// initiator sends an RTR first.
    pub peer_to_peer: bool,
    /// Initiator: the kinds of RTR that it can send. Responder: those that it accepts.
    pub rtr: RtrSet,
    /// Ask the peer, and consent if it asks, that FPDUs of up to
    /// [`LARGE_FPDU`](crate::LARGE_FPDU) octets are sent whatever the EMSS, in both directions. Not
    /// with markers.
    ///
    /// A deviation from RFC 5044 §4.5, by a bit that §7.1.1 reserves: the one by which siw asks for
    /// its own. A responder that echoes reserved bits seems to consent.
    pub large_fpdus: bool,
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
            large_fpdus: false,
        }
    }
}

/// The parameters of a connection once the Reply has been sent or received.
///
/// ```
/// use rddp_mpa::{Framer, Negotiated};
/// fn sender(negotiated: &Negotiated) -> Framer {
///     assert!(negotiated.ord <= rddp_mpa::DEPTH_MAX, "so many Reads at a time");
///     Framer::new(negotiated.tx())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The revision of the Reply.
    pub revision: Revision,
    /// The data of RFC 6581 was exchanged.
    pub enhanced: bool,
    /// CRCs are generated and checked, in both directions.
    pub crc: bool,
    /// Markers go into what this end sends.
    pub markers_tx: bool,
    /// Markers are in what this end receives.
    pub markers_rx: bool,
    /// Inbound Reads that this end must be able to take at a time.
    pub ird: u16,
    /// Outbound Reads that this end may have outstanding at a time.
    pub ord: u16,
    /// Initiator: the RTR that it must send before anything else. Responder: the kind that its
    /// Reply named.
    pub rtr: Option<Rtr>,
    /// FPDUs that this end sends may be longer than a TCP segment: up to
    /// [`LARGE_FPDU`](crate::LARGE_FPDU) octets. Both ends have asked for that.
    pub large_fpdus: bool,
    /// The peer's IRD as received, for the ULP. It may be [`ULP_NEGOTIATES`].
    pub peer_ird: Option<u16>,
    /// The peer's ORD as received, for the ULP. It may be [`ULP_NEGOTIATES`].
    pub peer_ord: Option<u16>,
}

impl Negotiated {
    /// Returns the framing for the [`Framer`](crate::Framer).
    #[must_use]
    pub const fn tx(&self) -> Framing {
        Framing { crc: self.crc, markers: self.markers_tx }
    }

    /// Returns the framing for the [`Deframer`](crate::Deframer).
    #[must_use]
    pub const fn rx(&self) -> Framing {
        Framing { crc: self.crc, markers: self.markers_rx }
    }
}
