//! The Terminate header (RFC 5040 §4.8).
//!
//! Written exactly as the figures say, and read leniently: a peer may set the bit of a header it
//! did not attach, attach less than it announced, or fill headers it has nothing for with zeros
//! (RFC 5040 §7.1 speaks of fields set to zero). What is missing is `None` and never an error; only
//! the first four octets must be there. Everything in a Terminate is hostile input, good for a log
//! and for nothing else.

use core::fmt;

use rddp_ddp::{Header, TaggedRepr, UntaggedRepr};

use super::TerminateCode;
use crate::ReadRequestRepr;

/// The contents of a Terminate.
///
/// ```
/// use rddp_rdmap::{TerminateCode, TerminateRepr};
/// // The control word of what siw sends when a Write leaves its buffer.
/// let terminate = TerminateRepr::parse(&[0x11, 0x01, 0, 0]).ok_or("too short")?;
/// assert_eq!(terminate, TerminateRepr::bare(TerminateCode(0x1101)));
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminateRepr {
    /// The error.
    pub code: TerminateCode,
    /// DDP Segment Length: octets of the faulty segment (some peers leave out its header).
    pub segment_len: Option<u16>,
    /// DDP header of the faulty segment.
    pub header: Option<Header>,
    /// The part of the Read Request that was left when it led to the fault.
    pub read_request: Option<ReadRequestRepr>,
}

impl TerminateRepr {
    /// The longest Terminate: everything, about an untagged segment.
    pub const MAX_LEN: usize = CONTROL_LEN + LENGTH_LEN + UntaggedRepr::LEN + ReadRequestRepr::LEN;

    /// Makes a Terminate with nothing but a code.
    #[must_use]
    pub const fn bare(code: TerminateCode) -> Self {
        Self { code, segment_len: None, header: None, read_request: None }
    }

    /// Reads the payload of a Terminate; `None` when not even the control word is there.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let (control, mut rest) = payload.split_first_chunk::<CONTROL_LEN>()?;
        let (code, flags) = read_control(control);
        let mut repr = Self::bare(code);
        let with = |bit: u8| flags & bit != 0;
        // The length field is there when M or D is set. With R alone, only the number of octets
        // tells.
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

