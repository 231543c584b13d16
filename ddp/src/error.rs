//! What can be wrong with a segment, and the number each fault is reported by (RFC 5041 §7.2).

use crate::{Msn, Qn, RangeError, SegmentError, Stag};

/// A fault the peer made on a DDP stream. After the first the stream places and delivers nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DdpError {
    /// Something broke on this side.
    #[error("local catastrophic error")]
    LocalCatastrophic,
    /// A segment shorter than its header. RFC 5041 has no number of its own for this.
    #[error("segment of {len} octets is shorter than its header")]
    ShortSegment {
        /// Octets there are.
        len: usize,
    },
    /// Tagged: no such STag, the key differs, it is invalid, or it gives no such right.
    #[error("invalid STag {stag}")]
    InvalidStag {
        /// As the segment has it.
        stag: Stag,
    },
    /// Tagged: another STag in the middle of a message.
    #[error("STag {got} inside a message to {expected}")]
    StagChanged {
        /// As the segment has it.
        got: Stag,
        /// As the message began.
        expected: Stag,
    },
    /// Tagged: octets outside the buffer.
    #[error("TO {to:#x} with {len} octets leaves the buffer")]
    Bounds {
        /// As the segment has it.
        to: u64,
        /// Octets of payload.
        len: usize,
    },
    /// Tagged: a gap or a step back in TO in the middle of a message.
    #[error("TO {got:#x} does not continue its message")]
    ToNotNext {
        /// As the segment has it.
        got: u64,
        /// Where the message goes on; `None` when it has reached 2^64.
        expected: Option<u64>,
    },
    /// Tagged: another message begins before the open one has ended.
    #[error("RsvdULP {got:#04x} inside a message with {expected:#04x}")]
    TaggedUlpChanged {
        /// As the segment has it.
        got: u8,
        /// As the message began.
        expected: u8,
    },
    /// Tagged: the STag belongs to another protection domain or stream.
    #[error("STag {stag} is not associated with this stream")]
    StagNotAssociated {
        /// As the segment has it.
        stag: Stag,
    },
    /// Tagged: TO + length passes 2^64.
    #[error("TO {to:#x} with {len} octets passes 2^64")]
    ToWrap {
        /// As the segment has it.
        to: u64,
        /// Octets of payload.
        len: usize,
    },
    /// Tagged: a DV other than 1.
    #[error("tagged segment of DDP version {version}")]
    TaggedVersion {
        /// As the segment has it.
        version: u8,
    },
    /// Untagged: no such queue.
    #[error("no queue {qn}")]
    InvalidQn {
        /// As the segment has it.
        qn: Qn,
    },
    /// Untagged: the right message, and nothing posted for it.
    #[error("no buffer for message {msn} on queue {qn}")]
    NoBuffer {
        /// As the segment has it.
        qn: Qn,
        /// As the segment has it.
        msn: Msn,
    },
    /// Untagged: not the message whose turn it is.
    #[error("MSN {got} on queue {qn} where {expected} is due")]
    MsnOutOfRange {
        /// As the segment has it.
        qn: Qn,
        /// As the segment has it.
        got: Msn,
        /// The first one that would have been right.
        expected: Msn,
    },
    /// Untagged: another message under the number of the open one.
    #[error("RsvdULP {got:#04x} inside a message with {expected:#04x}")]
    UntaggedUlpChanged {
        /// As the segment has it.
        got: u8,
        /// As the message began.
        expected: u8,
    },
    /// Untagged: a gap or a step back in MO in the middle of a message.
    #[error("MO {got} where {expected} is due")]
    InvalidMo {
        /// As the segment has it.
        got: u32,
        /// Where the message goes on.
        expected: u64,
    },
    /// Untagged: an offset outside the buffer.
    #[error("MO {mo} in a buffer of {buffer}")]
    MoOutsideBuffer {
        /// As the segment has it.
        mo: u32,
        /// Octets of the buffer.
        buffer: u64,
    },
    /// Untagged: more octets than the buffer takes.
    #[error("{len} octets at {mo} in a buffer of {buffer}")]
    TooLong {
        /// As the segment has it.
        mo: u32,
        /// Octets of payload.
        len: usize,
        /// Octets of the buffer.
        buffer: u64,
    },
    /// Untagged: a DV other than 1.
    #[error("untagged segment of DDP version {version}")]
    UntaggedVersion {
        /// As the segment has it.
        version: u8,
    },
}

impl DdpError {
    /// Error type and error code of RFC 5041 §7.2.
    #[must_use]
    pub const fn code(&self) -> (u8, u8) {
        match self {
            // A short segment has no number in the RFC; 0x0/0x00 is what other stacks send too.
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

    /// What a failed [`check_range`](crate::check_range) means for a tagged segment.
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
