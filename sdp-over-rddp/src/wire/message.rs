//! Messages of an established connection.

use core::ops::Deref;

use super::fields::{get_u32, get_u64, put};
use super::header::field;
use super::{Flags, FormatError, HEADER_LEN, Header, Mid};

/// Octets of the longest headers that a message of an established connection has (`SinkAvail`),
/// and so of the longest message without payload.
pub const LONGEST_CONTROL: usize = 36;

/// Modes of a half-connection.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Octets travel in Data alone.
    Buffered = 0,
    /// The source has one advert out at a time, with the first octets of its buffer.
    Combined = 1,
    /// Several adverts of the source and of the sink.
    Pipelined = 2,
}

impl Mode {
    /// Returns the mode with this number.
    ///
    /// # Errors
    /// There is none.
    pub const fn from_number(number: u8) -> Result<Self, FormatError> {
        match number {
            0 => Ok(Self::Buffered),
            1 => Ok(Self::Combined),
            2 => Ok(Self::Pipelined),
            _ => Err(FormatError::ModeValue(number)),
        }
    }
}

/// A buffer that a message offers for RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advert {
    /// Octets of the buffer.
    pub len: u32,
    /// The buffer's `STag` (`RKey`).
    pub stag: u32,
    /// The Tagged Offset of its first octet (VA).
    pub to: u64,
}

/// The kind of a message, and the fields of its extended header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Ends the half-connection on which its sender sends.
    DisConn,
    /// Ends a connection at once.
    AbortConn,
    /// The sink refuses RDMA.
    SendSm,
    /// The source has written into the oldest `SinkAvail`.
    RdmaWrCompl {
        /// The octets written.
        octets: u32,
    },
    /// The sink has read from the oldest `SrcAvail`.
    RdmaRdCompl {
        /// The octets read since the last report.
        octets: u32,
    },
    /// Changes the mode of one half-connection.
    ModeChange {
        /// S: the half is that on which the receiver of this message sends.
        of_receivers_half: bool,
        /// The mode from now on.
        mode: Mode,
    },
    /// The source takes back its adverts.
    SrcAvailCancel,
    /// The sink takes back its adverts.
    SinkAvailCancel,
    /// The source has dropped the adverts that were taken back.
    SinkCancelAck,
    /// Asks for larger receive buffers.
    ChRcvBuf {
        /// Octets of a buffer, including the base header.
        size: u32,
    },
    /// Tells the size of receive buffers in force.
    ChRcvBufAck {
        /// Octets of a buffer, including the base header.
        size: u32,
    },
    /// Asks to suspend the connection.
    SuspComm {
        /// The service to which the connection would move.
        service_id: u64,
    },
    /// Answers a `SuspComm`.
    SuspCommAck,
    /// Advertises a buffer to write into.
    SinkAvail {
        /// The buffer.
        advert: Advert,
        /// The messages with payload, received so far, that did not discard an advert.
        non_discards: u32,
    },
    /// Advertises a buffer to read from; payload is its first octets.
    SrcAvail {
        /// The buffer.
        advert: Advert,
    },
    /// Octets of the stream.
    Data,
}

impl Body {
    /// Returns the identifier of this kind of message.
    #[must_use]
    pub const fn mid(&self) -> Mid {
        match self {
            Self::DisConn => Mid::DisConn,
            Self::AbortConn => Mid::AbortConn,
            Self::SendSm => Mid::SendSm,
            Self::RdmaWrCompl { .. } => Mid::RdmaWrCompl,
            Self::RdmaRdCompl { .. } => Mid::RdmaRdCompl,
            Self::ModeChange { .. } => Mid::ModeChange,
            Self::SrcAvailCancel => Mid::SrcAvailCancel,
            Self::SinkAvailCancel => Mid::SinkAvailCancel,
            Self::SinkCancelAck => Mid::SinkCancelAck,
            Self::ChRcvBuf { .. } => Mid::ChRcvBuf,
            Self::ChRcvBufAck { .. } => Mid::ChRcvBufAck,
            Self::SuspComm { .. } => Mid::SuspComm,
            Self::SuspCommAck => Mid::SuspCommAck,
            Self::SinkAvail { .. } => Mid::SinkAvail,
            Self::SrcAvail { .. } => Mid::SrcAvail,
            Self::Data => Mid::Data,
        }
    }

