//! Everything that can end a stream, and the Terminate code each becomes
//! (RFC 5040 §4.8, §7.1, RFC 5041 §7.2).
//!
//! Where the RFCs give no code, the ones that the field uses are sent; a peer can rely on no more
//! than that its stream has ended. A [`Fault`] is a value: finding one changes nothing until the
//! stream is told so.

use rddp_ddp::{DdpError, Header, Qn, SegmentError, Stag};
use rddp_mpa::MpaError;

use crate::opcode::control;
use crate::{AccessError, InvalidateError, Opcode, TerminateCode};

/// Why a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The segment cannot be placed as DDP understands it.
    #[error(transparent)]
    Ddp(#[from] DdpError),
    /// An RV other than 1.
    #[error("RDMAP version {version}")]
    Version {
        /// As the segment has it.
        version: u8,
    },
    /// An opcode that is unassigned, experimental, or switched off here.
    #[error("opcode {opcode:#x} is not spoken here")]
    UnknownOpcode {
        /// As the segment has it.
        opcode: u8,
    },
    /// A message in a tagged segment that belongs in an untagged one or the reverse, or on the
    /// wrong queue.
    #[error("{opcode} {}", where_found(*qn))]
    Misdirected {
        /// What the segment says it is.
        opcode: Opcode,
        /// The queue it names; `None` for a tagged segment.
        qn: Option<Qn>,
    },
    /// A Read or Atomic Response that nothing at the head of the line waits for.
    #[error("{opcode} that was not asked for")]
    Unsolicited {
        /// Which of the two.
        opcode: Opcode,
    },
    /// A Read Response to another buffer than the Read named.
    #[error("Read Response to STag {got} where the Read named {expected}")]
    SinkStag {
        /// As the segment has it.
        got: Stag,
        /// As the Read Request had it.
        expected: Stag,
    },
    /// A Read Response to another place in the buffer than the one that is due.
    #[error("Read Response to TO {got:#x} where {expected:#x} is due")]
    SinkTo {
        /// As the segment has it.
        got: u64,
        /// First TO of the Read, and what has arrived of it.
        expected: u64,
    },
    /// A Read Response of another length than the Read asked for.
    #[error("Read Response of {got} octets to a Read of {expected}")]
    ResponseLength {
        /// Octets with this segment.
        got: u64,
        /// As the Read Request had it.
        expected: u32,
    },
    /// A header of fixed size that has another.
    #[error("{opcode} with a payload of {len} octets")]
    ControlLength {
        /// The message.
        opcode: Opcode,
        /// Octets there are.
        len: usize,
    },
    /// A message that fits into one segment, in a segment that is not its last.
    #[error("{opcode} in more than one segment")]
    NotLast {
        /// The message.
        opcode: Opcode,
    },
    /// One Read or atomic more than the peer may have outstanding.
    #[error("more than {ird} Reads and atomics at once")]
    IrdExceeded {
        /// The limit.
        ird: u32,
    },
    /// An atomic operation other than `FetchAdd` and `CmpSwap`.
    #[error("atomic operation {aopcode:#x}")]
    AtomicOpcode {
        /// As the request has it.
        aopcode: u8,
    },
    /// An Atomic Response with another identifier than the request had.
    #[error("Atomic Response to request {got:#x} where {expected:#x} is due")]
    RequestId {
        /// As the response has it.
        got: u32,
        /// As the request had it.
        expected: u32,
    },
    /// A Write to memory that the peer may not write.
    #[error("RDMA Write refused: {0}")]
    WriteAccess(AccessError),
    /// A Read of memory that the peer may not read.
    #[error("RDMA Read refused: {0}")]
    ReadSource(AccessError),
    /// An atomic operation on memory that the peer may not use so.
    #[error("atomic operation refused: {0}")]
    AtomicAccess(AccessError),
    /// An atomic operation on an address that is no multiple of 8.
    #[error("atomic operation on a misaligned address")]
    MisalignedAtomic,
    /// A Send with Invalidate whose STag stays valid.
    #[error("cannot invalidate: {0}")]
    Invalidate(InvalidateError),
    /// A Terminate that is not one. The stream ends, and nothing is said about it to the peer.
    #[error("malformed Terminate: {0}")]
    Terminate(TerminateFlaw),
    /// MPA found the stream broken (RFC 5044 chapter 8, RFC 6581 chapter 8).
    #[error("MPA error {}", .0.code())]
    Mpa(MpaError),
    /// Something broke on this side, or the ULP gave the stream up.
    #[error("local catastrophic error")]
    LocalCatastrophic,
    /// The peer closed the stream while work was outstanding (draft-hilland-rddp-verbs §6.2).
    #[error("closed by the peer with work outstanding")]
    BadClose,
    /// A completion queue of this side has overflowed (draft-hilland-rddp-verbs §8.3.3).
    #[error("completion queue overflow")]
    CqOverflow,
}

