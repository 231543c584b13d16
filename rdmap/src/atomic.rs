//! Atomic operations: their headers and their arithmetic (RFC 7306 chapter 5).
//!
//! On the wire every operand is big-endian; [`AtomicOp::apply`] works on the target's native 64-bit
//! value. It is a pure function: the caller sees to it that the target is aligned, and that nobody
//! else touches it between reading and writing.

use core::fmt;

use rddp_ddp::Stag;

use crate::fields::{Fields, Out};
use crate::{Fault, Opcode};

/// An operation on the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// `FetchAdd` (RFC 7306 §5.1.1).
    FetchAdd {
        /// The addend.
        add: u64,
        /// A 1 marks the top bit of a field: the carry out of it is dropped. 0 is a plain 64-bit
        /// addition.
        mask: u64,
    },
    /// `CmpSwap` (RFC 7306 §5.1.2). A plain swap has a compare mask of 0.
    CmpSwap {
        /// The new bits.
        swap: u64,
        /// The bits of the target that are replaced.
        swap_mask: u64,
        /// The value that the target is compared with.
        compare: u64,
        /// The bits that are compared.
        compare_mask: u64,
    },
}

impl AtomicOp {
    /// Returns the new value of the target; `None` if it is not to be written at all.
    #[must_use]
    #[inline]
    pub const fn apply(&self, original: u64) -> Option<u64> {
        match *self {
            AtomicOp::FetchAdd { add, mask } => Some(fetch_add(original, add, mask)),
            AtomicOp::CmpSwap { swap, swap_mask, compare, compare_mask } => {
                if (compare ^ original) & compare_mask == 0 {
                    Some((original & !swap_mask) | (swap & swap_mask))
                } else {
                    None
                }
            }
        }
    }
}

impl fmt::Display for AtomicOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AtomicOp::FetchAdd { add, mask } => write!(f, "add {add:#x} mask {mask:#x}"),
            AtomicOp::CmpSwap { swap, swap_mask, compare, compare_mask } => {
                write!(f, "compare {compare:#x} mask {compare_mask:#x} swap {swap:#x} mask {swap_mask:#x}")
            }
        }
    }
}

/// RFC 7306 §5.1.1 without a carry chain: the bits below the top of each field are added with the
/// tops cleared, so that no carry can leave a field; each top is then the sum of its two bits and
/// of the carry that reached it.
const fn fetch_add(original: u64, add: u64, mask: u64) -> u64 {
    let tops = mask | 1 << 63;
    ((original & !tops) + (add & !tops)) ^ ((original ^ add) & tops)
}

/// An atomic operation on the peer's memory: the payload of opcode 0xA (RFC 7306 §5.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequestRepr {
    /// The operation.
    pub op: AtomicOp,
    /// Chosen by the requester and returned in the Response.
    pub request_id: u32,
    /// The target's buffer.
    pub stag: Stag,
    /// Tagged Offset of the target; the address it stands for must be a multiple of 8.
    pub to: u64,
}

impl AtomicRequestRepr {
    /// Octets of this header.
    pub const LEN: usize = 52;

    /// Reads a whole payload. The 28 reserved bits, and fields that `FetchAdd` does not use, are
    /// ignored.
    ///
    /// # Errors
    /// [`Fault::ControlLength`] when it is not exactly [`LEN`](Self::LEN) octets,
    /// [`Fault::AtomicOpcode`] for an operation other than `FetchAdd` and `CmpSwap`.
    pub fn parse(payload: &[u8]) -> Result<Self, Fault> {
        if payload.len() != Self::LEN {
            return Err(Fault::ControlLength { opcode: Opcode::AtomicRequest, len: payload.len() });
        }
        let mut fields = Fields(payload);
        let aopcode = (fields.u32() & AOPCODE_MASK) as u8;
        let request_id = fields.u32();
        let stag = Stag(fields.u32());
        let to = fields.u64();
        let [data, mask, compare, compare_mask] = core::array::from_fn(|_| fields.u64());
        let op = match aopcode {
            FETCH_ADD => AtomicOp::FetchAdd { add: data, mask },
            CMP_SWAP => AtomicOp::CmpSwap { swap: data, swap_mask: mask, compare, compare_mask },
            aopcode => return Err(Fault::AtomicOpcode { aopcode }),
        };
        Ok(Self { op, request_id, stag, to })
    }

