//! Why a startup failed.

use super::{MAX_PRIVATE_DATA, RtrSet};
use crate::error::MpaError;

/// What the peer did. The connection is over; the local program is told why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartupError {
    /// The octets are no startup frame.
    #[error("the peer does not speak MPA: the key of its startup frame is wrong")]
    BadKey,
    /// The other role's frame: both ends are initiators, or both are responders.
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
    /// The frame is marked as enhanced and too short to hold RFC 6581's data.
    #[error("the peer's frame is enhanced, but has no room for IRD and ORD")]
    PrefixMissing,
    /// A plain Reply to an enhanced Request.
    #[error("the peer answered an enhanced Request with a plain Reply")]
    UnenhancedReply,
    /// An enhanced Reply to a plain Request.
    #[error("the peer answered a plain Request with an enhanced Reply")]
    RevisionMismatch,
    /// One end is for peer-to-peer, the other is not.
    #[error("{}", if *.got { MADE_PEER_TO_PEER } else { NOT_PEER_TO_PEER })]
    ConnectionModel {
        /// Whether the Reply is for peer-to-peer.
        got: bool,
    },
    /// No kind of RTR that the Reply names can be sent.
    #[error("the ends have no RTR in common: the Reply names {named}, this end can send {offered}")]
    NoCommonRtr {
        /// The kinds of the Reply.
        named: RtrSet,
        /// The kinds of the Request.
        offered: RtrSet,
    },
    /// The Reply's ORD is more than this end's IRD can be raised to.
    #[error("the peer wants {ord} Reads outstanding, this end takes no more than {max_ird}")]
    InsufficientIrd {
        /// Of the Reply.
        ord: u16,
        /// The limit here.
        max_ird: u16,
    },
    /// The peer closed before its frame was whole.
    #[error("the peer closed the connection during startup: {have} of {total} octets of its frame came")]
    Closed {
        /// What came of it.
        have: usize,
        /// What was needed.
        total: usize,
        /// This end is an initiator whose Request was enhanced.
        enhanced: bool,
    },
}

const MADE_PEER_TO_PEER: &str =
    "the peer's Reply makes the connection peer-to-peer, which the Request did not ask for";
const NOT_PEER_TO_PEER: &str =
    "the peer's Reply does not take up the peer-to-peer connection that was asked for";

impl StartupError {
    /// The code to report locally (RFC 5044 §8, RFC 6581 §8).
    #[must_use]
    pub const fn code(&self) -> MpaError {
        match self {
            Self::Closed { have: 0, .. } => MpaError::Closed,
            Self::InsufficientIrd { .. } => MpaError::InsufficientIrd,
            Self::NoCommonRtr { .. } | Self::ConnectionModel { .. } => MpaError::NoMatchingRtr,
            _ => MpaError::Startup,
        }
    }

    /// The code to Terminate with before closing, framed as [`Initiator::tx`](super::Initiator::tx) says. `None`:
    /// the two ends have agreed on nothing yet, and the connection is closed without a word.
    #[must_use]
    pub const fn terminate(&self) -> Option<MpaError> {
        match self.code() {
            code @ (MpaError::InsufficientIrd | MpaError::NoMatchingRtr) => Some(code),
            // RFC 5044 §8: after an invalid frame the connection is closed at once.
            _ => None,
        }
    }

    /// Whether a new connection with [`Revision::One`](super::Revision::One) may succeed: the peer seems not to know RFC 6581 (its §10).
    #[must_use]
    pub const fn retry_with_revision_one(&self) -> bool {
        matches!(self, Self::UnenhancedReply | Self::Closed { have: 0, enhanced: true, .. })
    }
}

/// What our own caller did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartupMisuse {
    /// More private data than the frame can hold.
    #[error("{len} octets of private data, the frame holds {max}")]
    PrivateDataTooLong {
        /// What was given.
        len: usize,
        /// What fits.
        max: usize,
    },
    /// An IRD or ORD beyond [`DEPTH_MAX`](super::DEPTH_MAX), or in a bare frame beyond 14 bits.
    #[error("IRD and ORD have 14 bits, and 0x3fff is not a depth")]
    DepthTooLarge,
    /// A peer-to-peer connection without a kind of RTR that this end could send or accept.
    #[error("a peer-to-peer connection needs a kind of RTR that this end supports")]
    NoRtr,
}
