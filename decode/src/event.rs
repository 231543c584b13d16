//! The contents of a capture as values, and as lines of text.

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;

use rddp_ddp::Header;
use rddp_mpa::{EnhancedData, FpduError, FrameKind, StartupError};
use rddp_rdmap::{
    AtomicRequestRepr, AtomicResponseRepr, Fault, Opcode, ReadRequestRepr, TerminateCode, TerminateRepr,
};
use rddp_sdp::wire::{FormatError, Hello, HelloAck, Message};

/// A thing that was sent, or is wrong with what was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The time of the packet that completed it, since 1970.
    pub time: Duration,
    /// The number of the TCP connection, in the order of the capture, from 0.
    pub connection: usize,
    /// The sender.
    pub from: SocketAddr,
    /// The receiver.
    pub to: SocketAddr,
    /// The thing itself.
    pub what: What,
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// A frame of MPA's startup.
    Startup(Startup),
    /// An FPDU.
    Fpdu(Fpdu),
    /// A message of SDP, all of whose FPDUs have come.
    Sdp(Sdp),
    /// The connection is plain TCP: its octets are not read.
    PlainTcp,
    /// A fault, or octets that cannot be read.
    Problem(Problem),
}

/// A frame of MPA's startup.
#[derive(Clone, Debug, PartialEq)]
pub struct Startup {
    /// Request or Reply.
    pub kind: FrameKind,
    /// M: the sender wants markers in what it receives.
    pub markers: bool,
    /// C: the sender prefers CRCs.
    pub crc: bool,
    /// R: the connection is rejected.
    pub rejected: bool,
    /// MPA's revision.
    pub revision: u8,
    /// IRD, ORD and RTR (RFC 6581), if they are there and were captured.
    pub enhanced: Option<EnhancedData>,
    /// The ULP's private data, as far as it was captured.
    pub private_data: Vec<u8>,
    /// Octets of private data that were sent.
    pub private_data_len: usize,
    /// The message of SDP that the private data is, if it is one.
    pub greeting: Option<Greeting>,
}

/// A message of SDP in private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// From the active side.
    Hello(Hello),
    /// From the passive side.
    HelloAck(HelloAck),
}

/// An FPDU whose ULPDU is a segment of DDP.
#[derive(Clone, Debug, PartialEq)]
pub struct Fpdu {
    /// The FPDU's place in the stream, in octets from the first FPDU of its direction.
    pub position: u64,
    /// DDP's header.
    pub header: Header,
    /// RDMAP's opcode, if it is one that is assigned.
    pub opcode: Option<Opcode>,
    /// Octets behind DDP's header.
    pub payload_len: usize,
    /// Octets of payload that were captured, from the first on, of an FPDU that was not captured
    /// whole. Its CRC was not checked.
    pub captured: Option<usize>,
    /// The headers of RDMAP in the payload.
    pub detail: Detail,
}

/// Headers of RDMAP behind DDP's.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Detail {
    /// No header.
    None,
    /// A header that was not captured.
    NotCaptured,
    /// The STag that a Send invalidates.
    Invalidate(u32),
    /// A Read Request's ranges.
    Read(ReadRequestRepr),
    /// An atomic operation.
    AtomicRequest(AtomicRequestRepr),
    /// The answer to an atomic operation.
    AtomicResponse(AtomicResponseRepr),
    /// The reason of a Terminate.
    Terminate(TerminateRepr),
}

/// A message of SDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sdp {
    /// The message, without its payload.
    pub message: Message,
}

/// Things that are wrong, and octets that cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The capture began when the connection was there already.
    #[error("the beginning of this connection is not in the capture: it cannot be read")]
    NoBeginning,
    /// The capture has no segments of one direction.
    #[error("only one direction of this connection is in the capture: it cannot be read")]
    OneDirection,
    /// The connection does not begin with MPA's startup.
    #[error("no MPA: {0}")]
    NotMpa(StartupError),
    /// The stream ended within a frame of MPA's startup.
    #[error("the stream ended {have} octets into a frame of MPA's startup")]
    StartupTruncated {
        /// The octets of the frame that came.
        have: u64,
    },
    /// Octets that decide about those behind them were cut off by the snap length.
    #[error("{octets} octets of this direction were not captured from octet {at} on: the rest is not read")]
    NotCaptured {
        /// The place of the first in the TCP stream.
        at: u64,
        /// The number of octets.
        octets: u64,
    },
    /// DDP's header was cut off by the snap length.
    #[error("an FPDU whose header was not captured")]
    HeaderNotCaptured,
    /// The headers of a message of SDP were cut off by the snap length.
    #[error("a message of SDP of {len} octets whose header was not captured")]
    SdpNotCaptured {
        /// The octets of the message.
        len: u64,
    },
    /// Segments are missing.
    #[error("{octets} octets of this direction are missing from octet {at} on: the rest is not read")]
    Missing {
        /// The place of the first in the TCP stream.
        at: u64,
        /// The number of octets.
        octets: u64,
    },
    /// An FPDU's CRC is wrong; it is read all the same.
    #[error("{0}")]
    Crc(FpduError),
    /// A marker is wrong: where FPDUs begin is not known any more.
    #[error("{0}: the rest of this direction is not read")]
    Marker(FpduError),
    /// The stream ended within an FPDU.
    #[error("{0}")]
    Truncated(FpduError),
    /// A ULPDU that is no segment of DDP, or a header of RDMAP that cannot be read.
    #[error("{0}")]
    Header(Fault),
    /// A Terminate that cannot be read.
    #[error("a Terminate that is too short to be read")]
    Terminate,
    /// A segment of a Send that does not continue the message.
    #[error("the Send goes on at offset {got}, not at {expected}")]
    Offset {
        /// MO.
        got: u32,
        /// The MO that would have been right.
        expected: u64,
    },
    /// A Hello or `HelloAck` that SDP refuses.
    #[error("the private data is a Hello of SDP that is malformed: {error} ({})", error.rule())]
    Greeting {
        /// The rule that it breaks.
        error: FormatError,
    },
    /// A message of SDP that is malformed.
    #[error("{error} ({})", error.rule())]
    Sdp {
        /// The rule that it breaks.
        error: FormatError,
        /// The octets of the message.
        len: u64,
    },
    /// A message of SDP has another number than comes next.
    #[error("MSeq {got} where {expected} comes next")]
    Mseq {
        /// `MSeq`.
        got: u32,
        /// The number that would have been right.
        expected: u32,
    },
}

impl Fpdu {
    /// Returns the code of a Terminate, as far as it was captured.
    pub(crate) fn terminate(&self) -> Option<Option<TerminateCode>> {
        match &self.detail {
            Detail::Terminate(terminate) => Some(Some(terminate.code)),
            Detail::NotCaptured if self.opcode == Some(Opcode::Terminate) => Some(None),
            _ => None,
        }
    }
}

impl What {
    /// Returns whether this is a problem, or the Terminate by which an end told of one.
    #[must_use]
    pub fn is_problem(&self) -> bool {
        match self {
            Self::Problem(_) => true,
            Self::Fpdu(fpdu) => fpdu.terminate().is_some(),
            _ => false,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Startup(startup) => startup.fmt(f),
            Self::Fpdu(fpdu) => fpdu.fmt(f),
            Self::Sdp(sdp) => sdp.fmt(f),
            Self::PlainTcp => f.write_str("plain TCP: its octets are not read"),
            Self::Problem(problem) => write!(f, "WRONG {problem}"),
        }
    }
}
