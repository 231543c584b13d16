//! Numbers of C's headers and the words of `rddp-rdma`.

use rddp_rdma::{Access, Completed, Completion, Gather, Operation, QpNum, SendWr, Sge, Stag, Status};
use rddp_verbs_layout::{Plain, access, cm, ibv_send_wr, ibv_sge, ibv_wc, send, status, wc, wc_flags, wr};

use crate::error::PostError;

/// The bit of a number that says that it is a receive's.
pub(crate) const RECEIVE: u64 = 1 << 63;

/// Returns whether a number is a receive's.
pub(crate) fn is_receive(number: u64) -> bool {
    number & RECEIVE != 0
}

/// Returns the number of a receive, as its owner has it.
pub(crate) fn number_of(number: u64) -> u64 {
    number & !RECEIVE
}

/// Returns the outcome of a request by the device's number.
pub(crate) fn status_of(number: u32, is_receive: bool) -> Status {
    match number {
        status::SUCCESS => Status::Success,
        status::WR_FLUSH_ERR => Status::Flushed,
        status::LOC_LEN_ERR | status::LOC_QP_OP_ERR if is_receive => Status::MessageTooLong,
        status::LOC_PROT_ERR => Status::LocalProtection,
        status::MW_BIND_ERR => Status::MemoryBind,
        status::REM_ACCESS_ERR => Status::RemoteAccess,
        status::REM_INV_REQ_ERR if is_receive => Status::RemoteInvalidate,
        status::REM_INV_REQ_ERR => Status::RemoteInvalidRequest,
        status::REM_OP_ERR | status::BAD_RESP_ERR => Status::RemoteOperation,
        status::RETRY_EXC_ERR => Status::Unanswered,
        status::RNR_RETRY_EXC_ERR => Status::ReceiverNotReady,
        status::LOC_LEN_ERR | status::LOC_QP_OP_ERR => Status::LocalOperation,
        // Codes of other transports, and the device's own trouble.
        _ => Status::Other,
    }
}

/// Returns the completion of a receive: of one that failed, the device says its outcome alone.
pub(crate) fn received(entry: &ibv_wc, wr_id: u64, qp: QpNum) -> Completion {
    let status = status_of(entry.status, true);
    let is_done = status == Status::Success;
    let has = |flag| is_done && entry.wc_flags & flag != 0;
    let octets = entry.imm_data.to_ne_bytes();
    let immediate = has(wc_flags::WITH_IMM).then(|| {
        let [a, b, c, d] = octets;
        [a, b, c, d, 0, 0, 0, 0]
    });
    // An Immediate of rddp is a Send without octets there.
    let by_immediate = immediate.is_some() && (entry.opcode == wc::RECV_RDMA_WITH_IMM || entry.byte_len == 0);
    Completion {
        wr_id,
        status,
        completed: if by_immediate { Completed::ReceiveImmediate } else { Completed::Receive },
        byte_len: if is_done { entry.byte_len } else { 0 },
        qp,
        invalidated: has(wc_flags::WITH_INV).then_some(Stag(entry.imm_data)),
        immediate,
        source: None,
        solicited: false,
    }
}

/// Returns the completion of a request that sends.
pub(crate) fn sent(wr_id: u64, status: Status, completed: Completed, read: u32, qp: QpNum) -> Completion {
    Completion {
        wr_id,
        status,
        completed,
        byte_len: if status == Status::Success { read } else { 0 },
        qp,
        invalidated: None,
        immediate: None,
        source: None,
        solicited: false,
    }
}

/// A request of the send queue as the device takes it, but for its octets.
pub(crate) struct Prepared<'a> {
    pub(crate) request: ibv_send_wr,
    pub(crate) completed: Completed,
    pub(crate) local: Local<'a>,
    /// Octets that a Read brings.
    pub(crate) read: u32,
}