    /// Reads the extended header `ext`, which is as long as those of `mid` are.
    fn parse(mid: Mid, ext: &[u8]) -> Result<Self, FormatError> {
        Ok(match mid {
            Mid::Hello | Mid::HelloAck => return Err(FormatError::LateHello(mid)),
            Mid::DisConn => Self::DisConn,
            Mid::AbortConn => Self::AbortConn,
            Mid::SendSm => Self::SendSm,
            Mid::RdmaWrCompl => Self::RdmaWrCompl { octets: get_u32(ext, 0) },
            Mid::RdmaRdCompl => Self::RdmaRdCompl { octets: get_u32(ext, 0) },
            Mid::ModeChange => Self::ModeChange {
                of_receivers_half: ext[0] & OF_RECEIVERS_HALF != 0,
                mode: Mode::from_number(ext[0] >> 4 & 7)?,
            },
            Mid::SrcAvailCancel => Self::SrcAvailCancel,
            Mid::SinkAvailCancel => Self::SinkAvailCancel,
            Mid::SinkCancelAck => Self::SinkCancelAck,
            Mid::ChRcvBuf => Self::ChRcvBuf { size: get_u32(ext, 0) },
            Mid::ChRcvBufAck => Self::ChRcvBufAck { size: get_u32(ext, 0) },
            Mid::SuspComm => Self::SuspComm { service_id: get_u64(ext, 0) },
            Mid::SuspCommAck => Self::SuspCommAck,
            Mid::SinkAvail => Self::SinkAvail { advert: Advert::parse(ext), non_discards: get_u32(ext, 16) },
            Mid::SrcAvail => Self::SrcAvail { advert: Advert::parse(ext) },
            Mid::Data => Self::Data,
        })
    }

    /// Writes the extended header to the front of `ext`, which is zeroed and has room for it.
    fn emit(&self, ext: &mut [u8]) {
        match *self {
            Self::RdmaWrCompl { octets: number }
            | Self::RdmaRdCompl { octets: number }
            | Self::ChRcvBuf { size: number }
            | Self::ChRcvBufAck { size: number } => put(ext, 0, number.to_be_bytes()),
            Self::ModeChange { of_receivers_half, mode } => {
                ext[0] = (mode as u8) << 4 | if of_receivers_half { OF_RECEIVERS_HALF } else { 0 };
            }
            Self::SuspComm { service_id } => put(ext, 0, service_id.to_be_bytes()),
            Self::SinkAvail { advert, non_discards } => {
                advert.emit(ext);
                put(ext, 16, non_discards.to_be_bytes());
            }
            Self::SrcAvail { advert } => advert.emit(ext),
            _ => debug_assert_eq!(self.mid().extension_len(), 0),
        }
    }
}

impl Advert {
    fn parse(ext: &[u8]) -> Self {
        Self { len: get_u32(ext, 0), stag: get_u32(ext, 4), to: get_u64(ext, 8) }
    }

    fn emit(&self, ext: &mut [u8]) {
        put(ext, 0, self.len.to_be_bytes());
        put(ext, 4, self.stag.to_be_bytes());
        put(ext, 8, self.to.to_be_bytes());
    }
}

/// A message without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The base header. Its `mid` and `len` are those of the other two fields.
    pub header: Header,
    /// The kind of message, and its fields.
    pub body: Body,
    /// Octets of payload: `Len` less the headers.
    pub payload_len: usize,
}

impl Message {
    /// Returns a message of this kind, with no flags, `Bufs` or numbers yet.
    #[must_use]
    pub fn new(body: Body, payload_len: usize) -> Self {
        let (mid, flags) = (body.mid(), Flags::empty());
        let len = whole_len(mid, payload_len);
        Self { header: Header { mid, flags, bufs: 0, len, mseq: 0, mseq_ack: 0 }, body, payload_len }
    }

