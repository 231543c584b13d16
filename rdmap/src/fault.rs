//! Faults that end a stream, and the Terminate code of each (RFC 5040 §4.8, §7.1, RFC 5041 §7.2).

use rddp_ddp::{DdpError, Header, Qn, SegmentError, Stag};
use rddp_mpa::MpaError;

use crate::opcode::control;
use crate::{AccessError, InvalidateError, Opcode, TerminateCode};

/// The reason why a stream ends.
///
/// ```
/// use rddp_rdmap::{AccessError, Fault, TerminateCode};
/// let fault = Fault::write_access(AccessError::Bounds);
/// assert_eq!(fault.code(), TerminateCode(0x1101));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The segment breaks a rule of DDP.
    #[error(transparent)]
    Ddp(#[from] DdpError),
    /// An RV other than 1.
    #[error("RDMAP version {version}")]
    Version {
        /// The version in the segment.
        version: u8,
    },
    /// An opcode that is unassigned, experimental, or switched off on this stream.
    #[error("opcode {opcode:#x} is not spoken here")]
    UnknownOpcode {
        /// The opcode in the segment.
        opcode: u8,
    },
    /// A message in a tagged segment that belongs in an untagged one or the reverse, or on the
    /// wrong queue.
    #[error("{opcode} {}", where_found(*qn))]
    Misdirected {
        /// The opcode in the segment.
        opcode: Opcode,
        /// The queue in the segment; `None` for a tagged segment.
        qn: Option<Qn>,
    },
    /// A Read or Atomic Response for which no request is at the head of the line.
    #[error("{opcode} that was not asked for")]
    Unsolicited {
        /// The opcode of the Response.
        opcode: Opcode,
    },
    /// A Read Response to another buffer than the Read named.
    #[error("Read Response to STag {got} where the Read named {expected}")]
    SinkStag {
        /// The STag in the segment.
        got: Stag,
        /// The STag in the Read Request.
        expected: Stag,
    },
    /// A Read Response to another place in the buffer than the one that is due.
    #[error("Read Response to TO {got:#x} where {expected:#x} is due")]
    SinkTo {
        /// The TO in the segment.
        got: u64,
        /// The TO that is due: the first of the Read plus the octets that have arrived.
        expected: u64,
    },
    /// A Read Response of another length than the Read asked for.
    #[error("Read Response of {got} octets to a Read of {expected}")]
    ResponseLength {
        /// Octets of the Response up to the end of this segment.
        got: u64,
        /// The length in the Read Request.
        expected: u32,
    },
    /// A header of fixed size that has another.
    #[error("{opcode} with a payload of {len} octets")]
    ControlLength {
        /// The message.
        opcode: Opcode,
        /// The number of octets in the segment.
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
        /// The operation in the request.
        aopcode: u8,
    },
    /// An Atomic Response with another identifier than the request had.
    #[error("Atomic Response to request {got:#x} where {expected:#x} is due")]
    RequestId {
        /// The identifier in the response.
        got: u32,
        /// The identifier in the request.
        expected: u32,
    },
    /// A Write to memory that the peer may not write.
    #[error("RDMA Write refused: {0}")]
    WriteAccess(AccessError),
    /// A Read of memory that the peer may not read.
    #[error("RDMA Read refused: {0}")]
    ReadSource(AccessError),
    /// An atomic operation on memory that the peer may not use for atomics.
    #[error("atomic operation refused: {0}")]
    AtomicAccess(AccessError),
    /// An atomic operation on an address that is no multiple of 8.
    #[error("atomic operation on a misaligned address")]
    MisalignedAtomic,
    /// A Send with Invalidate whose STag could not be invalidated.
    #[error("cannot invalidate: {0}")]
    Invalidate(InvalidateError),
    /// A malformed Terminate. The stream ends, and the peer is not told.
    #[error("malformed Terminate: {0}")]
    Terminate(TerminateFlaw),
    /// A fault that MPA found in the stream (RFC 5044 chapter 8, RFC 6581 chapter 8).
    #[error("{error} (MPA error {code})", error = .0, code = .0.code())]
    Mpa(MpaError),
    /// Something failed at this end, or the ULP gave up the stream.
    #[error("local catastrophic error")]
    LocalCatastrophic,
    /// The ULP gave up the stream, for a reason that stands as error code behind the type of local
    /// catastrophic errors.
    #[error("given up for reason {reason}")]
    GaveUp {
        /// The reason, which means something to the ULPs.
        reason: u8,
    },
    /// The peer closed the stream while work was outstanding (draft-hilland-rddp-verbs §6.2).
    #[error("closed by the peer with work outstanding")]
    BadClose,
    /// A completion queue of this side has overflowed (draft-hilland-rddp-verbs §8.3.3).
    #[error("completion queue overflow")]
    CqOverflow,
}