/// The local octets of a request.
pub(crate) enum Local<'a> {
    None,
    Pieces(&'a [Sge]),
    Inline(&'a [u8]),
}

impl Local<'_> {
    /// Returns the octets of all pieces together.
    pub(crate) fn total(&self) -> u64 {
        match self {
            Local::None => 0,
            Local::Pieces(pieces) => pieces.iter().fold(0, |total, piece| total.saturating_add(piece.len)),
            Local::Inline(octets) => octets.len() as u64,
        }
    }
}

impl<'a> From<&'a Gather> for Local<'a> {
    fn from(gather: &'a Gather) -> Self {
        match gather {
            Gather::List(pieces) => Local::Pieces(pieces),
            Gather::Inline(octets) => Local::Inline(octets),
        }
    }
}

/// Returns the immediate value as C has it: of rddp's eight octets the last four must be 0.
fn immediate(data: [u8; 8]) -> Result<u32, PostError> {
    match data {
        [a, b, c, d, 0, 0, 0, 0] => Ok(u32::from_ne_bytes([a, b, c, d])),
        _ => Err(PostError::Unsupported { what: "Immediate Data of more than four octets" }),
    }
}

/// Makes C's request of a request.
#[inline]
pub(crate) fn prepare(of: &SendWr) -> Result<Prepared<'_>, PostError> {
    let mut request = ibv_send_wr::zeroed();
    for (is_set, flag) in [(of.solicited, send::SOLICITED), (of.read_fence, send::FENCE)] {
        request.send_flags |= if is_set { flag } else { 0 };
    }
    let mut read = 0;
    let (opcode, completed, local) = match &of.operation {
        Operation::Send { gather, invalidate: None } => (wr::SEND, Completed::Send, gather.into()),
        Operation::Send { gather, invalidate: Some(stag) } => {
            // siw takes it from where other requests have the key of the peer's memory.
            (request.imm_data, request.rkey) = (stag.0, stag.0);
            (wr::SEND_WITH_INV, Completed::Send, gather.into())
        }
        Operation::SendImmediate { gather, data } => {
            request.imm_data = immediate(*data)?;
            (wr::SEND_WITH_IMM, Completed::Send, gather.into())
        }
        Operation::Immediate { data } => {
            request.imm_data = immediate(*data)?;
            (wr::SEND_WITH_IMM, Completed::Immediate, Local::None)
        }
        Operation::Write { gather, remote } => {
            (request.remote_addr, request.rkey) = (remote.to, remote.stag.0);
            (wr::RDMA_WRITE, Completed::Write, gather.into())
        }
        Operation::WriteImmediate { gather, remote, data } => {
            (request.remote_addr, request.rkey) = (remote.to, remote.stag.0);
            request.imm_data = immediate(*data)?;
            (wr::RDMA_WRITE_WITH_IMM, Completed::Write, gather.into())
        }
        Operation::Read { sink, remote, invalidate_sink: false } => {
            (request.remote_addr, request.rkey) = (remote.to, remote.stag.0);
            read = u32::try_from(sink.len).unwrap_or(u32::MAX);
            (wr::RDMA_READ, Completed::Read, Local::Pieces(std::slice::from_ref(sink)))
        }
        Operation::Invalidate { stag } => {
            // As above.
            (request.imm_data, request.rkey) = (stag.0, stag.0);
            (wr::LOCAL_INV, Completed::Invalidate, Local::None)
        }
        Operation::FetchAdd { sink, remote, add, mask: 0 } => {
            request.set_atomic(remote.stag.0, remote.to, *add, 0);
            (wr::ATOMIC_FETCH_AND_ADD, Completed::FetchAdd, Local::Pieces(std::slice::from_ref(sink)))
        }
        Operation::CmpSwap { sink, remote, compare, compare_mask: u64::MAX, swap, swap_mask: u64::MAX } => {
            request.set_atomic(remote.stag.0, remote.to, *compare, *swap);
            (wr::ATOMIC_CMP_AND_SWP, Completed::CmpSwap, Local::Pieces(std::slice::from_ref(sink)))
        }
        _ => return Err(PostError::Unsupported { what: "this operation, or masks in it" }),
    };
    request.opcode = opcode;
    Ok(Prepared { request, completed, local, read })
}

