//! Rules of SDP that a peer has broken.

use std::fmt;

use rddp_sdp::machine::Violation;
use rddp_sdp::wire::FormatError;

/// A rule of SDP that a message of the peer breaks. The connection is aborted: `EPROTO` here, and a
/// reset at the peer (RDMAP has no Terminate code for a message of its ULP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Wrong {
    /// The message has no form that SDP knows.
    Format = 1,
    /// `Len` is not the number of octets of the Send.
    Len,
    /// `MSeq` does not follow the one before.
    Sequence,
    /// `MSeqAck` names a message that was not sent, or goes back.
    Acknowledgement,
    /// The message came without a credit.
    Credits,
    /// Octets came behind `DisConn`, or a second one.
    AfterDisConn,
    /// The message may not come in this mode, or answers nothing.
    Mode,
    /// The message asks for what this end does not do.
    Unsupported,
    /// The peer has aborted the connection.
    Abort,
    /// `RdmaWrCompl` does not report what was written.
    Writes,
}

impl Wrong {
    const ALL: [Self; 10] = [
        Self::Format,
        Self::Len,
        Self::Sequence,
        Self::Acknowledgement,
        Self::Credits,
        Self::AfterDisConn,
        Self::Mode,
        Self::Unsupported,
        Self::Abort,
        Self::Writes,
    ];

    /// Returns the rule with this number, if there is one.
    pub(crate) fn of(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|wrong| *wrong as u16 == number)
    }
}

impl From<FormatError> for Wrong {
    fn from(error: FormatError) -> Self {
        match error {
            FormatError::LenMismatch { .. } => Self::Len,
            _ => Self::Format,
        }
    }
}

impl From<Violation> for Wrong {
    fn from(violation: Violation) -> Self {
        match violation {
            Violation::Mseq { .. } => Self::Sequence,
            Violation::MseqAck(_) => Self::Acknowledgement,
            Violation::NoBuffer => Self::Credits,
            Violation::TooLong(_) => Self::Len,
            Violation::AfterDisConn | Violation::SecondDisConn => Self::AfterDisConn,
            Violation::Suspend => Self::Unsupported,
            _ => Self::Mode,
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => "a message has a form that SDP does not know",
            Self::Len => "Len of a message is not the number of its octets",
            Self::Sequence => "MSeq of a message does not follow the one before",
            Self::Acknowledgement => "MSeqAck of a message names one that was not sent",
            Self::Credits => "a message came without a credit",
            Self::AfterDisConn => "octets came behind DisConn",
            Self::Mode => "a message came that its half-connection does not allow",
            Self::Unsupported => "a message asks for what is not supported",
            Self::Abort => "AbortConn",
            Self::Writes => "RdmaWrCompl does not report what was written",
        })
    }
}
