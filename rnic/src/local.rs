//! The memory that a work request names, as far as it can be judged when the request is posted.

use rddp_rdma::Sge;

use crate::error::PostError;
use crate::mem::{MemTable, PdId};

/// Registered memory, as the requests of one protection domain may name it.
#[derive(Clone, Copy)]
pub(crate) struct LocalMemory<'a> {
    pub(crate) table: &'a MemTable,
    pub(crate) pd: PdId,
}

impl LocalMemory<'_> {
    /// Refuses pieces that are no good now, and so never will be: an STag that has become invalid
    /// stays so, because its region comes back under another key. What is good now may still go
    /// before it is used. Empty pieces need no STag.
    #[inline]
    pub(crate) fn check(self, list: &[Sge], write: bool) -> Result<(), PostError> {
        for (index, sge) in list.iter().enumerate() {
            if sge.len > 0
                && let Err(error) = self.table.check_local(sge.stag, sge.addr, sge.len, write, self.pd)
            {
                return Err(PostError::Memory { index, stag: sge.stag, fault: error.into() });
            }
        }
        Ok(())
    }
}