    /// Reads the front of a message: its first octets, which hold all headers (of a message that is
    /// whole, [`LONGEST_CONTROL`] octets always do). Payload behind them is not looked at.
    ///
    /// `Len` is taken from the header. Its user compares it with what the transport brings; where a
    /// message lies in one piece, [`parse_whole`](Self::parse_whole) does.
    ///
    /// # Errors
    /// The message has no form that SDP knows, or belongs to the startup.
    pub fn parse(front: &[u8]) -> Result<Self, FormatError> {
        let header = Header::parse(front)?;
        let mid = header.mid;
        let len = usize::try_from(header.len).unwrap_or(usize::MAX);
        if len < HEADER_LEN {
            return Err(FormatError::LenMismatch { len: header.len, arrived: front.len() });
        }
        if let Mid::Hello | Mid::HelloAck = mid {
            return Err(FormatError::LateHello(mid));
        }
        let headers = HEADER_LEN + mid.extension_len();
        let ext = front.get(HEADER_LEN..headers).filter(|_| len >= headers);
        let ext = ext.ok_or(FormatError::ShortExtension(mid))?;
        let payload_len = len - headers;
        if payload_len > 0 && !mid.may_have_payload() {
            return Err(FormatError::PayloadNotAllowed(mid));
        }
        check_urgent(&header, payload_len)?;
        Ok(Self { header, body: Body::parse(mid, ext)?, payload_len })
    }

    /// Reads a message that lies in one piece. Returns its payload, too.
    ///
    /// # Errors
    /// The message has no form that SDP knows, belongs to the startup, or has another length than
    /// `Len` says.
    pub fn parse_whole(octets: &[u8]) -> Result<(Self, &[u8]), FormatError> {
        let arrived = octets.len();
        if arrived < HEADER_LEN {
            return Err(FormatError::ShortHeader(arrived));
        }
        check_len(octets, arrived)?;
        let message = Self::parse(octets)?;
        Ok((message, &octets[message.header_len()..]))
    }

    /// Returns the octets of both headers.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        HEADER_LEN + self.body.mid().extension_len()
    }

    /// Returns the headers as octets. MID is that of the body, and `Len` follows from it and
    /// `payload_len`, whatever the header has.
    #[must_use]
    pub fn emit(&self) -> Front {
        let mid = self.body.mid();
        let mut front = Front { octets: [0; LONGEST_CONTROL], len: self.header_len() };
        let header = Header { mid, len: whole_len(mid, self.payload_len), ..self.header };
        header.emit(&mut front.octets);
        self.body.emit(&mut front.octets[HEADER_LEN..]);
        front
    }
}

/// Returns `Len` of a message with this payload. (No payload is as long as to need the limit.)
fn whole_len(mid: Mid, payload_len: usize) -> u32 {
    let headers = HEADER_LEN + mid.extension_len();
    u32::try_from(headers.saturating_add(payload_len)).unwrap_or(u32::MAX)
}

/// Compares `Len` with the octets that came.
pub(super) fn check_len(front: &[u8], arrived: usize) -> Result<(), FormatError> {
    let len = get_u32(front, field::LEN);
    if usize::try_from(len).is_ok_and(|len| len == arrived) {
        return Ok(());
    }
    Err(FormatError::LenMismatch { len, arrived })
}

/// The urgent octet is the last one of a Data, so that there has to be one.
fn check_urgent(header: &Header, payload_len: usize) -> Result<(), FormatError> {
    match header.mid {
        _ if !header.flags.contains(Flags::OOB_PRES) => Ok(()),
        Mid::Data if payload_len == 0 => Err(FormatError::OobPresEmpty),
        Mid::Data => Ok(()),
        other => Err(FormatError::OobPresNotData(other)),
    }
}

/// The headers of a message as octets, in place.
#[derive(Clone, Copy, Debug)]
pub struct Front {
    octets: [u8; LONGEST_CONTROL],
    len: usize,
}

impl Deref for Front {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

/// S of a `ModeChange`.
const OF_RECEIVERS_HALF: u8 = 0x80;
