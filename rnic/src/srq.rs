//! The handle of a shared receive queue: receives that the messages of several QPs take from
//! (draft-hilland-rddp-verbs §6.3).

use std::sync::Arc;

use rddp_rdma::{RecvWr, SrqNum};

use crate::error::{Error, PostError};
use crate::home::Home;
use crate::pd::PdUser;
use crate::queues::srq::SrqInner;

/// A shared receive queue. Cloning gives another handle to the same queue.
///
/// ```
/// use rddp_rnic::{Access, QpConfig, RecvWr, Rnic, SrqConfig};
/// let rnic = Rnic::open()?;
/// let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64)?);
/// let srq = pd.create_srq(SrqConfig::default());
/// let config = QpConfig { srq: Some(srq.clone()), ..QpConfig::new(&cq) };
/// let qps = [pd.create_qp(&config)?, pd.create_qp(&config)?];
///
/// let inbox = pd.allocate(4 * 512, Access::LOCAL_WRITE)?;
/// for slot in 0..4 {
///     srq.post_recv(RecvWr::one(slot as u64, inbox.sge(slot * 512..(slot + 1) * 512)))?;
/// }
/// assert_eq!((srq.users(), srq.len()), (qps.len(), 4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {
    pub(crate) inner: Home<Arc<SrqInner>>,
    /// Dropped with the last handle, though completions may hold the queue for longer.
    _of_pd: Arc<PdUser>,
}

impl SharedReceiveQueue {
    pub(crate) fn new(inner: Home<Arc<SrqInner>>, of_pd: PdUser) -> Self {
        SharedReceiveQueue { inner, _of_pd: Arc::new(of_pd) }
    }

    /// Returns the number of QPs that take receives from the queue.
    pub fn users(&self) -> usize {
        self.inner.here().map_or(0, |srq| srq.users.lock().len())
    }

    /// The number of this queue, as events name it.
    pub fn num(&self) -> SrqNum {
        self.inner.anywhere().num
    }

    /// Posts one receive.
    pub fn post_recv(&self, wr: RecvWr) -> Result<(), PostError> {
        self.inner.here()?.post(wr)
    }

    /// Posts a receive that a test wants to fail: its memory is checked when a message comes, and
    /// not before.
    #[doc(hidden)]
    pub fn post_recv_unchecked(&self, wr: RecvWr) -> Result<(), PostError> {
        self.inner.here()?.post_unchecked(wr)
    }

    /// Asks for one [`SrqLimit`](crate::AsyncEventKind::SrqLimit) event when fewer than `limit`
    /// receives are left. Where that is so already, one of the queue's QPs reports it at once; if
    /// there is none yet, the first that is made.
    pub fn arm_limit(&self, limit: usize) {
        let Ok(srq) = self.inner.here() else { return };
        srq.queue.lock().limit = limit;
        srq.tell_limit();
    }

    /// Returns the armed limit, or 0 where none is: the event disarms it.
    pub fn limit(&self) -> usize {
        self.inner.here().map_or(0, |srq| srq.queue.lock().limit)
    }

    /// Returns the number of receives that the queue can hold.
    pub fn capacity(&self) -> usize {
        self.inner.here().map_or(0, |srq| srq.queue.lock().capacity)
    }

    /// Changes the number of receives that the queue can hold.
    ///
    /// # Errors
    /// The queue holds more receives now.
    pub fn resize(&self, capacity: usize) -> Result<(), Error> {
        let mut queue = self.inner.here()?.queue.lock();
        if queue.len() > capacity {
            return Err(Error::InUse("a shared receive queue that holds more receives"));
        }
        queue.capacity = capacity;
        Ok(())
    }

    /// Returns the number of receives that are posted, or taken and their completion not polled for
    /// yet: as many completions can come of them.
    pub fn outstanding(&self) -> usize {
        let Ok(srq) = self.inner.here() else { return 0 };
        let queue = srq.queue.lock();
        queue.len() + queue.out
    }

    /// Returns the number of receives that are posted and not taken yet.
    pub fn len(&self) -> usize {
        self.inner.here().map_or(0, |srq| srq.queue.lock().len())
    }

    /// Returns whether no receive is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
