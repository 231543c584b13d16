//! Immediate Data (RFC 7306 §6) for programs whose values have 32 bits.
//!
//! The RFC has eight octets, and leaves their use to programs. As in RNICs that send them behind
//! Writes (cxgb4), the value is in the first four, in the program's order of octets, and the others
//! are 0. A Send with a value, which those RNICs have not, is marked in the others: else the peer
//! could not tell it from a Write with one. A Send with octets and a value is no message of
//! RFC 7306: the device that looks like RoCE has a way of its own for it.

use nix::errno::Errno;
use rddp_rnic::{Gather, Operation};

use super::abi::{ibv_wc, wc, wc_flags};
use crate::errors::Outcome;
use crate::refusal::because;

/// The last four octets of the value of a Send without octets.
const OF_SEND: [u8; 4] = *b"Send";
/// The last four octets of the value of a Send with octets.
const BESIDE_OCTETS: [u8; 4] = *b"Both";

/// Returns the octets that follow a Write.
pub(super) fn behind_a_write(value: u32) -> [u8; 8] {
    let [a, b, c, d] = value.to_ne_bytes();
    [a, b, c, d, 0, 0, 0, 0]
}

/// Returns a Send with a value. By iWARP it has no other octets: of RFC 7306 no message has both,
/// and two messages would take two receives.
pub(super) fn send(gather: Gather, value: u32, is_iwarp: bool) -> Outcome<Operation> {
    let [a, b, c, d] = value.to_ne_bytes();
    let data = |[e, f, g, h]: [u8; 4]| [a, b, c, d, e, f, g, h];
    match gather.total() {
        0 => Ok(Operation::Immediate { data: data(OF_SEND) }),
        _ if is_iwarp => Err(because(
            Errno::EOPNOTSUPP,
            "a Send with an immediate value has no other octets: RFC 7306 has no message with both",
        )),
        _ => Ok(Operation::SendImmediate { gather, data: data(BESIDE_OCTETS) }),
    }
}

/// Notes in a completion the value that came, and with what: with a Write, whose octets the
/// completion has for its own, as with InfiniBand, while none of the receive's memory was written;
/// or with a Send.
pub(super) fn note(data: [u8; 8], entry: &mut ibv_wc) {
    let [a, b, c, d, mark @ ..] = data;
    (entry.opcode, entry.byte_len) = match mark {
        OF_SEND => (wc::RECV, 0),
        BESIDE_OCTETS => (wc::RECV, entry.byte_len),
        _ => (wc::RECV_RDMA_WITH_IMM, entry.byte_len),
    };
    entry.wc_flags |= wc_flags::WITH_IMM;
    entry.imm_data = u32::from_ne_bytes([a, b, c, d]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came(data: [u8; 8]) -> ibv_wc {
        let mut entry = ibv_wc { byte_len: 5, ..ibv_wc::default() };
        note(data, &mut entry);
        assert_eq!(entry.wc_flags, wc_flags::WITH_IMM);
        entry
    }

    /// RFC 7306 §6.2: the octets are the program's own.
    #[test]
    fn a_value_keeps_its_octets_and_what_it_came_with() {
        let value = u32::from_ne_bytes(*b"abcd");
        assert_eq!(behind_a_write(value), *b"abcd\0\0\0\0");
        let entry = came(behind_a_write(value));
        assert_eq!((entry.opcode, entry.imm_data), (wc::RECV_RDMA_WITH_IMM, value));
        assert_eq!(entry.byte_len, 5);
        let none = || Gather::Inline(Vec::new());
        let Ok(Operation::Immediate { data }) = send(none(), value, true) else { panic!("refused") };
        let entry = came(data);
        assert_eq!((entry.opcode, entry.imm_data, entry.byte_len), (wc::RECV, value, 0));
    }

    #[test]
    fn a_send_by_iwarp_has_a_value_or_octets() {
        let octets = || Gather::Inline(vec![1, 2]);
        assert_eq!(send(octets(), 7, true), Err(Errno::EOPNOTSUPP));
        let Ok(Operation::SendImmediate { data, .. }) = send(octets(), 7, false) else { panic!("refused") };
        let entry = came(data);
        assert_eq!((entry.opcode, entry.imm_data, entry.byte_len), (wc::RECV, 7, 5));
    }
}