    /// Writes the header. `FetchAdd` sends a compare value of 0 and a compare mask of
    /// all ones (RFC 7306 §5.2.1).
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        let (aopcode, operands) = match self.op {
            AtomicOp::FetchAdd { add, mask } => (FETCH_ADD, [add, mask, 0, u64::MAX]),
            AtomicOp::CmpSwap { swap, swap_mask, compare, compare_mask } => {
                (CMP_SWAP, [swap, swap_mask, compare, compare_mask])
            }
        };
        let mut out = Out(out);
        out.u32(aopcode.into());
        out.u32(self.request_id);
        out.u32(self.stag.0);
        out.u64(self.to);
        for operand in operands {
            out.u64(operand);
        }
    }

    /// Returns the header's octets.
    #[must_use]
    pub fn octets(&self) -> [u8; Self::LEN] {
        let mut octets = [0; Self::LEN];
        self.emit(&mut octets);
        octets
    }
}

impl fmt::Display for AtomicRequestRepr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, request_id, stag, to } = self;
        write!(f, "atomic {request_id:#x} at {stag}+{to:#x}: {op}")
    }
}

/// An Atomic Response with the target's value before the operation: the payload of
/// opcode 0xB (RFC 7306 §5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicResponseRepr {
    /// The Request Identifier this answers.
    pub request_id: u32,
    /// The target's value before the operation.
    pub original: u64,
}

impl AtomicResponseRepr {
    /// Octets of this header.
    pub const LEN: usize = 12;

    /// Reads a whole payload.
    ///
    /// # Errors
    /// [`Fault::ControlLength`] when it is not exactly [`LEN`](Self::LEN) octets.
    pub fn parse(payload: &[u8]) -> Result<Self, Fault> {
        if payload.len() != Self::LEN {
            return Err(Fault::ControlLength { opcode: Opcode::AtomicResponse, len: payload.len() });
        }
        let mut fields = Fields(payload);
        Ok(Self { request_id: fields.u32(), original: fields.u64() })
    }

    /// Writes the header.
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        let mut out = Out(out);
        out.u32(self.request_id);
        out.u64(self.original);
    }

    /// Returns the header's octets.
    #[must_use]
    pub fn octets(&self) -> [u8; Self::LEN] {
        let mut octets = [0; Self::LEN];
        self.emit(&mut octets);
        octets
    }
}

impl fmt::Display for AtomicResponseRepr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "atomic {:#x} found {:#x}", self.request_id, self.original)
    }
}