/// Returns a piece as C has it.
pub(crate) fn piece(of: Sge) -> ibv_sge {
    ibv_sge { addr: of.addr, length: of.len as u32, lkey: of.stag.0 }
}

/// A piece of no octets.
const NOWHERE: Sge = Sge { stag: Stag(0), addr: 0, len: 0 };

/// Makes C's pieces of a list, in memory that is kept, without those of no octets, of which devices
/// differ in what they take them for. A Read has one at least, and so has an RNIC's receive.
#[inline]
pub(crate) fn fill<'a>(
    pieces: &'a mut Vec<ibv_sge>,
    list: &[Sge],
    max: usize,
    wants_one: bool,
    mut name: impl FnMut(Sge) -> Option<Sge>,
) -> Result<&'a [ibv_sge], PostError> {
    if list.len() > max {
        return Err(PostError::TooManyPieces { count: list.len(), max });
    }
    pieces.clear();
    for sge in list.iter().filter(|sge| sge.len > 0) {
        pieces.push(piece(name(*sge).ok_or(PostError::Unregistered)?));
    }
    if pieces.is_empty() && wants_one {
        pieces.push(piece(NOWHERE));
    }
    Ok(pieces)
}

/// Returns the rights of peers on a queue pair as C has them.
pub(crate) fn inbound(rights: Access) -> u32 {
    let flags = [
        (Access::REMOTE_READ, access::REMOTE_READ),
        (Access::REMOTE_WRITE, access::REMOTE_WRITE),
        (Access::REMOTE_ATOMIC, access::REMOTE_ATOMIC),
    ];
    let flags = flags.into_iter().filter(|(right, _)| rights.contains(*right));
    flags.fold(access::LOCAL_WRITE, |all, (_, flag)| all | flag)
}

/// Returns whether an event says that a connection did not come about.
pub(crate) fn is_failure(kind: u32) -> bool {
    matches!(kind, cm::ADDR_ERROR | cm::ROUTE_ERROR | cm::CONNECT_ERROR | cm::UNREACHABLE | cm::REJECTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_receive_tells_nothing_but_its_outcome() {
        // What a device leaves in the other fields is undefined.
        let entry = ibv_wc {
            status: status::LOC_LEN_ERR,
            opcode: wc::RECV_RDMA_WITH_IMM,
            byte_len: 77,
            wc_flags: wc_flags::WITH_IMM | wc_flags::WITH_INV,
            ..ibv_wc::default()
        };
        let told = received(&entry, 5, QpNum(1));
        assert_eq!((told.status, told.completed), (Status::MessageTooLong, Completed::Receive));
        assert_eq!((told.byte_len, told.immediate, told.invalidated), (0, None, None));
    }

    #[test]
    fn devices_differ_in_the_status_of_a_message_that_is_too_long() {
        let of = |number, is_receive| status_of(number, is_receive);
        assert_eq!([of(1, true), of(2, true)], [Status::MessageTooLong; 2]);
        assert_eq!([of(1, false), of(2, false)], [Status::LocalOperation; 2]);
        assert_eq!([of(9, true), of(9, false)], [Status::RemoteInvalidate, Status::RemoteInvalidRequest]);
        assert_eq!([of(12, false), of(13, false)], [Status::Unanswered, Status::ReceiverNotReady]);
        assert_eq!([of(21, true), of(99, false)], [Status::Other; 2]);
    }

    #[test]
    fn four_octets_of_an_immediate_are_carried_and_eight_are_not() {
        let four = SendWr::immediate(1, [1, 2, 3, 4, 0, 0, 0, 0]);
        assert_eq!(prepare(&four).unwrap().request.imm_data.to_ne_bytes(), [1, 2, 3, 4]);
        assert!(prepare(&SendWr::immediate(1, [1; 8])).is_err());
    }
}
