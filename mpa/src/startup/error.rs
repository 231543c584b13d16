//! Reasons why a startup failed.

use super::{MAX_PRIVATE_DATA, RtrSet};
use crate::error::MpaError;

/// A fault of the peer during startup. The connection has ended; the local program is told why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartupError {
    /// The octets are not a startup frame.
    #[error("the peer does not speak MPA: the key of its startup frame is wrong")]
    BadKey,
    /// The frame has the key of the other role: both ends are initiators, or both are responders.
    #[error("the peer's startup frame is that of this end's own role")]
    WrongRole,
    /// `PD_Length` is beyond the limit.
    #[error("the peer announces {len} octets of private data, {MAX_PRIVATE_DATA} are allowed")]
    PrivateDataTooLong {
        /// `PD_Length`.
        len: u16,
    },
    /// A revision that is not supported.
    #[error("the peer's MPA revision is {0}, supported are 1 and 2")]
    Revision(u8),
    /// The frame is marked as enhanced but too short to hold the data of RFC 6581.
    #[error("the peer's frame is enhanced, but has no room for IRD and ORD")]
    PrefixMissing,
    /// A plain Reply to an enhanced Request.
    #[error("the peer answered an enhanced Request with a plain Reply")]
    UnenhancedReply,
    /// An enhanced Reply to a plain Request.
    #[error("the peer answered a plain Request with an enhanced Reply")]
    RevisionMismatch,
    /// One end wants a peer-to-peer connection, the other does not.
    #[error("{}", if *.got { MADE_PEER_TO_PEER } else { NOT_PEER_TO_PEER })]
    ConnectionModel {
        /// The Reply is for a peer-to-peer connection.
        got: bool,
    },
    /// The Reply names no kind of RTR that this end can send.
    #[error("the ends have no RTR in common: the Reply names {named}, this end can send {offered}")]
    NoCommonRtr {
        /// The kinds that the Reply names.
        named: RtrSet,
        /// The kinds that the Request offered.
        offered: RtrSet,
    },
    /// The Reply's ORD is more than this end's IRD can be raised to.
    #[error("the peer wants {ord} Reads outstanding, this end takes no more than {max_ird}")]
    InsufficientIrd {
        /// The ORD of the Reply.
        ord: u16,
        /// The largest IRD of this end.
        max_ird: u16,
    },
    /// The peer closed the connection before its frame was complete.
    #[error("the peer closed the connection during startup: {have} of {total} octets of its frame came")]
    Closed {
        /// The octets of the frame that arrived.
        have: usize,
        /// The octets that were needed.
        total: usize,
        /// This end is an initiator, and its Request was enhanced.
        enhanced: bool,
    },
}

const MADE_PEER_TO_PEER: &str =
    "the peer's Reply makes the connection peer-to-peer, which the Request did not ask for";
const NOT_PEER_TO_PEER: &str =
    "the peer's Reply does not take up the peer-to-peer connection that was asked for";

impl StartupError {
    /// Returns the code to report locally (RFC 5044 §8, RFC 6581 §8).
    #[must_use]
    pub const fn code(&self) -> MpaError {
        match self {
            Self::Closed { have: 0, .. } => MpaError::Closed,
            Self::InsufficientIrd { .. } => MpaError::InsufficientIrd,
            Self::NoCommonRtr { .. } | Self::ConnectionModel { .. } => MpaError::NoMatchingRtr,
            _ => MpaError::Startup,
        }
    }

    /// Returns the code of the Terminate to send before closing, framed as
    /// [`Initiator::tx`](super::Initiator::tx) says. `None` when the two ends have agreed on
    /// nothing yet: the connection is then closed without a Terminate.
    #[must_use]
    pub const fn terminate(&self) -> Option<MpaError> {
        match self.code() {
            code @ (MpaError::InsufficientIrd | MpaError::NoMatchingRtr) => Some(code),
            // RFC 5044 §8: after an invalid frame the connection is closed at once.
            _ => None,
        }
    }

    /// Returns whether a new connection with [`Revision::One`](super::Revision::One) may succeed:
    /// the peer seems not to know RFC 6581 (RFC 6581 §10).
    #[must_use]
    pub const fn retry_with_revision_one(&self) -> bool {
        matches!(self, Self::UnenhancedReply | Self::Closed { have: 0, enhanced: true, .. })
    }

    /// Returns whether the peer's octets are of another protocol. A server that echoes returns this
    /// end's own frame.
    #[must_use]
    pub const fn is_foreign(&self) -> bool {
        matches!(self, Self::BadKey | Self::WrongRole)
    }

    /// Returns whether a responder has met a plain client, as far as one can tell: octets that are
    /// no Request, or an end behind those that may be the beginning of one. Nothing has been sent,
    /// so that it can be served as it is.
    #[must_use]
    pub const fn is_plain_client(&self) -> bool {
        matches!(self, Self::BadKey | Self::Closed { .. })
    }
}

/// A mistake of the local caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartupMisuse {
    /// More private data than the frame can hold.
    #[error("{len} octets of private data, the frame holds {max}")]
    PrivateDataTooLong {
        /// The octets that were given.
        len: usize,
        /// The octets that fit.
        max: usize,
    },
    /// An IRD or ORD beyond [`DEPTH_MAX`](super::DEPTH_MAX) (in a bare [`Frame`](super::Frame):
    /// beyond 14 bits).
    #[error("IRD and ORD have 14 bits, and 0x3fff is not a depth")]
    DepthTooLarge,
    /// A peer-to-peer connection, but no kind of RTR that this end could send or accept.
    #[error("a peer-to-peer connection needs a kind of RTR that this end supports")]
    NoRtr,
}
