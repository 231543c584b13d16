//! Faults of a segment, and the number by which each is reported (RFC 5041 §7.2).

use crate::{Msn, Qn, RangeError, SegmentError, Stag};

/// A fault of the peer on a DDP stream. After the first one the stream places and delivers nothing
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DdpError {
    /// A failure of the local end.
    #[error("local catastrophic error")]
    LocalCatastrophic,
    /// A segment shorter than its header. RFC 5041 has no number for this.
    #[error("segment of {len} octets is shorter than its header")]
    ShortSegment {
        /// Octets of the segment.
        len: usize,
    },
    /// Tagged: the STag does not exist, its key differs, it is invalid, or it does not grant the
    /// right needed.
    #[error("invalid STag {stag}")]
    InvalidStag {
        /// The STag of the segment.
        stag: Stag,
    },
    /// Tagged: another STag in the middle of a message.
    #[error("STag {got} inside a message to {expected}")]
    StagChanged {
        /// The STag of the segment.
        got: Stag,
        /// The STag with which the message began.
        expected: Stag,
    },
    /// Tagged: octets outside the buffer.
    #[error("TO {to:#x} with {len} octets leaves the buffer")]
    Bounds {
        /// The TO of the segment.
        to: u64,
        /// Octets of payload.
        len: usize,
    },
    /// Tagged: a gap or a step back in TO in the middle of a message.
    #[error("TO {got:#x} does not continue its message")]
    ToNotNext {
        /// The TO of the segment.
        got: u64,
        /// The TO where the message continues; `None` when it has reached 2^64.
        expected: Option<u64>,
    },
    /// Tagged: another message begins before the open one has ended.
    #[error("RsvdULP {got:#04x} inside a message with {expected:#04x}")]
    TaggedUlpChanged {
        /// The value in the segment.
        got: u8,
        /// The value with which the message began.
        expected: u8,
    },
    /// Tagged: the STag belongs to another protection domain or stream.
    #[error("STag {stag} is not associated with this stream")]
    StagNotAssociated {
        /// The STag of the segment.
        stag: Stag,
    },
    /// Tagged: TO + length passes 2^64.
    #[error("TO {to:#x} with {len} octets passes 2^64")]
    ToWrap {
        /// The TO of the segment.
        to: u64,
        /// Octets of payload.
        len: usize,
    },
    /// Tagged: a DV other than 1.
    #[error("tagged segment of DDP version {version}")]
    TaggedVersion {
        /// The version of the segment.
        version: u8,
    },
    /// Untagged: the queue does not exist.
    #[error("no queue {qn}")]
    InvalidQn {
        /// The queue number of the segment.
        qn: Qn,
    },
    /// Untagged: the message that is due, but no buffer is posted for it.
    #[error("no buffer for message {msn} on queue {qn}")]
    NoBuffer {
        /// The queue number of the segment.
        qn: Qn,
        /// The MSN of the segment.
        msn: Msn,
    },
    /// Untagged: a message that is not due.
    #[error("MSN {got} on queue {qn} where {expected} is due")]
    MsnOutOfRange {
        /// The queue number of the segment.
        qn: Qn,
        /// The MSN of the segment.
        got: Msn,
        /// The first MSN that would have been right.
        expected: Msn,
    },
    /// Untagged: another message under the MSN of the open one.
    #[error("RsvdULP {got:#04x} inside a message with {expected:#04x}")]
    UntaggedUlpChanged {
        /// The value in the segment.
        got: u8,
        /// The value with which the message began.
        expected: u8,
    },
    /// Untagged: a gap or a step back in MO in the middle of a message.
    #[error("MO {got} where {expected} is due")]
    InvalidMo {
        /// The MO of the segment.
        got: u32,
        /// The MO where the message continues.
        expected: u64,
    },
    /// Untagged: an offset outside the buffer.
    #[error("MO {mo} in a buffer of {buffer}")]
    MoOutsideBuffer {
        /// The MO of the segment.
        mo: u32,
        /// Octets of the buffer.
        buffer: u64,
    },
    /// Untagged: more octets than the buffer takes.
    #[error("{len} octets at {mo} in a buffer of {buffer}")]
    TooLong {
        /// The MO of the segment.
        mo: u32,
        /// Octets of payload.
        len: usize,
        /// Octets of the buffer.
        buffer: u64,
    },
    /// Untagged: a DV other than 1.
    #[error("untagged segment of DDP version {version}")]
    UntaggedVersion {
        /// The version of the segment.
        version: u8,
    },
}

impl DdpError {
    /// Returns the error type and error code of RFC 5041 §7.2.
    #[must_use]
    pub const fn code(&self) -> (u8, u8) {
        match self {
            // RFC 5041 has no number for a short segment; other stacks send 0x0/0x00 too.
            DdpError::LocalCatastrophic | DdpError::ShortSegment { .. } => (0, 0),
            DdpError::InvalidStag { .. } | DdpError::StagChanged { .. } => (1, 0),
            DdpError::Bounds { .. } | DdpError::ToNotNext { .. } | DdpError::TaggedUlpChanged { .. } => {
                (1, 1)
            }
            DdpError::StagNotAssociated { .. } => (1, 2),
            DdpError::ToWrap { .. } => (1, 3),
            DdpError::TaggedVersion { .. } => (1, 4),
            DdpError::InvalidQn { .. } => (2, 1),
            DdpError::NoBuffer { .. } => (2, 2),
            DdpError::MsnOutOfRange { .. } | DdpError::UntaggedUlpChanged { .. } => (2, 3),
            DdpError::InvalidMo { .. } | DdpError::MoOutsideBuffer { .. } => (2, 4),
            DdpError::TooLong { .. } => (2, 5),
            DdpError::UntaggedVersion { .. } => (2, 6),
        }
    }

    /// Returns the fault of a tagged segment whose [`check_range`](crate::check_range) failed.
    #[must_use]
    pub const fn range(error: RangeError, to: u64, len: usize) -> Self {
        match error {
            RangeError::Wrap => DdpError::ToWrap { to, len },
            RangeError::Bounds => DdpError::Bounds { to, len },
        }
    }
}

impl From<SegmentError> for DdpError {
    fn from(error: SegmentError) -> Self {
        match error {
            SegmentError::TooShort { len, .. } => DdpError::ShortSegment { len },
            SegmentError::Version { tagged: true, version } => DdpError::TaggedVersion { version },
            SegmentError::Version { tagged: false, version } => DdpError::UntaggedVersion { version },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_headers_have_the_numbers_of_their_kind() {
        // RFC 5041 §7.2
        let code = |error| DdpError::from(error).code();
        assert_eq!(code(SegmentError::TooShort { len: 3, tagged: true }), (0, 0));
        assert_eq!(code(SegmentError::Version { tagged: true, version: 0 }), (1, 4));
        assert_eq!(code(SegmentError::Version { tagged: false, version: 2 }), (2, 6));
    }

    #[test]
    fn ranges_have_the_numbers_of_tagged_buffers() {
        // RFC 5041 §7.2
        assert_eq!(DdpError::range(RangeError::Bounds, 7, 1).code(), (1, 1));
        assert_eq!(DdpError::range(RangeError::Wrap, 7, 1).code(), (1, 3));
        assert_eq!(DdpError::InvalidStag { stag: Stag(1) }.code(), (1, 0));
        assert_eq!(DdpError::StagNotAssociated { stag: Stag(1) }.code(), (1, 2));
        assert_eq!(DdpError::LocalCatastrophic.code(), (0, 0));
    }
}