/// What is wrong with a Terminate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TerminateFlaw {
    /// Not on its queue, or tagged.
    #[error("{}", where_found(*.0))]
    Misdirected(Option<Qn>),
    /// Not the first message of its queue, or not at offset 0.
    #[error("{0}")]
    Ddp(DdpError),
    /// In more than one segment.
    #[error("in more than one segment")]
    NotLast,
    /// Shorter than its control word, or longer than any Terminate.
    #[error("{0} octets")]
    Length(usize),
}

impl Fault {
    /// What the Terminate for it says.
    #[must_use]
    pub fn code(&self) -> TerminateCode {
        match self {
            Fault::Ddp(error) | Fault::Terminate(TerminateFlaw::Ddp(error)) => ddp_code(*error),
            Fault::Version { .. } => TerminateCode::RDMAP_VERSION,
            Fault::UnknownOpcode { .. }
            | Fault::Misdirected { .. }
            | Fault::Unsolicited { .. }
            | Fault::AtomicOpcode { .. }
            | Fault::Terminate(TerminateFlaw::Misdirected(_)) => TerminateCode::UNEXPECTED_OPCODE,
            Fault::SinkStag { .. } => TerminateCode::TAGGED_INVALID_STAG,
            Fault::SinkTo { .. } | Fault::ResponseLength { .. } => TerminateCode::TAGGED_BOUNDS,
            Fault::ControlLength { .. }
            | Fault::RequestId { .. }
            | Fault::Terminate(TerminateFlaw::Length(_)) => TerminateCode::UNSPECIFIED_OPERATION,
            Fault::NotLast { .. }
            | Fault::MisalignedAtomic
            | Fault::BadClose
            | Fault::CqOverflow
            | Fault::Terminate(TerminateFlaw::NotLast) => TerminateCode::CATASTROPHIC_STREAM,
            // draft-hilland-rddp-verbs §8.3.3: there is no buffer for it, so its MSN is not a valid
            // one.
            Fault::IrdExceeded { .. } => TerminateCode::UNTAGGED_MSN_RANGE,
            Fault::WriteAccess(error) => write_code(*error),
            Fault::ReadSource(error) | Fault::AtomicAccess(error) => protection_code(*error),
            Fault::Invalidate(error) => invalidate_code(*error),
            Fault::Mpa(error) => TerminateCode::new(2, 0, error.code()),
            Fault::LocalCatastrophic => TerminateCode::LOCAL_CATASTROPHIC,
        }
    }

    /// Whether the peer is to be told. A Terminate, however broken, is never answered with a
    /// Terminate.
    #[must_use]
    pub const fn is_answerable(&self) -> bool {
        !matches!(self, Fault::Terminate(_))
    }

    /// Whether the peer is to blame; else it was this side.
    #[must_use]
    pub const fn is_remote(&self) -> bool {
        !matches!(
            self,
            Fault::LocalCatastrophic | Fault::CqOverflow | Fault::Ddp(DdpError::LocalCatastrophic)
        )
    }

    /// An inbound Write that memory refused.
    #[must_use]
    pub const fn write_access(error: AccessError) -> Self {
        Fault::WriteAccess(error)
    }

    /// The source of an inbound Read that memory refused.
    #[must_use]
    pub const fn read_source(error: AccessError) -> Self {
        Fault::ReadSource(error)
    }

    /// The target of an inbound atomic operation that memory refused.
    #[must_use]
    pub const fn atomic_access(error: AccessError) -> Self {
        Fault::AtomicAccess(error)
    }

