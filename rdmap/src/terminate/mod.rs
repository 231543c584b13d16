//! The Terminate: its header, its codes, and which one a fault becomes (RFC 5040 §4.8, chapter 7).

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
    /// Its DDP header.
    pub header: Header,
    /// Its Read header if it was a Read Request, advanced by what has been answered already. Nothing else has an RDMA
    /// header to show, atomics neither (RFC 7306 §8.1).
    pub read_request: Option<ReadRequestRepr>,
}

impl Offending {
    /// A segment with `payload_len` octets behind its header.
    #[must_use]
    pub fn new(header: Header, payload_len: usize) -> Self {
        let ulpdu_len = u16::try_from(header.len() + payload_len).unwrap_or(u16::MAX);
        Self { ulpdu_len, header, read_request: None }
    }
}

/// The Terminate for a fault. Which headers go with it depends on layer and error type alone (RFC 5040 §4.8 Figure 10):
/// none with a local catastrophic error or one of the LLP, else segment length and DDP header if there are any, and the Read
/// header if a Read Request led to a protection error. A segment without a readable header has no `offending`, and so its
/// Terminate is bare.
///
/// Not to be sent unless [`Fault::is_answerable`].
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
