//! `rdmap_terminate`: any octets as the payload of a Terminate, and as the headers it may carry
//! (RFC 5040 §4.8).

use arbitrary::{Arbitrary, Unstructured};
use rddp_ddp::{Header, Stag};
use rddp_rdmap::{
    AtomicOp, AtomicRequestRepr, AtomicResponseRepr, ReadRequestRepr, TerminateCode, TerminateRepr,
};

use crate::input::inputs;

inputs! {
    /// A Terminate to emit.
    pub struct Parts {
        /// Layer, error type and code.
        code: u16,
        /// DDP Segment Length.
        segment_len: Option<u16>,
        /// The Terminate has a DDP header, whose octets stand behind the parts.
        with_header: bool,
        /// Sizes and offsets of a Read Request.
        read: Option<u64>,
    }
}

/// Runs one input: parses it, and emits a Terminate made of it.
pub fn run(octets: &[u8]) {
    terminate(octets);
    operands(octets);
    let mut u = Unstructured::new(octets);
    if let Ok(parts) = Parts::arbitrary(&mut u) {
        emitted(&parts, u.take_rest());
    }
}

fn terminate(octets: &[u8]) {
    let parsed = TerminateRepr::parse(octets);
    assert_eq!(parsed.is_some(), octets.len() >= 4);
    let Some(terminate) = parsed else { return };
    assert!(terminate.to_string().contains("terminate"));
    // All that is reported comes from the octets.
    if let Some(header) = terminate.header {
        assert!(contains(octets, &header.octets()[1..]));
    }
    if let Some(read_request) = terminate.read_request {
        assert!(contains(octets, &read_request.octets()));
    }
    written(&terminate);
}

fn emitted(parts: &Parts, rest: &[u8]) {
    let header = if parts.with_header { Header::parse(rest).ok() } else { None };
    let read_request = parts.read.map(|number| ReadRequestRepr {
        // Headers that are all zeros count as absent.
        sink_stag: Stag(1),
        sink_to: number,
        size: number as u32,
        src_stag: Stag((number >> 32) as u32),
        src_to: number.rotate_left(17),
    });
    let code = TerminateCode(parts.code);
    assert_eq!(TerminateCode::new(code.layer(), code.etype(), parts.code as u8), code);
    written(&TerminateRepr { code, segment_len: parts.segment_len, header, read_request });
}

/// Checks that a Terminate that is emitted is read again.
fn written(terminate: &TerminateRepr) {
    let octets = terminate.octets();
    assert!((4..=TerminateRepr::MAX_LEN).contains(&octets.len()));
    let again = TerminateRepr::parse(&octets);
    // A code alone that is in no table may be one in siw's bit order; this end sends none of those.
    if terminate.code.name().is_some() || octets[2] != 0 {
        assert_eq!(again.as_ref(), Some(terminate));
    }
}

fn contains(octets: &[u8], part: &[u8]) -> bool {
    octets.windows(part.len()).any(|window| window == part)
}

/// Checks the fixed-size headers of RFC 5040 §4.4 and RFC 7306 §5.2.
fn operands(octets: &[u8]) {
    let read = ReadRequestRepr::parse(octets);
    assert_eq!(read.is_ok(), octets.len() == ReadRequestRepr::LEN);
    if let Ok(read) = read {
        assert_eq!(read.octets(), octets);
        let left = read.advanced(u32::from_be_bytes([octets[0], octets[1], octets[2], octets[3]]));
        assert!(left.size <= read.size);
    }
    let response = AtomicResponseRepr::parse(octets);
    assert_eq!(response.is_ok(), octets.len() == AtomicResponseRepr::LEN);
    if let Ok(response) = response {
        assert_eq!(response.octets(), octets);
    }
    match AtomicRequestRepr::parse(octets) {
        Ok(request) => {
            assert_eq!(AtomicRequestRepr::parse(&request.octets()), Ok(request));
            assert!(!request.to_string().is_empty());
            apply(request.op, request.to);
        }
        Err(fault) => assert!(fault.code().name().is_some()),
    }
}

/// Computes the atomic operations of RFC 7306 §5.1 bit by bit.
fn apply(op: AtomicOp, original: u64) {
    let want = match op {
        AtomicOp::FetchAdd { add, mask } => {
            let (mut value, mut carry) = (0, 0);
            for bit in 0..64 {
                let sum = carry + (original >> bit & 1) + (add >> bit & 1);
                value |= (sum & 1) << bit;
                carry = if mask >> bit & 1 == 1 { 0 } else { sum >> 1 };
            }
            Some(value)
        }
        AtomicOp::CmpSwap { swap, swap_mask, compare, compare_mask } => {
            let same =
                (0..64).all(|bit| compare_mask >> bit & 1 == 0 || (compare ^ original) >> bit & 1 == 0);
            let pick = |bit: u32| if swap_mask >> bit & 1 == 1 { swap } else { original } >> bit & 1;
            same.then(|| (0..64).fold(0, |value, bit| value | pick(bit) << bit))
        }
    };
    assert_eq!(op.apply(original), want);
}