/// A fault of a Terminate message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TerminateFlaw {
    /// The message is tagged, or on another queue than that of Terminates.
    #[error("{}", where_found(*.0))]
    Misdirected(Option<Qn>),
    /// The message is not the first of its queue, or not at offset 0.
    #[error("{0}")]
    Ddp(DdpError),
    /// The message has more than one segment.
    #[error("in more than one segment")]
    NotLast,
    /// The message is shorter than its control word, or longer than any Terminate.
    #[error("{0} octets")]
    Length(usize),
}

impl Fault {
    /// Returns the code of the Terminate that reports the fault.
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
            // draft-hilland-rddp-verbs §8.3.3: there is no buffer for such a request,
            // so its MSN is not valid.
            Fault::IrdExceeded { .. } => TerminateCode::UNTAGGED_MSN_RANGE,
            Fault::WriteAccess(error) => write_code(*error),
            Fault::ReadSource(error) | Fault::AtomicAccess(error) => protection_code(*error),
            Fault::Invalidate(error) => invalidate_code(*error),
            Fault::Mpa(error) => TerminateCode::new(2, 0, error.code()),
            Fault::LocalCatastrophic => TerminateCode::LOCAL_CATASTROPHIC,
            // RFC 5040 §4.8, Figure 9: any code may stand there.
            Fault::GaveUp { reason } => TerminateCode::new(0, 0, *reason),
        }
    }

    /// Returns whether the peer is told by a Terminate. A Terminate, however malformed, is never
    /// answered with a Terminate.
    #[must_use]
    pub const fn is_answerable(&self) -> bool {
        !matches!(self, Fault::Terminate(_))
    }

    /// Returns whether the peer caused the fault, and not this end.
    #[must_use]
    pub const fn is_remote(&self) -> bool {
        !matches!(
            self,
            Fault::LocalCatastrophic
                | Fault::GaveUp { .. }
                | Fault::CqOverflow
                | Fault::Ddp(DdpError::LocalCatastrophic)
        )
    }

    /// Makes the fault of an inbound Write that memory refused.
    #[must_use]
    pub const fn write_access(error: AccessError) -> Self {
        Fault::WriteAccess(error)
    }

    /// Makes the fault of an inbound Read whose source memory refused.
    #[must_use]
    pub const fn read_source(error: AccessError) -> Self {
        Fault::ReadSource(error)
    }

    /// Makes the fault of an inbound atomic operation whose target memory refused.
    #[must_use]
    pub const fn atomic_access(error: AccessError) -> Self {
        Fault::AtomicAccess(error)
    }

    /// Makes the fault of an atomic operation whose target's address is no multiple of 8
    /// (RFC 7306 §8.2).
    #[must_use]
    pub const fn misaligned_atomic() -> Self {
        Fault::MisalignedAtomic
    }

    /// Makes the fault of a Send with Invalidate whose STag could not be invalidated
    /// (RFC 5040 §5.3).
    #[must_use]
    pub const fn invalidate(error: InvalidateError) -> Self {
        Fault::Invalidate(error)
    }

    /// Makes a fault that MPA found in the stream.
    #[must_use]
    pub const fn mpa(error: MpaError) -> Self {
        Fault::Mpa(error)
    }

    /// Makes the fault of a failure at this end, or of a ULP that gave up.
    #[must_use]
    pub const fn local_catastrophic() -> Self {
        Fault::LocalCatastrophic
    }

    /// Makes the fault of a ULP that gave up for a reason.
    #[must_use]
    pub const fn gave_up(reason: u8) -> Self {
        Fault::GaveUp { reason }
    }

    /// Makes the fault of a peer that closed with work outstanding.
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

/// Reads the DDP header of a segment, or returns the fault that a bad header is.
///
/// Does what [`Header::parse`] does, but for a segment that was to be a Terminate and is shorter
/// than its header: since it may be a Terminate, its fault is not answered with one.
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

// RFC 5041 §7.2 has no number for a right that is missing; like siw, we report the STag as invalid
// for such a use.
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
        assert_eq!(
            Fault::mpa(MpaError::Crc).to_string(),
            "octets have come that do not match their CRC (MPA error 2)"
        );
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