    /// Returns the payload of a Terminate. The length field is sent if any header is, as 0 if there
    /// is no length for it.
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

/// Code and header control bits, also as Linux's siw writes them on little-endian hosts: there the
/// C bit fields begin at the low end of each octet, so layer and error type change places, and the
/// three bits are the lowest of theirs.
///
/// It is told by those bits, which everyone else sends as zero (RFC 5040 §4.8), or, where there is
/// none, by a code that only makes sense the other way round.
fn read_control(&[kind, ecode, flags, _]: &[u8; CONTROL_LEN]) -> (TerminateCode, u8) {
    let as_written = TerminateCode(u16::from_be_bytes([kind, ecode]));
    let turned = TerminateCode(u16::from_be_bytes([kind.rotate_left(4), ecode]));
    match (flags & bits::ALL, flags & bits::SIW_ALL) {
        (0, 0) if as_written.name().is_none() && turned.name().is_some() => (turned, 0),
        (0, siw) if siw != 0 => (turned, siw.reverse_bits()),
        (rfc, _) => (as_written, rfc),
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

/// Header control bits, in the third octet (RFC 5040 §4.8 Figure 8). The 13 bits
/// behind them are reserved.
mod bits {
    pub(super) const LENGTH: u8 = 0x80;
    pub(super) const DDP_HEADER: u8 = 0x40;
    pub(super) const RDMA_HEADER: u8 = 0x20;
    pub(super) const ALL: u8 = LENGTH | DDP_HEADER | RDMA_HEADER;
    /// The same three in siw's order.
    pub(super) const SIW_ALL: u8 = ALL.reverse_bits();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rddp_ddp::{Msn, Stag};

    use super::*;
    use crate::{Opcode, tagged_header, untagged_header};

    fn header(tagged: bool) -> Header {
        match tagged {
            true => tagged_header(Opcode::Write, Stag(0x9999_9999), 0x1000, true),
            false => untagged_header(Opcode::ReadRequest, Stag(0), Msn(5), 0, true),
        }
    }

    fn read_request() -> ReadRequestRepr {
        ReadRequestRepr { sink_stag: Stag(1), sink_to: 2, size: 3, src_stag: Stag(4), src_to: 5 }
    }

    fn full(tagged: bool) -> TerminateRepr {
        TerminateRepr {
            code: TerminateCode::BOUNDS,
            segment_len: Some(46),
            header: Some(header(tagged)),
            read_request: Some(read_request()),
        }
    }

    /// A Terminate with these bits, followed by these parts.
    fn with_flags(flags: u8, parts: &[&[u8]]) -> Vec<u8> {
        [&[0x01, 0x01, flags, 0][..], &parts.concat()].concat()
    }

    #[test]
    fn lengths_are_those_of_the_rfc() {
        // RFC 5040 §4.8
        assert_eq!(TerminateRepr::bare(TerminateCode::MPA_CRC).octets().len(), 4);
        let without_read = |tagged| TerminateRepr { read_request: None, ..full(tagged) };
        assert_eq!(without_read(true).octets().len(), 20);
        assert_eq!(without_read(false).octets().len(), 24);
        assert_eq!(full(false).octets().len(), TerminateRepr::MAX_LEN);
        assert_eq!(TerminateRepr::MAX_LEN, 52);
    }

    #[test]
    fn bits_say_what_is_attached() {
        // RFC 5040 §4.8 Figure 8
        let flags = |terminate: &TerminateRepr| terminate.octets()[2];
        assert_eq!(flags(&full(true)), 0xe0);
        assert_eq!(flags(&TerminateRepr { read_request: None, ..full(true) }), 0xc0);
        assert_eq!(flags(&TerminateRepr { segment_len: None, ..full(true) }), 0x60);
        assert_eq!(flags(&TerminateRepr::bare(TerminateCode::BOUNDS)), 0);
    }

    #[test]
    fn every_combination_of_parts_is_read_as_it_was_written() {
        for bits in 0..16 {
            let pick = |bit: u8| bits & bit != 0;
            let tagged = pick(8);
            let terminate = TerminateRepr {
                code: TerminateCode::INVALID_STAG,
                segment_len: pick(1).then_some(78),
                header: pick(2).then(|| header(tagged)),
                read_request: pick(4).then(read_request),
            };
            assert_eq!(TerminateRepr::parse(&terminate.octets()), Some(terminate));
        }
    }

    #[test]
    fn a_terminate_cut_off_anywhere_has_the_parts_that_are_left() {
        for tagged in [true, false] {
            let octets = full(tagged).octets();
            let header_end = 6 + header(tagged).len();
            for len in 0..=octets.len() {
                let got = TerminateRepr::parse(&octets[..len]);
                let Some(got) = got else {
                    assert!(len < 4);
                    continue;
                };
                assert_eq!(got.code, TerminateCode::BOUNDS);
                assert_eq!(got.segment_len.is_some(), len >= 6);
                assert_eq!(got.header.is_some(), len >= header_end);
                assert_eq!(got.read_request.is_some(), len == octets.len());
            }
        }
    }

    #[test]
    fn a_bit_without_its_header_is_no_error() {
        // siw sets R and attaches a DDP header only, when a Send with Invalidate fails
        let parsed = TerminateRepr::parse(&with_flags(0xe0, &[&[0, 22], &header(false).octets()])).unwrap();
        assert_eq!(parsed, TerminateRepr { segment_len: Some(22), read_request: None, ..full(false) });
        for flags in (0..=0xe0).step_by(0x20) {
            let parsed = TerminateRepr::parse(&with_flags(flags, &[]));
            assert_eq!(parsed, Some(TerminateRepr::bare(TerminateCode::BOUNDS)));
        }
    }

    #[test]
    fn a_read_header_alone_is_found_with_and_without_a_length_field() {
        // RFC 5040 §4.8 has the length present with D and valid with M, and is silent about R
        // alone.
        let alone = TerminateRepr { segment_len: None, header: None, ..full(true) };
        assert_eq!(TerminateRepr::parse(&with_flags(0x20, &[&read_request().octets()])), Some(alone.clone()));
        assert_eq!(
            TerminateRepr::parse(&with_flags(0x20, &[&[0, 0], &read_request().octets()])),
            Some(alone)
        );
    }

    #[test]
    fn headers_of_zeros_are_absent() {
        // RFC 5040 §7.1
        let parsed = TerminateRepr::parse(&with_flags(0xe0, &[&[0, 22], &[0; 46]])).unwrap();
        assert_eq!((parsed.header, parsed.read_request), (None, None));
    }

    #[test]
    fn reserved_bits_are_ignored() {
        // RFC 5040 §4.8
        let mut octets = full(true).octets().to_vec();
        octets[2] |= 0x1f;
        octets[3] = 0xff;
        assert_eq!(TerminateRepr::parse(&octets), Some(full(true)));
    }

    /// Seen from kernels 6.1 and 6.12 on x86-64: a Read out of bounds, and a message
    /// too long for its receive.
    #[test]
    fn the_bit_order_of_siw_is_understood() {
        let mut octets = full(false).octets().to_vec();
        octets[..4].copy_from_slice(&[0x10, 0x01, 0x07, 0]);
        assert_eq!(TerminateRepr::parse(&octets), Some(full(false)));
        let code = |control: [u8; 4]| TerminateRepr::parse(&control).unwrap().code;
        assert_eq!(code([0x21, 0x02, 0x03, 0]), TerminateCode::UNTAGGED_NO_BUFFER);
        assert_eq!(code([0x02, 0x02, 0, 0]), TerminateCode::MPA_CRC);
        // What both orders know is taken as the RFC has it.
        assert_eq!(code([0x20, 0x05, 0, 0]).0, 0x2005);
        assert_eq!(code([0x02, 0x06, 0, 0]), TerminateCode::UNEXPECTED_OPCODE);
    }

    #[test]
    fn a_terminate_shows_all_it_knows() {
        let shown = full(true).to_string();
        assert!(shown.starts_with("terminate 0x0101 (RDMAP remote protection error"), "{shown}");
        assert!(shown.ends_with(
            ", segment of 46, tagged ulp=40 stag=0x99999999 to=0x1000 last, read 3 from 0x00000004+0x5 to 0x00000001+0x2"
        ));
    }

    proptest! {
        #[test]
        fn any_octets_are_read(octets in proptest::collection::vec(any::<u8>(), 0..140)) {
            let parsed = TerminateRepr::parse(&octets);
            prop_assert_eq!(parsed.is_some(), octets.len() >= 4);
            // A bare code that makes no sense is taken for siw's, and may make sense turned round.
            let ambiguous = |terminate: &TerminateRepr| {
                terminate.octets().len() == CONTROL_LEN && terminate.code.name().is_none()
            };
            if let Some(parsed) = parsed.filter(|parsed| !ambiguous(parsed)) {
                prop_assert_eq!(TerminateRepr::parse(&parsed.octets()), Some(parsed));
            }
        }
    }
}