const FETCH_ADD: u8 = 0;
const CMP_SWAP: u8 = 2;
const AOPCODE_MASK: u32 = 0x0f;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rddp_test_support::Random;

    use super::*;

    /// The pseudocode of RFC 7306 §5.1.1, bit for bit.
    fn bit_by_bit(original: u64, add: u64, mask: u64) -> u64 {
        let (mut value, mut carry) = (0, 0);
        for bit in 0..64 {
            let sum = carry + (original >> bit & 1) + (add >> bit & 1);
            value |= (sum & 1) << bit;
            carry = if mask >> bit & 1 == 1 { 0 } else { sum >> 1 };
        }
        value
    }

    #[test]
    fn fetch_add_agrees_with_the_bit_loop() {
        // RFC 7306 §5.1.1
        let mut random = Random::new(1);
        for round in 0..1_000_000 {
            let (original, add, mut mask) = (random.number(), random.number(), random.number());
            // Fewer and longer fields, too.
            for _ in 0..round % 7 {
                mask &= random.number();
            }
            let got = AtomicOp::FetchAdd { add, mask }.apply(original);
            assert_eq!(got, Some(bit_by_bit(original, add, mask)), "{original:#x} + {add:#x} mask {mask:#x}");
        }
    }

    #[test]
    fn fetch_add_without_a_mask_is_plain_addition() {
        // RFC 7306 §5.1.1
        let mut random = Random::new(1);
        for _ in 0..1000 {
            let (original, add) = (random.number(), random.number());
            for mask in [0, 1 << 63] {
                let got = AtomicOp::FetchAdd { add, mask }.apply(original);
                assert_eq!(got, Some(original.wrapping_add(add)));
            }
        }
    }

    #[test]
    fn compare_and_swap_replaces_the_masked_bits_when_the_compared_ones_match() {
        // RFC 7306 §5.1.2
        let op = |compare, compare_mask, swap, swap_mask| AtomicOp::CmpSwap {
            swap,
            swap_mask,
            compare,
            compare_mask,
        };
        assert_eq!(op(7, u64::MAX, 9, u64::MAX).apply(7), Some(9));
        assert_eq!(op(8, u64::MAX, 9, u64::MAX).apply(7), None);
        assert_eq!(op(0xcd07, 0xff, 0x1111, 0xffff).apply(0xab07), Some(0x1111));
        assert_eq!(op(0xcd07, 0xff00, 0x1111, 0xffff).apply(0xab07), None);
        assert_eq!(op(0, 0, u64::MAX, 0xff00).apply(0x1122), Some(0xff22), "a plain swap compares nothing");
        assert_eq!(op(7, u64::MAX, 9, 0).apply(7), Some(7));
    }

    const FETCH_ADD_OCTETS: [u8; 52] = *b"\0\0\0\0\xca\xfe\0\x01\x11\x22\x33\x44\0\0\0\0\0\x01\0\x08\
        \0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff";

    fn fetch_add_request() -> AtomicRequestRepr {
        let op = AtomicOp::FetchAdd { add: 5, mask: 0 };
        AtomicRequestRepr { op, request_id: 0xcafe_0001, stag: Stag(0x1122_3344), to: 0x10008 }
    }

    #[test]
    fn a_fetch_add_compares_with_zero_under_a_mask_of_ones() {
        // RFC 7306 §5.2.1
        assert_eq!(fetch_add_request().octets(), FETCH_ADD_OCTETS);
        assert_eq!(AtomicRequestRepr::parse(&FETCH_ADD_OCTETS), Ok(fetch_add_request()));
    }

    #[test]
    fn what_a_request_does_not_use_is_ignored() {
        // RFC 7306 §5.2.1
        let mut octets = FETCH_ADD_OCTETS;
        octets[..4].copy_from_slice(&[0xff, 0xff, 0xff, 0xf0]);
        octets[36..].fill(0xaa);
        assert_eq!(AtomicRequestRepr::parse(&octets), Ok(fetch_add_request()));
    }

    #[test]
    fn only_the_two_operations_there_are_pass() {
        // RFC 7306 §5.2.1
        for aopcode in (0..16).filter(|aopcode| ![0, 2].contains(aopcode)) {
            let mut octets = FETCH_ADD_OCTETS;
            octets[3] = aopcode;
            assert_eq!(AtomicRequestRepr::parse(&octets), Err(Fault::AtomicOpcode { aopcode }));
        }
    }

    #[test]
    fn any_other_length_is_refused() {
        for len in (0..64).filter(|len| *len != 52) {
            let fault = AtomicRequestRepr::parse(&[0; 64][..len]).unwrap_err();
            assert_eq!(fault, Fault::ControlLength { opcode: Opcode::AtomicRequest, len });
        }
        for len in (0..64).filter(|len| *len != 12) {
            let fault = AtomicResponseRepr::parse(&[0; 64][..len]).unwrap_err();
            assert_eq!(fault, Fault::ControlLength { opcode: Opcode::AtomicResponse, len });
        }
    }

    #[test]
    fn an_answer_carries_identifier_and_original() {
        // RFC 7306 §5.2.2
        let response = AtomicResponseRepr { request_id: 0xcafe_0001, original: 0x1122_3344_5566_7788 };
        let octets = *b"\xca\xfe\0\x01\x11\x22\x33\x44\x55\x66\x77\x88";
        assert_eq!(response.octets(), octets);
        assert_eq!(AtomicResponseRepr::parse(&octets), Ok(response));
    }

    #[test]
    fn headers_have_a_line_in_a_dump() {
        let shown = |op| AtomicRequestRepr { op, request_id: 7, stag: Stag(0x100), to: 0x20 }.to_string();
        let add = AtomicOp::FetchAdd { add: 1, mask: 0xff };
        assert_eq!(shown(add), "atomic 0x7 at 0x00000100+0x20: add 0x1 mask 0xff");
        let swap = AtomicOp::CmpSwap { swap: 1, swap_mask: 2, compare: 3, compare_mask: 4 };
        assert_eq!(shown(swap), "atomic 0x7 at 0x00000100+0x20: compare 0x3 mask 0x4 swap 0x1 mask 0x2");
        let response = AtomicResponseRepr { request_id: 7, original: 0x99 };
        assert_eq!(response.to_string(), "atomic 0x7 found 0x99");
    }

    fn op() -> impl Strategy<Value = AtomicOp> {
        prop_oneof![
            any::<[u64; 2]>().prop_map(|[add, mask]| AtomicOp::FetchAdd { add, mask }),
            any::<[u64; 4]>().prop_map(|[swap, swap_mask, compare, compare_mask]| {
                AtomicOp::CmpSwap { swap, swap_mask, compare, compare_mask }
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(op in op(), request_id: u32, stag: u32, to: u64) {
            let request = AtomicRequestRepr { op, request_id, stag: Stag(stag), to };
            prop_assert_eq!(AtomicRequestRepr::parse(&request.octets()), Ok(request));
        }

        #[test]
        fn what_is_accepted_is_written_as_it_was_understood(mut octets: [u8; 52], cmp_swap: bool) {
            octets[3] = octets[3] & 0xf0 | if cmp_swap { CMP_SWAP } else { FETCH_ADD };
            let request = AtomicRequestRepr::parse(&octets).unwrap();
            prop_assert_eq!(AtomicRequestRepr::parse(&request.octets()), Ok(request));
        }
    }
}
