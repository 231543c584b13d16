//! The base header (BSDH), which begins each message.

use core::fmt;

use super::FormatError;
use super::fields::{get_u16, get_u32, put};

/// Octets of the base header.
pub const HEADER_LEN: usize = 16;

/// Identifiers of messages.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mid {
    /// Opens a connection; from the active side.
    Hello = 0x00,
    /// Answers a Hello.
    HelloAck = 0x01,
    /// Ends the half-connection on which its sender sends.
    DisConn = 0x02,
    /// Ends a connection at once, after its sender's `DisConn`.
    AbortConn = 0x03,
    /// The sink refuses RDMA: the source sends the octets as Data.
    SendSm = 0x04,
    /// The source has written into the sink's buffer.
    RdmaWrCompl = 0x05,
    /// The sink has read from the source's buffer.
    RdmaRdCompl = 0x06,
    /// Changes the mode of one half-connection.
    ModeChange = 0x07,
    /// The source takes back its `SrcAvail`s.
    SrcAvailCancel = 0x08,
    /// The sink takes back its `SinkAvail`s.
    SinkAvailCancel = 0x09,
    /// The source has dropped the `SinkAvail`s that were taken back.
    SinkCancelAck = 0x0a,
    /// Asks for larger receive buffers.
    ChRcvBuf = 0x0b,
    /// Tells the size of receive buffers in force.
    ChRcvBufAck = 0x0c,
    /// Asks to suspend the connection.
    SuspComm = 0x0d,
    /// Answers a `SuspComm`.
    SuspCommAck = 0x0e,
    /// Advertises a buffer to write into.
    SinkAvail = 0xfd,
    /// Advertises a buffer to read from.
    SrcAvail = 0xfe,
    /// Octets of the stream; without any, an update of credits.
    Data = 0xff,
}

impl Mid {
    /// All identifiers.
    pub const ALL: [Mid; 18] = [
        Mid::Hello,
        Mid::HelloAck,
        Mid::DisConn,
        Mid::AbortConn,
        Mid::SendSm,
        Mid::RdmaWrCompl,
        Mid::RdmaRdCompl,
        Mid::ModeChange,
        Mid::SrcAvailCancel,
        Mid::SinkAvailCancel,
        Mid::SinkCancelAck,
        Mid::ChRcvBuf,
        Mid::ChRcvBufAck,
        Mid::SuspComm,
        Mid::SuspCommAck,
        Mid::SinkAvail,
        Mid::SrcAvail,
        Mid::Data,
    ];

    /// Returns the identifier with this octet, all of whose bits count.
    ///
    /// # Errors
    /// No message has this octet.
    pub fn from_octet(octet: u8) -> Result<Self, FormatError> {
        Self::ALL.into_iter().find(|mid| *mid as u8 == octet).ok_or(FormatError::UnknownMid(octet))
    }

    /// Returns the name of the message.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hello => "Hello",
            Self::HelloAck => "HelloAck",
            Self::DisConn => "DisConn",
            Self::AbortConn => "AbortConn",
            Self::SendSm => "SendSm",
            Self::RdmaWrCompl => "RdmaWrCompl",
            Self::RdmaRdCompl => "RdmaRdCompl",
            Self::ModeChange => "ModeChange",
            Self::SrcAvailCancel => "SrcAvailCancel",
            Self::SinkAvailCancel => "SinkAvailCancel",
            Self::SinkCancelAck => "SinkCancelAck",
            Self::ChRcvBuf => "ChRcvBuf",
            Self::ChRcvBufAck => "ChRcvBufAck",
            Self::SuspComm => "SuspComm",
            Self::SuspCommAck => "SuspCommAck",
            Self::SinkAvail => "SinkAvail",
            Self::SrcAvail => "SrcAvail",
            Self::Data => "Data",
        }
    }

    /// Returns the octets of the extended header; 0 where there is none.
    #[must_use]
    pub const fn extension_len(self) -> usize {
        match self {
            Self::Hello => 76,
            Self::HelloAck => 180,
            Self::RdmaWrCompl | Self::RdmaRdCompl | Self::ModeChange | Self::ChRcvBuf | Self::ChRcvBufAck => {
                4
            }
            Self::SuspComm => 8,
            Self::SrcAvail => 16,
            Self::SinkAvail => 20,
            _ => 0,
        }
    }

    /// Returns whether the message may have payload.
    #[must_use]
    pub const fn may_have_payload(self) -> bool {
        matches!(self, Self::Data | Self::SrcAvail | Self::SinkAvail)
    }
}

impl fmt::Display for Mid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Flags of a message. Bits that mean nothing are kept as they came, and not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// The last octet of this Data is urgent.
    pub const OOB_PRES: Flags = Flags(1);
    /// An urgent octet comes, in this message or later.
    pub const OOB_PEND: Flags = Flags(2);
    /// The sink would like the Pipelined mode.
    pub const REQ_PIPE: Flags = Flags(4);

    /// No flag.
    #[must_use]
    pub const fn empty() -> Self {
        Flags(0)
    }

    /// Returns whether all flags of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the flags of both.
    #[must_use]
    pub const fn union(self, other: Flags) -> Self {
        Flags(self.0 | other.0)
    }
}

impl core::ops::BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

/// A base header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of message.
    pub mid: Mid,
    /// Urgent data and hints.
    pub flags: Flags,
    /// The private receive buffers that the sender has posted at this moment.
    pub bufs: u16,
    /// Octets of the whole message: headers and payload.
    pub len: u32,
    /// The number of this message.
    pub mseq: u32,
    /// The number of the newest message that the sender has taken from its peer.
    pub mseq_ack: u32,
}

impl Header {
    /// Reads the header at the front of a message.
    ///
    /// # Errors
    /// There are too few octets, or the MID is unknown. `Len` is not looked at.
    pub fn parse(front: &[u8]) -> Result<Self, FormatError> {
        if front.len() < HEADER_LEN {
            return Err(FormatError::ShortHeader(front.len()));
        }
        Ok(Self {
            mid: Mid::from_octet(front[field::MID])?,
            flags: Flags(front[field::FLAGS]),
            bufs: get_u16(front, field::BUFS),
            len: get_u32(front, field::LEN),
            mseq: get_u32(front, field::MSEQ),
            mseq_ack: get_u32(front, field::MSEQ_ACK),
        })
    }

    /// Writes the header to the front of `out`, which has room for it.
    pub(super) fn emit(&self, out: &mut [u8]) {
        out[field::MID] = self.mid as u8;
        out[field::FLAGS] = self.flags.0;
        put(out, field::BUFS, self.bufs.to_be_bytes());
        put(out, field::LEN, self.len.to_be_bytes());
        put(out, field::MSEQ, self.mseq.to_be_bytes());
        put(out, field::MSEQ_ACK, self.mseq_ack.to_be_bytes());
    }
}

/// Places of the fields.
pub(super) mod field {
    pub(in crate::wire) const MID: usize = 0;
    pub(in crate::wire) const FLAGS: usize = 1;
    pub(in crate::wire) const BUFS: usize = 2;
    pub(in crate::wire) const LEN: usize = 4;
    pub(in crate::wire) const MSEQ: usize = 8;
    pub(in crate::wire) const MSEQ_ACK: usize = 12;
}
