//! Queue pairs of unreliable datagrams (UD): steps between states, requests, completions.

use std::net::IpAddr;
use std::num::NonZeroU32;

use nix::errno::Errno;
use rddp_rnic::{Completion, Gather, Operation, QpNum, UdPeer};

use super::abi::{ibv_ah, ibv_send_wr, ibv_wc, qp_mask, qp_state, wc, wc_flags, wr};
use crate::errors::Outcome;
use crate::refusal::because;

/// Kinds of packets that `ibv_wc.sl` tells programs of: UDP, with the kind of address in the low
/// bits, as mlx5 has it for RoCE. UCX drops datagrams of another kind than its own.
const OF_IPV4: u8 = 8 | 2;
const OF_IPV6: u8 = 8 | 1;

/// Refuses a step between states without the attributes that it needs, or with some that it may not
/// have (InfiniBand Architecture §11.2.5.2, table of UD).
pub(super) fn check(from: u32, to: u32, mask: u32) -> Outcome<()> {
    use qp_mask::{CUR_STATE, EN_SQD_NOTIFY, PKEY_INDEX, PORT, QKEY, SQ_PSN, STATE};
    use qp_state::{ERR, INIT, RESET, RTR, RTS, SQD, SQE};
    let (required, optional) = match (from, to) {
        (_, RESET | ERR) => (0, 0),
        (RESET, INIT) => (PKEY_INDEX | PORT | QKEY, 0),
        (INIT, INIT) => (0, PKEY_INDEX | PORT | QKEY),
        (INIT, RTR) | (SQD, SQD) => (0, PKEY_INDEX | QKEY),
        (RTR, RTS) => (SQ_PSN, CUR_STATE | QKEY),
        (RTS | SQD | SQE, RTS) => (0, CUR_STATE | QKEY),
        (RTS, SQD) => (0, EN_SQD_NOTIFY),
        _ => return Err(because(Errno::EINVAL, "there is no such step between these states")),
    };
    if mask & required != required {
        return Err(because(Errno::EINVAL, "the step needs attributes that the mask does not name"));
    }
    if mask & !(STATE | required | optional) != 0 {
        return Err(because(Errno::EINVAL, "attributes that a queue pair of datagrams does not have"));
    }
    Ok(())
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_needs_its_attributes_and_takes_no_others() {
        use qp_mask::*;
        use qp_state::*;
        let step = |from, to, mask| check(from, to, STATE | mask).is_ok();
        let all = [
            (RESET, INIT, PKEY_INDEX | PORT | QKEY),
            (INIT, RTR, 0),
            (RTR, RTS, SQ_PSN),
            (RTS, RTS, QKEY),
            (RTS, SQD, 0),
            (SQD, RTS, 0),
            (RTS, RESET, 0),
            (INIT, ERR, 0),
        ];
        for (from, to, mask) in all {
            assert!(step(from, to, mask), "{from} to {to}");
            assert!(!step(from, to, mask | AV), "{from} to {to} with a peer");
        }
        assert!(!step(RESET, INIT, PKEY_INDEX | PORT), "without a Q_Key");
        assert!(!step(RTR, RTS, 0), "without a PSN");
        assert!(!step(RESET, RTR, 0) && !step(ERR, INIT, PKEY_INDEX | PORT | QKEY));
    }
}