    /// An atomic operation whose target's address is no multiple of 8 (RFC 7306 §8.2).
    #[must_use]
    pub const fn misaligned_atomic() -> Self {
        Fault::MisalignedAtomic
    }

    /// A Send with Invalidate whose STag stays valid (RFC 5040 §5.3).
    #[must_use]
    pub const fn invalidate(error: InvalidateError) -> Self {
        Fault::Invalidate(error)
    }

    /// A fault that MPA found in the stream.
    #[must_use]
    pub const fn mpa(error: MpaError) -> Self {
        Fault::Mpa(error)
    }

    /// Something broke on this side, or the ULP gave up.
    #[must_use]
    pub const fn local_catastrophic() -> Self {
        Fault::LocalCatastrophic
    }

    /// The peer closed with work outstanding.
    #[must_use]
    pub const fn bad_close() -> Self {
        Fault::BadClose
    }
}

impl From<SegmentError> for Fault {
    fn from(error: SegmentError) -> Self {
        Fault::Ddp(error.into())
    }
}

/// Reads the DDP header of a segment, with the fault it is when that fails.
///
/// The same as [`Header::parse`], but for a segment that was to be a Terminate and is shorter than
/// its header: what follows from that is not answered either.
///
/// # Errors
/// [`Fault::Ddp`], or [`Fault::Terminate`] for such a Terminate.
pub fn parse_header(segment: &[u8]) -> Result<Header, Fault> {
    Header::parse(segment).map_err(|error| match error {
        SegmentError::TooShort { len, .. } if is_terminate(segment) => {
            Fault::Terminate(TerminateFlaw::Ddp(DdpError::ShortSegment { len }))
        }
        error => error.into(),
    })
}

fn is_terminate(segment: &[u8]) -> bool {
    segment.get(1).is_some_and(|octet| octet & !control::RESERVED == Opcode::Terminate.control())
}

fn ddp_code(error: DdpError) -> TerminateCode {
    let (etype, ecode) = error.code();
    TerminateCode::new(1, etype, ecode)
}

// RFC 5041 §7.2. It has no number for a right that is missing; siw and we call the STag invalid for
// such a use.
const fn write_code(error: AccessError) -> TerminateCode {
    match error {
        AccessError::Stag | AccessError::Rights => TerminateCode::TAGGED_INVALID_STAG,
        AccessError::Pd => TerminateCode::TAGGED_STAG_NOT_ASSOCIATED,
        AccessError::Wrap => TerminateCode::TAGGED_TO_WRAP,
        AccessError::Bounds => TerminateCode::TAGGED_BOUNDS,
    }
}

const fn protection_code(error: AccessError) -> TerminateCode {
    match error {
        AccessError::Stag => TerminateCode::INVALID_STAG,
        AccessError::Pd => TerminateCode::STAG_NOT_ASSOCIATED,
        AccessError::Rights => TerminateCode::ACCESS_RIGHTS,
        AccessError::Wrap => TerminateCode::TO_WRAP,
        AccessError::Bounds => TerminateCode::BOUNDS,
    }
}

const fn invalidate_code(error: InvalidateError) -> TerminateCode {
    match error {
        InvalidateError::Unknown | InvalidateError::Key => TerminateCode::CANNOT_INVALIDATE_OPERATION,
        InvalidateError::Pd
        | InvalidateError::Rights
        | InvalidateError::WindowsBound
        | InvalidateError::Shared => TerminateCode::CANNOT_INVALIDATE_PROTECTION,
    }
}

