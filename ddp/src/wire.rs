//! DDP segment headers: octets and the values they stand for (RFC 5041 chapter 4).
//!
//! A segment is what MPA calls a ULPDU: header, then payload up to the segment's end.
//! [`Header::parse`] checks the header alone; whether the segment may come at this moment is
//! checked in `rx`. Reserved bits are sent as 0 and ignored by the receiver (RFC 5041 §4.1).
//! Versions other than 1 are refused here, because the rest of their layout is unknown.

use core::fmt;

use crate::{Msn, Qn, Stag};

/// The version of DDP in RFC 5041. (Version 0 was the RDMA Consortium's.)
pub const DDP_VERSION: u8 = 1;

/// Header of a tagged segment (RFC 5041 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaggedRepr {
    /// L: the last segment of its message.
    pub last: bool,
    /// `RsvdULP`: for the ULP; DDP carries it unread.
    pub rsvd_ulp: u8,
    /// The buffer at the receiver.
    pub stag: Stag,
    /// Tagged Offset of the first payload octet.
    pub to: u64,
}

impl TaggedRepr {
    /// Octets of this header.
    pub const LEN: usize = 14;

    /// Writes the header.
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        out[0] = control_octet(true, self.last);
        out[1] = self.rsvd_ulp;
        out[2..6].copy_from_slice(&self.stag.0.to_be_bytes());
        out[6..14].copy_from_slice(&self.to.to_be_bytes());
    }
}

impl fmt::Display for TaggedRepr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { last, rsvd_ulp, stag, to } = self;
        write!(f, "tagged ulp={rsvd_ulp:02x} stag={stag} to={to:#x}{}", last_mark(*last))
    }
}

/// Header of an untagged segment (RFC 5041 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntaggedRepr {
    /// L: the last segment of its message.
    pub last: bool,
    /// `RsvdULP`: for the ULP; DDP carries it unread.
    pub rsvd_ulp: [u8; 5],
    /// The queue at the receiver.
    pub qn: Qn,
    /// The number of the message on that queue.
    pub msn: Msn,
    /// Message Offset of the first payload octet.
    pub mo: u32,
}

impl UntaggedRepr {
    /// Octets of this header.
    pub const LEN: usize = 18;

    /// Writes the header.
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        out[0] = control_octet(false, self.last);
        out[1..6].copy_from_slice(&self.rsvd_ulp);
        out[6..10].copy_from_slice(&self.qn.0.to_be_bytes());
        out[10..14].copy_from_slice(&self.msn.0.to_be_bytes());
        out[14..18].copy_from_slice(&self.mo.to_be_bytes());
    }
}

impl fmt::Display for UntaggedRepr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { last, rsvd_ulp, qn, msn, mo } = self;
        write!(f, "untagged ulp={:02x} qn={qn} msn={msn} mo={mo}{}", rsvd_ulp[0], last_mark(*last))
    }
}

/// The header of a segment, of either kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// T = 1: the sender names the buffer.
    Tagged(TaggedRepr),
    /// T = 0: the next buffer of a queue at the receiver.
    Untagged(UntaggedRepr),
}

impl Header {
    /// Octets of the longer of the two headers.
    pub const MAX_LEN: usize = UntaggedRepr::LEN;

    /// Reads the header at the front of `segment`; the payload is `segment[header.len()..]`.
    ///
    /// # Errors
    /// [`SegmentError`] when the segment is shorter than its header, or of another DDP version;
    /// checked in this order (RFC 5041 §7.1).
    #[inline]
    pub fn parse(segment: &[u8]) -> Result<Header, SegmentError> {
        let tagged = segment.first().is_some_and(|octet| octet & control::TAGGED != 0);
        if tagged { parse_tagged(segment) } else { parse_untagged(segment) }
    }

    /// Returns the octets of this header, 14 or 18.
    #[must_use]
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        match self {
            Header::Tagged(_) => TaggedRepr::LEN,
            Header::Untagged(_) => UntaggedRepr::LEN,
        }
    }

    /// Returns L: whether this segment is the last of its message.
    #[must_use]
    #[inline]
    pub const fn last(&self) -> bool {
        match self {
            Header::Tagged(header) => header.last,
            Header::Untagged(header) => header.last,
        }
    }

    /// Returns the first octet of `RsvdULP`, where RDMAP has its control octet.
    #[must_use]
    #[inline]
    pub const fn control(&self) -> u8 {
        match self {
            Header::Tagged(header) => header.rsvd_ulp,
            Header::Untagged(header) => header.rsvd_ulp[0],
        }
    }

    /// Writes the header to the front of `out`, and returns how many octets it took.
    pub fn emit(&self, out: &mut [u8; Self::MAX_LEN]) -> usize {
        match self {
            Header::Tagged(header) => {
                if let Some(front) = out.first_chunk_mut() {
                    header.emit(front);
                }
            }
            Header::Untagged(header) => header.emit(out),
        }
        self.len()
    }

    /// Returns the header's octets, held inline.
    #[must_use]
    pub fn octets(&self) -> HeaderOctets {
        let mut octets = [0; Self::MAX_LEN];
        let len = self.emit(&mut octets);
        HeaderOctets { octets, len }
    }
}

