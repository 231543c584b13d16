//! Registered memory as one queue pair and its peer may use it.

use rddp_ddp::Stag;
use rddp_rdma::{Operation, Sge, Status};
use rddp_rdmap::{AccessError, InvalidateError};
use smallvec::SmallVec;

use super::attributes::QpAttributes;
use crate::local::LocalMemory;
use crate::mem::{Access, BindWindow, Grant, PdId};

/// The memory of one segment, mostly a single piece.
pub(crate) type Grants = SmallVec<[Grant; 1]>;

impl QpAttributes {
    pub(crate) fn local_memory(&self) -> LocalMemory<'_> {
        LocalMemory { table: &self.device.mem, pd: self.pd }
    }

    /// Checks access by the peer: the QP's own switches, then the memory's rights
    /// (draft-hilland-rddp-verbs §7.6.3).
    #[inline]
    pub(crate) fn check_remote(
        &self,
        stag: Stag,
        to: u64,
        len: u64,
        want: Access,
    ) -> Result<Grant, AccessError> {
        if !self.inbound.get().contains(want) {
            return Err(AccessError::Rights);
        }
        self.device.mem.check_remote(stag, to, len, want, self.pd, self.num)
    }

    /// Invalidates an STag for the peer, if the QP gives the peer any right
    /// (draft-hilland-rddp-verbs §7.8).
    pub(crate) fn invalidate_remote(&self, stag: Stag) -> Result<(), InvalidateError> {
        if self.inbound.get().is_empty() {
            return Err(InvalidateError::Rights);
        }
        self.device.mem.invalidate_remote(stag, self.pd, self.num)
    }

    /// Adds the memory of a scatter list (to be written, in the PD given) or gather list, `len`
    /// octets from `skip` on. Returns whether some of it is in a file.
    pub(crate) fn grants_of(
        &self,
        list: &[Sge],
        mut skip: u64,
        len: usize,
        scatter: Option<PdId>,
        grants: &mut Grants,
    ) -> Result<bool, AccessError> {
        let (mut left, mut in_file) = (len as u64, false);
        for sge in list {
            if left == 0 {
                break;
            }
            if skip >= sge.len {
                skip -= sge.len;
                continue;
            }
            let count = left.min(sge.len - skip);
            let addr = sge.addr.checked_add(skip).ok_or(AccessError::Wrap)?;
            let pd = scatter.unwrap_or(self.pd);
            let grant = self.device.mem.check_local(sge.stag, addr, count, scatter.is_some(), pd)?;
            in_file |= grant.is_in_file();
            grants.push(grant);
            (left, skip) = (left - count, 0);
        }
        if left == 0 { Ok(in_file) } else { Err(AccessError::Bounds) }
    }

    /// Copies a gather list to `out`, which has its length. Returns whether the program may send
    /// all of it, and all of it is there.
    #[inline]
    pub(crate) fn copy_gathered(&self, list: &[Sge], mut out: &mut [u8]) -> bool {
        for sge in list.iter().filter(|sge| sge.len > 0) {
            let Ok(grant) = self.device.mem.check_local(sge.stag, sge.addr, sge.len, false, self.pd) else {
                return false;
            };
            let (now, later) = out.split_at_mut(grant.len());
            if grant.copy_to(0, now).is_err() {
                return false;
            }
            out = later;
        }
        true
    }

    /// Checks the sink of a Read: the program's own memory, with the right of local write.
    pub(crate) fn check_sink(&self, sink: &Sge, len: u64) -> Result<(), Status> {
        if len == 0 {
            return Ok(());
        }
        if sink.len < len {
            return Err(Status::LocalProtection);
        }
        let grant = self.device.mem.check_local(sink.stag, sink.addr, len, true, self.pd);
        grant.map(drop).map_err(|_| Status::LocalProtection)
    }

    /// Carries out a request that sends nothing. Binds and invalidations take effect when they are
    /// reached, before any later request.
    pub(crate) fn local_operation(&self, operation: &Operation) -> Status {
        let memory = &self.device.mem;
        let done = match *operation {
            Operation::Bind { window, range, access, key } => {
                let Sge { stag: region, addr, len } = range;
                let (pd, qp) = (self.pd, self.num);
                memory.bind(&BindWindow { window, region, addr, len, access, pd, qp, key }).is_ok()
            }
            Operation::Invalidate { stag } => memory.invalidate_local(stag, self.pd, self.num).is_ok(),
            _ => false,
        };
        if done { Status::Success } else { Status::MemoryBind }
    }
}
