//! The Terminate: its header, its codes, and the one for each fault (RFC 5040 §4.8, chapter 7).

mod code;
mod repr;

pub use code::TerminateCode;
pub use repr::{TerminateOctets, TerminateRepr};

use rddp_ddp::Header;

use crate::{Fault, ReadRequestRepr};

/// The first faulty segment, for the Terminate that reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offending {
    /// Octets of the whole segment, header included.
    pub ulpdu_len: u16,
    /// The segment's DDP header.
    pub header: Header,
    /// The segment's Read header if it is a Read Request, without what has been answered already.
    /// No other message has an RDMA header to show, not even an atomic (RFC 7306 §8.1).
    pub read_request: Option<ReadRequestRepr>,
}

impl Offending {
    /// Describes a segment with `payload_len` octets behind its header.
    #[must_use]
    pub fn new(header: Header, payload_len: usize) -> Self {
        let ulpdu_len = u16::try_from(header.len() + payload_len).unwrap_or(u16::MAX);
        Self { ulpdu_len, header, read_request: None }
    }
}

/// Returns the Terminate for a fault. The headers that go with it depend on layer and error type
/// alone (RFC 5040 §4.8 Figure 10): none with a local catastrophic error or one of the LLP, else
/// segment length and DDP header if there are any, and the Read header if a Read Request led to a
/// protection error. For a segment whose header cannot be read pass no `offending`: its Terminate
/// shows no headers.
///
/// Must not be sent unless [`Fault::is_answerable`].
#[must_use]
pub fn terminate_for(fault: &Fault, offending: Option<&Offending>) -> TerminateRepr {
    let code = fault.code();
    let (offending, with_read_request) = match (code.layer(), code.etype()) {
        (0, 0) | (2.., _) => (None, false),
        (0, 1) => (offending, true),
        _ => (offending, false),
    };
    TerminateRepr {
        code,
        segment_len: offending.map(|segment| segment.ulpdu_len),
        header: offending.map(|segment| segment.header),
        read_request: offending.filter(|_| with_read_request).and_then(|segment| segment.read_request),
    }
}

#[cfg(test)]
mod tests {
    use rddp_ddp::{DdpError, Msn, Stag};
    use rddp_mpa::MpaError;

    use super::*;
    use crate::{AccessError, InvalidateError, Opcode, tagged_header, untagged_header};

    fn read() -> Offending {
        let header = untagged_header(Opcode::ReadRequest, Stag(0), Msn(1), 0, true);
        let request =
            ReadRequestRepr { sink_stag: Stag(1), sink_to: 2, size: 3, src_stag: Stag(4), src_to: 5 };
        Offending { read_request: Some(request), ..Offending::new(header, ReadRequestRepr::LEN) }
    }

    /// Returns whether segment length, DDP header and RDMA header go with the Terminate for a fault
    /// of a Read Request.
    fn attached(fault: Fault) -> [bool; 3] {
        let terminate = terminate_for(&fault, Some(&read()));
        [terminate.segment_len.is_some(), terminate.header.is_some(), terminate.read_request.is_some()]
    }

    #[test]
    fn headers_go_with_a_fault_as_its_layer_and_type_have_it() {
        // RFC 5040 §4.8 Figure 10
        assert_eq!(attached(Fault::local_catastrophic()), [false; 3]);
        assert_eq!(attached(Fault::read_source(AccessError::Bounds)), [true; 3]);
        assert_eq!(attached(Fault::bad_close()), [true, true, false]);
        assert_eq!(attached(Fault::UnknownOpcode { opcode: 12 }), [true, true, false]);
        assert_eq!(attached(Fault::Ddp(DdpError::InvalidStag { stag: Stag(1) })), [true, true, false]);
        assert_eq!(attached(Fault::mpa(MpaError::Crc)), [false; 3]);
    }

    #[test]
    fn absent_headers_are_not_attached() {
        // RFC 5040 §7.1 rule 1
        let terminate = terminate_for(&Fault::read_source(AccessError::Stag), None);
        assert_eq!(terminate, TerminateRepr::bare(TerminateCode::INVALID_STAG));
        let write = Offending::new(tagged_header(Opcode::Write, Stag(1), 0, true), 4);
        let terminate = terminate_for(&Fault::invalidate(InvalidateError::Pd), Some(&write));
        assert_eq!((terminate.segment_len, terminate.read_request), (Some(18), None));
    }
}