impl From<TaggedRepr> for Header {
    fn from(header: TaggedRepr) -> Self {
        Header::Tagged(header)
    }
}

impl From<UntaggedRepr> for Header {
    fn from(header: UntaggedRepr) -> Self {
        Header::Untagged(header)
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Header::Tagged(header) => header.fmt(f),
            Header::Untagged(header) => header.fmt(f),
        }
    }
}

/// The 14 or 18 octets of a header as they go on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderOctets {
    octets: [u8; Header::MAX_LEN],
    len: usize,
}

impl AsRef<[u8]> for HeaderOctets {
    fn as_ref(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

impl core::ops::Deref for HeaderOctets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

/// A reason why a segment's header cannot be read. Caused by the peer, or by the LLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// The segment is shorter than its header.
    #[error("{} segment of {len} octets is shorter than its header", kind(*tagged))]
    TooShort {
        /// Octets of the segment.
        len: usize,
        /// The segment's T bit; false for an empty segment.
        tagged: bool,
    },
    /// The segment is of another version of DDP than 1.
    #[error("{} segment of DDP version {version}, not {DDP_VERSION}", kind(*tagged))]
    Version {
        /// The segment's T bit.
        tagged: bool,
        /// The segment's DV field.
        version: u8,
    },
}

#[inline]
fn parse_tagged(segment: &[u8]) -> Result<Header, SegmentError> {
    let Some(octets) = segment.first_chunk::<{ TaggedRepr::LEN }>() else {
        return Err(SegmentError::TooShort { len: segment.len(), tagged: true });
    };
    check_version(octets[0], true)?;
    Ok(Header::Tagged(TaggedRepr {
        last: octets[0] & control::LAST != 0,
        rsvd_ulp: octets[1],
        stag: Stag(be32(octets, 2)),
        to: u64::from(be32(octets, 6)) << 32 | u64::from(be32(octets, 10)),
    }))
}

#[inline]
fn parse_untagged(segment: &[u8]) -> Result<Header, SegmentError> {
    let Some(octets) = segment.first_chunk::<{ UntaggedRepr::LEN }>() else {
        return Err(SegmentError::TooShort { len: segment.len(), tagged: false });
    };
    check_version(octets[0], false)?;
    Ok(Header::Untagged(UntaggedRepr {
        last: octets[0] & control::LAST != 0,
        rsvd_ulp: [octets[1], octets[2], octets[3], octets[4], octets[5]],
        qn: Qn(be32(octets, 6)),
        msn: Msn(be32(octets, 10)),
        mo: be32(octets, 14),
    }))
}

// RFC 5041 §4.1: DV is the same for the whole stream; this crate implements version 1 only.
fn check_version(octet: u8, tagged: bool) -> Result<(), SegmentError> {
    match octet & control::VERSION {
        DDP_VERSION => Ok(()),
        version => Err(SegmentError::Version { tagged, version }),
    }
}

fn be32<const N: usize>(octets: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
}

// RFC 5041 §4.1: the reserved bits go out as 0.
const fn control_octet(tagged: bool, last: bool) -> u8 {
    (if tagged { control::TAGGED } else { 0 }) | (if last { control::LAST } else { 0 }) | DDP_VERSION
}

const fn kind(tagged: bool) -> &'static str {
    if tagged { "a tagged" } else { "an untagged" }
}

const fn last_mark(last: bool) -> &'static str {
    if last { " last" } else { "" }
}

/// The DDP Control octet (RFC 5041 §4.1). 0x3C is reserved.
mod control {
    pub(super) const TAGGED: u8 = 0x80;
    pub(super) const LAST: u8 = 0x40;
    pub(super) const VERSION: u8 = 0x03;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEND: [u8; 22] = *b"\x41\x43\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0done";
    const WRITE: [u8; 18] = *b"\xc1\x40\x11\x22\x33\x44\0\0\0\0\0\x01\x1f\xfclast";

