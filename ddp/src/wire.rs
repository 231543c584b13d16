//! DDP segment headers: octets on one side, meaning on the other (RFC 5041 chapter 4).
//!
//! A segment is what MPA calls a ULPDU: header, then payload up to the segment's end. [`Header::parse`] looks at nothing
//! but the header; whether a segment is in place at this moment is `rx`'s business. Reserved bits are sent as 0 and not
//! looked at (RFC 5041 §4.1). Versions other than 1 are refused here, because the rest of their layout is unknown.

use core::fmt;

use crate::{Msn, Qn, Stag};

/// The version of DDP in RFC 5041. (0 was the RDMA Consortium's.)
pub const DDP_VERSION: u8 = 1;

/// Header of a tagged segment (RFC 5041 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaggedRepr {
    /// L: the last segment of its message.
    pub last: bool,
    /// `RsvdULP`: DDP carries it and does not read it.
    pub rsvd_ulp: u8,
    /// The buffer.
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
    /// `RsvdULP`: DDP carries it and does not read it.
    pub rsvd_ulp: [u8; 5],
    /// The queue.
    pub qn: Qn,
    /// The message on that queue.
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

/// Either header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// T = 1: the sender names the buffer.
    Tagged(TaggedRepr),
    /// T = 0: the receiver's next buffer of a queue.
    Untagged(UntaggedRepr),
}

impl Header {
    /// The longer of the two.
    pub const MAX_LEN: usize = UntaggedRepr::LEN;

    /// Reads the header at the front of `segment`; the payload is `segment[header.len()..]`.
    ///
    /// # Errors
    /// [`SegmentError`] when the segment is shorter than its header or of another DDP version, in this order
    /// (RFC 5041 §7.1).
    #[inline]
    pub fn parse(segment: &[u8]) -> Result<Header, SegmentError> {
        let tagged = segment.first().is_some_and(|octet| octet & control::TAGGED != 0);
        if tagged { parse_tagged(segment) } else { parse_untagged(segment) }
    }

    /// Octets of this header, 14 or 18.
    #[must_use]
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        match self {
            Header::Tagged(_) => TaggedRepr::LEN,
            Header::Untagged(_) => UntaggedRepr::LEN,
        }
    }

    /// L: this segment is the last of its message.
    #[must_use]
    #[inline]
    pub const fn last(&self) -> bool {
        match self {
            Header::Tagged(header) => header.last,
            Header::Untagged(header) => header.last,
        }
    }

    /// The first octet of `RsvdULP`, where RDMAP keeps its control octet.
    #[must_use]
    #[inline]
    pub const fn control(&self) -> u8 {
        match self {
            Header::Tagged(header) => header.rsvd_ulp,
            Header::Untagged(header) => header.rsvd_ulp[0],
        }
    }

    /// Writes the header to the front of `out` and says how many octets it took.
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

    /// The header's octets, held inline.
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

/// A header as it goes on the wire: derefs and borrows as its 14 or 18 octets.
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

/// What makes a segment's header unreadable. The peer's doing, or the LLP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// Shorter than its own header.
    #[error("a {} segment of {len} octets is shorter than its header", kind(*tagged))]
    TooShort {
        /// Octets there are.
        len: usize,
        /// What its T bit says; false for an empty segment.
        tagged: bool,
    },
    /// Another version of DDP than 1.
    #[error("a {} segment of DDP version {version}, not {DDP_VERSION}", kind(*tagged))]
    Version {
        /// What its T bit says.
        tagged: bool,
        /// What its DV field says.
        version: u8,
    },
}

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

// RFC 5041 §4.1: DV is the same for the whole stream; only version 1 is spoken here.
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
    if tagged { "tagged" } else { "untagged" }
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