fn where_found(qn: Option<Qn>) -> String {
    match qn {
        Some(qn) => format!("on queue {qn}"),
        None => "in a tagged segment".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_memory_refuses_has_a_code_for_each_operation() {
        // RFC 5041 §7.2, RFC 5040 §4.8 Figure 9
        let codes = |fault: fn(AccessError) -> Fault| {
            use AccessError::{Bounds, Pd, Rights, Stag, Wrap};
            [Stag, Bounds, Rights, Pd, Wrap].map(|error| fault(error).code().0)
        };
        assert_eq!(codes(Fault::write_access), [0x1100, 0x1101, 0x1100, 0x1102, 0x1103]);
        assert_eq!(codes(Fault::read_source), [0x0100, 0x0101, 0x0102, 0x0103, 0x0104]);
        assert_eq!(codes(Fault::atomic_access), [0x0100, 0x0101, 0x0102, 0x0103, 0x0104]);
    }

    #[test]
    fn what_cannot_be_invalidated_has_one_of_two_codes() {
        // RFC 5040 §4.8 Figure 9
        use InvalidateError::{Key, Pd, Rights, Shared, Unknown, WindowsBound};
        let code = |error| Fault::invalidate(error).code().0;
        assert_eq!([Unknown, Key].map(code), [0x0209; 2]);
        assert_eq!([Pd, Rights, WindowsBound, Shared].map(code), [0x0109; 4]);
    }

    #[test]
    fn faults_outside_of_messages_have_the_codes_of_their_layers() {
        assert_eq!(Fault::misaligned_atomic().code().0, 0x0207);
        assert_eq!(Fault::bad_close().code().0, 0x0207);
        assert_eq!(Fault::local_catastrophic().code().0, 0x0000);
        assert_eq!(Fault::mpa(MpaError::Closed).code().0, 0x2001);
        assert_eq!(Fault::mpa(MpaError::NoMatchingRtr).code().0, 0x2007);
        assert_eq!(Fault::mpa(MpaError::Crc).to_string(), "MPA error 2");
        assert_eq!(Fault::Ddp(DdpError::ShortSegment { len: 0 }).code().0, 0x1000);
    }

    #[test]
    fn every_code_that_is_sent_is_one_of_the_tables() {
        let faults = [
            Fault::Version { version: 2 },
            Fault::UnknownOpcode { opcode: 15 },
            Fault::Misdirected { opcode: Opcode::Send, qn: None },
            Fault::Unsolicited { opcode: Opcode::ReadResponse },
            Fault::SinkStag { got: Stag(1), expected: Stag(2) },
            Fault::SinkTo { got: 1, expected: 2 },
            Fault::ResponseLength { got: 1, expected: 2 },
            Fault::ControlLength { opcode: Opcode::ReadRequest, len: 1 },
            Fault::NotLast { opcode: Opcode::ReadRequest },
            Fault::IrdExceeded { ird: 1 },
            Fault::AtomicOpcode { aopcode: 1 },
            Fault::RequestId { got: 1, expected: 2 },
        ];
        for fault in faults {
            assert!(fault.code().name().is_some(), "{fault}");
            assert!(fault.is_answerable() && fault.is_remote(), "{fault}");
        }
        assert!(!Fault::local_catastrophic().is_remote());
    }

    #[test]
    fn a_segment_too_short_to_be_the_terminate_it_was_is_not_answered() {
        // RFC 5040 §5.4
        let short = parse_header(&[0x41, 0x47, 0, 0]).unwrap_err();
        assert!(!short.is_answerable());
        for segment in [&[][..], &[0x41], &[0x41, 0x43, 0], &[0x41, 0x87, 0]] {
            let fault = parse_header(segment).unwrap_err();
            assert_eq!((fault.is_answerable(), fault.code().0), (true, 0x1000), "{segment:?}");
        }
        assert_eq!(parse_header(&[0x42; 18]).unwrap_err().code().0, 0x1206);
        assert!(parse_header(&[0x41; 18]).is_ok());
    }

    #[test]
    fn faults_say_what_is_wrong_in_words() {
        let shown = |fault: Fault| fault.to_string();
        let sink = Fault::SinkTo { got: 0x10, expected: 0x20 };
        assert_eq!(shown(sink), "Read Response to TO 0x10 where 0x20 is due");
        assert_eq!(shown(Fault::write_access(AccessError::Bounds)), "RDMA Write refused: outside the buffer");
        assert_eq!(
            shown(Fault::Terminate(TerminateFlaw::Misdirected(None))),
            "malformed Terminate: in a tagged segment"
        );
        assert_eq!(shown(Fault::Misdirected { opcode: Opcode::Send, qn: Some(Qn(1)) }), "Send on queue 1");
    }
}