    #[test]
    fn a_send_is_untagged_on_queue_zero() {
        // RFC 5041 §4.3
        let header = Header::parse(&SEND).unwrap();
        let rsvd_ulp = [0x43, 0, 0, 0, 0];
        assert_eq!(header, UntaggedRepr { last: true, rsvd_ulp, qn: Qn(0), msn: Msn(1), mo: 0 }.into());
        assert_eq!((header.len(), header.last(), header.control()), (18, true, 0x43));
    }

    #[test]
    fn a_write_names_its_buffer() {
        // RFC 5041 §4.2
        let header = Header::parse(&WRITE).unwrap();
        assert_eq!(
            header,
            TaggedRepr { last: true, rsvd_ulp: 0x40, stag: Stag(0x1122_3344), to: 0x11ffc }.into()
        );
        assert_eq!((header.len(), header.last(), header.control()), (14, true, 0x40));
    }

    #[test]
    fn every_length_below_the_header_is_too_short() {
        // RFC 5041 §7.1
        for len in 0..18 {
            let tagged = false;
            assert_eq!(Header::parse(&SEND[..len]), Err(SegmentError::TooShort { len, tagged }));
        }
        for len in 1..14 {
            let tagged = true;
            assert_eq!(Header::parse(&WRITE[..len]), Err(SegmentError::TooShort { len, tagged }));
        }
        assert!(Header::parse(&SEND[..18]).is_ok());
        assert!(Header::parse(&WRITE[..14]).is_ok());
    }

    #[test]
    fn an_error_says_which_kind_of_segment_it_is_about() {
        let short = |tagged| SegmentError::TooShort { len: 3, tagged }.to_string();
        assert_eq!(short(true), "a tagged segment of 3 octets is shorter than its header");
        assert_eq!(short(false), "an untagged segment of 3 octets is shorter than its header");
    }

    #[test]
    fn every_version_but_one_is_refused() {
        // RFC 5041 §4.1
        for version in [0, 2, 3] {
            let mut segment = SEND;
            segment[0] = 0x40 | version;
            assert_eq!(Header::parse(&segment), Err(SegmentError::Version { tagged: false, version }));
            let mut segment = WRITE;
            segment[0] = 0xc0 | version;
            assert_eq!(Header::parse(&segment), Err(SegmentError::Version { tagged: true, version }));
        }
    }

    #[test]
    fn reserved_bits_are_ignored_and_sent_as_zero() {
        // RFC 5041 §4.1
        for reserved in 0..16 {
            let mut segment = SEND;
            segment[0] |= reserved << 2;
            assert_eq!(Header::parse(&segment), Header::parse(&SEND));
            assert_eq!(*Header::parse(&segment).unwrap().octets(), SEND[..18]);
        }
    }

    #[test]
    fn headers_show_as_a_packet_dump_would() {
        assert_eq!(Header::parse(&SEND).unwrap().to_string(), "untagged ulp=43 qn=0 msn=1 mo=0 last");
        assert_eq!(
            Header::parse(&WRITE).unwrap().to_string(),
            "tagged ulp=40 stag=0x11223344 to=0x11ffc last"
        );
    }

    prop_compose! {
        fn tagged()(last: bool, rsvd_ulp: u8, stag: u32, to: u64) -> Header {
            TaggedRepr { last, rsvd_ulp, stag: Stag(stag), to }.into()
        }
    }

    prop_compose! {
        fn untagged()(last: bool, rsvd_ulp: [u8; 5], qn: u32, msn: u32, mo: u32) -> Header {
            UntaggedRepr { last, rsvd_ulp, qn: Qn(qn), msn: Msn(msn), mo }.into()
        }
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(header in prop_oneof![tagged(), untagged()], payload: [u8; 7]) {
            let mut segment = header.octets().to_vec();
            prop_assert_eq!(segment.len(), header.len());
            segment.extend(payload);
            prop_assert_eq!(Header::parse(&segment), Ok(header));
        }

        #[test]
        fn what_is_parsed_is_emitted(mut segment: [u8; 18]) {
            segment[0] = segment[0] & !0x03 | DDP_VERSION;
            let header = Header::parse(&segment).unwrap();
            segment[0] &= !0x3c;
            prop_assert_eq!(&*header.octets(), &segment[..header.len()]);
        }

        #[test]
        fn any_octets_parse_or_are_refused(segment in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(header) = Header::parse(&segment) {
                prop_assert!(header.len() <= segment.len());
            }
        }
    }
}
