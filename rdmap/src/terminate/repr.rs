//! The Terminate header (RFC 5040 §4.8).
//!
//! Sent exactly as the figures say. Read leniently: a peer may set the bit of a header it did not attach, attach less than it
//! announced, or fill headers it has nothing for with zeros (RFC 5040 §7.1 speaks of fields set to zero). What is missing is
//! `None` and never an error; only the first four octets must be there. Everything in a Terminate is hostile input, good for a
//! log and for nothing else.

use core::fmt;

use rddp_ddp::{Header, TaggedRepr, UntaggedRepr};

use super::TerminateCode;
use crate::ReadRequestRepr;

/// What a Terminate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminateRepr {
    /// What went wrong.
    pub code: TerminateCode,
    /// DDP Segment Length: octets of the faulty segment (some peers leave out its header).
    pub segment_len: Option<u16>,
    /// DDP header of the faulty segment.
    pub header: Option<Header>,
    /// The Read Request that led to the fault, as far as it had got.
    pub read_request: Option<ReadRequestRepr>,
}

impl TerminateRepr {
    /// The longest Terminate: everything, about an untagged segment.
    pub const MAX_LEN: usize = CONTROL_LEN + LENGTH_LEN + UntaggedRepr::LEN + ReadRequestRepr::LEN;

    /// A Terminate with nothing but a code.
    #[must_use]
    pub const fn bare(code: TerminateCode) -> Self {
        Self { code, segment_len: None, header: None, read_request: None }
    }

    /// Reads the payload of a Terminate; `None` when not even the control word is there.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let (&[code_high, code_low, flags, _], mut rest) = payload.split_first_chunk::<CONTROL_LEN>()?;
        let mut repr = Self::bare(TerminateCode(u16::from_be_bytes([code_high, code_low])));
        let with = |bit: u8| flags & bit != 0;
        // The length field is there when M or D is set; with R alone only the octets can tell.
        let room_for_length = rest.len() >= LENGTH_LEN + ReadRequestRepr::LEN;
        if with(bits::LENGTH) || with(bits::DDP_HEADER) || (with(bits::RDMA_HEADER) && room_for_length) {
            let Some((length, behind)) = rest.split_first_chunk::<LENGTH_LEN>() else {
                return Some(repr);
            };
            repr.segment_len = with(bits::LENGTH).then(|| u16::from_be_bytes(*length));
            rest = behind;
        }
        if with(bits::DDP_HEADER) {
            let Some((header, behind)) = split_ddp_header(rest) else {
                return Some(repr);
            };
            // An unreadable or zero-filled copy counts as absent (RFC 5040 §7.1).
            repr.header = Header::parse(header).ok();
            rest = behind;
        }
        if with(bits::RDMA_HEADER) {
            repr.read_request = rest
                .get(..ReadRequestRepr::LEN)
                .filter(|header| header.iter().any(|octet| *octet != 0))
                .and_then(|header| ReadRequestRepr::parse(header).ok());
        }
        Some(repr)
    }

    /// The payload of a Terminate. The length field goes out when any header does, 0 if there is no length for it.
    #[must_use]
    pub fn octets(&self) -> TerminateOctets {
        let mut out = TerminateOctets { octets: [0; Self::MAX_LEN], len: 0 };
        out.push(&self.code.0.to_be_bytes());
        out.push(&[self.flags(), 0]);
        if self.flags() != 0 {
            out.push(&self.segment_len.unwrap_or(0).to_be_bytes());
        }
        if let Some(header) = &self.header {
            out.push(&header.octets());
        }
        if let Some(read_request) = &self.read_request {
            out.push(&read_request.octets());
        }
        out
    }

    fn flags(&self) -> u8 {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        bit(self.segment_len.is_some(), bits::LENGTH)
            | bit(self.header.is_some(), bits::DDP_HEADER)
            | bit(self.read_request.is_some(), bits::RDMA_HEADER)
    }
}

impl fmt::Display for TerminateRepr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "terminate {}", self.code)?;
        if let Some(len) = self.segment_len {
            write!(f, ", segment of {len}")?;
        }
        if let Some(header) = &self.header {
            write!(f, ", {header}")?;
        }
        if let Some(read_request) = &self.read_request {
            write!(f, ", {read_request}")?;
        }
        Ok(())
    }
}

/// A Terminate's payload, held inline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminateOctets {
    octets: [u8; TerminateRepr::MAX_LEN],
    len: usize,
}

impl TerminateOctets {
    fn push(&mut self, octets: &[u8]) {
        let end = self.len + octets.len();
        self.octets[self.len..end].copy_from_slice(octets);
        self.len = end;
    }
}

impl AsRef<[u8]> for TerminateOctets {
    fn as_ref(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

impl core::ops::Deref for TerminateOctets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

/// Splits the copied DDP header off: 14 octets when its own T bit is set, else 18.
fn split_ddp_header(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let tagged = octets.first()? & TAGGED_BIT != 0;
    octets.split_at_checked(if tagged { TaggedRepr::LEN } else { UntaggedRepr::LEN })
}

const CONTROL_LEN: usize = 4;
const LENGTH_LEN: usize = 2;
const TAGGED_BIT: u8 = 0x80;

/// Header control bits, in the third octet (RFC 5040 §4.8 Figure 8). The 13 bits behind them are reserved.
mod bits {
    pub(super) const LENGTH: u8 = 0x80;
    pub(super) const DDP_HEADER: u8 = 0x40;
    pub(super) const RDMA_HEADER: u8 = 0x20;
}
