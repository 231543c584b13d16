//! Numbers of C's headers and the words of `rddp-rnic` for the same things.

use nix::errno::Errno;
use rddp_rnic::{Access, Completed, Status};

use crate::c::abi::{access, status, wc};
use crate::errors::Outcome;
use crate::refusal::because;

/// Returns the rights that `flags` of `enum ibv_access_flags` ask for.
pub(crate) fn rights(flags: u32) -> Outcome<Access> {
    let flags = flags & !(access::OPTIONAL | access::HUGETLB);
    let words = [
        (access::LOCAL_WRITE, Access::LOCAL_WRITE),
        (access::REMOTE_WRITE, Access::REMOTE_WRITE),
        (access::REMOTE_READ, Access::REMOTE_READ),
        (access::REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
        (access::MW_BIND, Access::BIND),
        (access::ZERO_BASED, Access::ZERO_BASED),
    ];
    if words.iter().fold(flags, |left, (flag, _)| left & !flag) != 0 {
        return Err(because(Errno::EOPNOTSUPP, "access flags that the device does not have"));
    }
    let granted = words.iter().filter(|(flag, _)| flags & flag != 0);
    let mut rights = granted.fold(Access::empty(), |rights, (_, right)| rights | *right);
    // As with the kernel's devices, a peer that may reach a region may invalidate its key.
    rights.set(Access::REMOTE_INVALIDATE, rights.intersects(Access::REMOTE));
    Ok(rights)
}

/// Returns the `enum ibv_wc_status` of an outcome.
pub(crate) fn status_of(outcome: Status) -> u32 {
    match outcome {
        Status::Success => status::SUCCESS,
        Status::LocalProtection => status::LOC_PROT_ERR,
        Status::LocalOperation => status::LOC_QP_OP_ERR,
        Status::MemoryBind => status::MW_BIND_ERR,
        Status::MessageTooLong => status::LOC_LEN_ERR,
        Status::RemoteInvalidate | Status::RemoteInvalidRequest => status::REM_INV_REQ_ERR,
        Status::RemoteAccess => status::REM_ACCESS_ERR,
        Status::RemoteOperation => status::REM_OP_ERR,
        Status::ReceiverNotReady => status::RNR_RETRY_EXC_ERR,
        Status::Unanswered => status::RETRY_EXC_ERR,
        Status::Flushed => status::WR_FLUSH_ERR,
        _ => status::GENERAL_ERR,
    }
}

/// Returns the `enum ibv_wc_opcode` of what completed.
pub(crate) fn opcode_of(completed: Completed) -> u32 {
    match completed {
        Completed::Write => wc::RDMA_WRITE,
        Completed::Read => wc::RDMA_READ,
        Completed::FetchAdd => wc::FETCH_ADD,
        Completed::CmpSwap => wc::COMP_SWAP,
        Completed::Bind => wc::BIND_MW,
        Completed::Invalidate => wc::LOCAL_INV,
        Completed::Receive | Completed::ReceiveImmediate => wc::RECV,
        _ => wc::SEND,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_those_asked_for_and_hints_are_none() {
        assert_eq!(rights(access::LOCAL_WRITE | 0x10_0000), Ok(Access::LOCAL_WRITE));
        assert_eq!(rights(access::REMOTE_READ), Ok(Access::REMOTE_READ | Access::REMOTE_INVALIDATE));
        assert_eq!(rights(64), Err(Errno::EOPNOTSUPP), "on-demand paging");
    }
}
