//! A shared receive queue.

use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rddp_verbs_layout::{ibv_recv_wr, ibv_sge, ibv_srq, ibv_srq_attr, ibv_srq_init_attr};

use super::context::Domain;
use super::{by_value, count};

/// A shared receive queue of a domain. Queue pairs that take from it hold it.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    pub(super) raw: NonNull<ibv_srq>,
    domain: Arc<Domain>,
}

// SAFETY: functions on the queue may be called from several threads at a time (see the module).
unsafe impl Send for SharedQueue {}
// SAFETY: as above.
unsafe impl Sync for SharedQueue {}

impl SharedQueue {
    pub(crate) fn new(domain: &Arc<Domain>, receives: u32, pieces: u32) -> io::Result<Self> {
        let attr = ibv_srq_attr { max_wr: receives, max_sge: pieces, srq_limit: 0 };
        let mut attributes = ibv_srq_init_attr { srq_context: null_mut(), attr };
        let table = &domain.context.library.table;
        // SAFETY: the domain and the structure are there.
        let raw = unsafe { (table.ibv_create_srq)(domain.raw.as_ptr(), &raw mut attributes) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(SharedQueue { raw, domain: Arc::clone(domain) })
    }

    /// Posts one receive.
    pub(crate) fn post(&self, id: u64, pieces: &[ibv_sge]) -> io::Result<()> {
        let mut request = ibv_recv_wr {
            wr_id: id,
            next: null_mut(),
            sg_list: pieces.as_ptr().cast_mut(),
            num_sge: count(pieces.len())?,
        };
        let (queue, mut bad) = (self.raw.as_ptr(), null_mut());
        // SAFETY: the queue is there, and its context has the function. Request and pieces are
        // there during the call, behind which the device needs neither; it writes memory by keys
        // alone, which it checks.
        by_value(unsafe { ((*(*queue).context).ops.post_srq_recv)(queue, &raw mut request, &raw mut bad) })
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        // SAFETY: the queue pairs, which hold this, are gone.
        unsafe { (self.domain.context.library.table.ibv_destroy_srq)(self.raw.as_ptr()) };
    }
}
