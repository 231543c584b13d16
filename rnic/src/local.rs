//! Checks of the memory that a work request names, made when it is posted.

use rddp_rdma::Sge;

use crate::error::PostError;
use crate::mem::{MemTable, PdId};

/// Registered memory, from the view of one protection domain's requests.
#[derive(Clone, Copy)]
pub(crate) struct LocalMemory<'a> {
    pub(crate) table: &'a MemTable,
    pub(crate) pd: PdId,
}

impl LocalMemory<'_> {
    /// Refuses pieces that the request can never use: an STag that is invalid now stays so, because
    /// its region comes back under another key. Pieces that pass may still become invalid before
    /// they are used, which is checked then. Empty pieces need no STag.
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
