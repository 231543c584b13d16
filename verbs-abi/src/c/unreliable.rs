//! Queue pairs of unreliable datagrams (UD): requests and completions.

use std::net::IpAddr;
use std::num::NonZeroU32;

use nix::errno::Errno;
use rddp_rnic::{Completion, Gather, Operation, QpNum, UdPeer};

use super::abi::{ibv_ah, ibv_send_wr, ibv_wc, wc, wc_flags, wr};
use crate::errors::Outcome;
use crate::refusal::because;

/// Kinds of packets that `ibv_wc.sl` tells programs of: UDP, with the kind of address in the low
/// bits, as mlx5 has it for RoCE. UCX drops datagrams of another kind than its own.
const OF_IPV4: u8 = 8 | 2;
const OF_IPV6: u8 = 8 | 1;

/// An address handle as requests know it: C's part, and the address.
#[repr(C)]
pub(super) struct Addressed {
    pub(super) c: ibv_ah,
    pub(super) address: IpAddr,
}

/// Returns a request of a queue pair of datagrams in the device's words: at most so many octets.
///
/// # Safety
/// The request names an address handle that the program has.
pub(super) unsafe fn operation(from: &ibv_send_wr, gather: Gather, most: u64) -> Outcome<Operation> {
    let immediate = match from.opcode {
        wr::SEND => None,
        wr::SEND_WITH_IMM => Some(from.imm_data.to_ne_bytes()),
        _ => return Err(because(Errno::EINVAL, "queue pairs of datagrams have Sends alone")),
    };
    if gather.total() > most {
        return Err(because(Errno::EINVAL, "longer than a datagram of the path (active_mtu)"));
    }
    let (handle, number, qkey) = from.ud();
    // SAFETY: promised by the caller; the handles of this library begin so.
    let to = unsafe { handle.cast::<Addressed>().as_ref() };
    let addr = to.ok_or_else(|| because(Errno::EINVAL, "the request has no address handle"))?.address;
    Ok(Operation::Unreliable { gather, to: UdPeer { addr, qp: QpNum(number), qkey }, immediate })
}

/// Notes in the completion of a receive what came with a datagram from this queue pair.
pub(super) fn note(source: NonZeroU32, completion: &Completion, is_ipv4: bool, entry: &mut ibv_wc) {
    entry.src_qp = source.get();
    entry.opcode = wc::RECV;
    entry.wc_flags |= wc_flags::GRH;
    entry.sl = if is_ipv4 { OF_IPV4 } else { OF_IPV6 };
    if let Some([a, b, c, d, ..]) = completion.immediate {
        entry.wc_flags |= wc_flags::WITH_IMM;
        entry.imm_data = u32::from_ne_bytes([a, b, c, d]);
    }
}
