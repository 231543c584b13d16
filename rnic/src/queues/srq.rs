//! The queue behind a shared receive queue, as its QPs take from it
//! (draft-hilland-rddp-verbs §6.3).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rddp_rdma::{Element, RecvWr, SrqNum};
use rddp_verbs_device::{DeviceError, SharedReceives};

use crate::adapter::Adapter;
use crate::capabilities::CAPABILITIES;
use crate::error::PostError;
use crate::local::LocalMemory;
use crate::mem::{HostDevice, PdId, QpNum};
use crate::queues::given::Given;
use crate::queues::limits;

/// A QP, as the queue knows it that it takes receives from.
pub(crate) trait User: std::fmt::Debug + Send + Sync {
    /// Reports that few receives are left.
    fn report_limit(&self, srq: Element);
    /// Goes on with octets that waited for a receive.
    fn resume(&self);
}

/// The configuration of a shared receive queue.
///
/// ```
/// use rddp_rnic::{Rnic, SrqConfig};
/// let config = SrqConfig { quota: Some(64), ..Default::default() };
/// assert_eq!(Rnic::open()?.alloc_pd().create_srq(config).capacity(), 1024);
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SrqConfig {
    /// Number of receives that the queue can hold.
    pub max_recv: usize,
    /// Receives that one QP may hold of it at a time (taken, and its completion not polled for yet
    /// or its message still arriving), so that no peer drains it for the others
    /// (RFC 5042 §6.4.3.1). `None`: no limit.
    pub quota: Option<usize>,
}

impl Default for SrqConfig {
    fn default() -> Self {
        SrqConfig { max_recv: 1024, quota: None }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    posted: VecDeque<RecvWr>,
    /// Receives that a device of the host has, which count as posted.
    given: Given,
    pub(crate) capacity: usize,
    pub(crate) limit: usize,
    /// Number of receives taken and not released yet.
    pub(crate) out: usize,
    /// Number of receives taken by each QP and not released yet, if there is a quota.
    taken: HashMap<QpNum, usize>,
    /// QPs whose octets wait for a receive.
    waiting: HashSet<QpNum>,
}

impl Queue {
    /// Returns the number of receives that no message has taken.
    pub(crate) fn len(&self) -> usize {
        self.posted.len() + self.given.len()
    }

    /// Returns whether fewer receives are left than the limit, and clears the limit if so.
    fn is_limit_reached(&mut self) -> bool {
        let reached = self.len() < self.limit;
        if reached {
            self.limit = 0;
        }
        reached
    }
}

#[derive(Debug)]
pub(crate) struct SrqInner {
    pub(crate) num: SrqNum,
    device: Arc<Adapter>,
    pub(crate) pd: PdId,
    quota: Option<usize>,
    pub(crate) queue: Mutex<Queue>,
    /// The QPs that take receives from the queue.
    pub(crate) users: Mutex<HashMap<QpNum, Weak<dyn User>>>,
}

/// A receive that was taken, and whether that crossed the armed limit.
pub(crate) struct Taken {
    pub(crate) wr: RecvWr,
    pub(crate) limit_reached: bool,
}

impl SrqInner {
    pub(crate) fn new(num: SrqNum, device: Arc<Adapter>, pd: PdId, config: SrqConfig) -> Self {
        let SrqConfig { max_recv: capacity, quota } = config;
        let queue = Mutex::new(Queue { capacity, ..Queue::default() });
        SrqInner { num, device, pd, quota, queue, users: Mutex::default() }
    }

    /// The queue, as events name it.
    pub(crate) fn element(&self) -> Element {
        Element::Srq(self.num)
    }

    pub(crate) fn post(&self, wr: RecvWr) -> Result<(), PostError> {
        if wr.scatter.len() > CAPABILITIES.max_sge {
            return Err(PostError::TooManySges { count: wr.scatter.len(), max: CAPABILITIES.max_sge });
        }
        LocalMemory { table: &self.device.mem, pd: self.pd }.check(&wr.scatter, true)?;
        if let Some(host) = &self.device.host {
            limits::check_receive(&host.capabilities(), &wr)?;
        }
        let mut queue = self.queue.lock();
        if queue.len() >= queue.capacity {
            return Err(PostError::QueueFull { capacity: queue.capacity });
        }
        queue.posted.push_back(wr);
        self.fill(&mut queue);
        if !queue.waiting.is_empty() {
            let waiting = std::mem::take(&mut queue.waiting);
            drop(queue);
            self.resume(&waiting);
        }
        Ok(())
    }

    /// Posts a receive that is to fail: its memory is checked when a message comes. It shares
    /// nothing with [`post`](Self::post), which a second caller would take out of the hot path.
    pub(crate) fn post_unchecked(&self, wr: RecvWr) -> Result<(), PostError> {
        let mut queue = self.queue.lock();
        if queue.len() >= queue.capacity {
            return Err(PostError::QueueFull { capacity: queue.capacity });
        }
        queue.posted.push_back(wr);
        self.fill(&mut queue);
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        self.resume(&waiting);
        Ok(())
    }

    /// Has QPs look whether there is a receive for their octets. Those that find none wait again.
    #[cold]
    fn resume(&self, waiting: &HashSet<QpNum>) {
        for qp in waiting {
            let user = self.users.lock().get(qp).and_then(Weak::upgrade);
            if let Some(user) = user {
                user.resume();
            }
        }
    }

    /// Returns whether there is a receive that this QP may take.
    pub(crate) fn has_receive(&self, qp: QpNum) -> bool {
        self.may_take(&self.queue.lock(), qp)
    }

    fn may_take(&self, queue: &Queue, qp: QpNum) -> bool {
        let has_all =
            self.quota.is_some_and(|quota| queue.taken.get(&qp).is_some_and(|taken| *taken >= quota));
        !has_all && !queue.posted.is_empty()
    }

    /// Has a QP be told of the next receive that is posted, for octets that wait. Returns false if
    /// there is one for it now.
    pub(crate) fn await_receive(&self, qp: QpNum) -> bool {
        let mut queue = self.queue.lock();
        let waits = !self.may_take(&queue, qp);
        if waits {
            queue.waiting.insert(qp);
        }
        waits
    }

    /// Adds a QP to those that take receives from the queue.
    pub(crate) fn join(&self, num: QpNum, qp: Weak<dyn User>) {
        self.users.lock().insert(num, qp);
        self.tell_limit();
    }

    /// Has a QP report the limit if it is reached. Not called for a message that takes a receive,
    /// which reports it itself.
    pub(crate) fn tell_limit(&self) {
        let Some(user) = self.users.lock().values().find_map(Weak::upgrade) else { return };
        let reached = self.queue.lock().is_limit_reached();
        if reached {
            user.report_limit(self.element());
        }
    }

    pub(crate) fn take(&self, qp: QpNum) -> Option<Taken> {
        let mut queue = self.queue.lock();
        if let Some(quota) = self.quota {
            // RFC 5042 §6.4.3.1: a stream that takes more than its share finds no receive, as if
            // none were posted.
            if queue.taken.get(&qp).is_some_and(|taken| *taken >= quota) {
                return None;
            }
        }
        let wr = queue.posted.pop_front()?;
        queue.out += 1;
        if self.quota.is_some() {
            *queue.taken.entry(qp).or_default() += 1;
        }
        Some(Taken { wr, limit_reached: queue.is_limit_reached() })
    }

    /// Returns whether the queue belongs to this device.
    pub(crate) fn is_of(&self, device: &Arc<Adapter>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// Returns the queue of the device of the host behind this one, for queue pairs of this PD.
    ///
    /// # Errors
    /// The device has no such queues, or not what this one is to do.
    pub(crate) fn on_device(&self, host: &HostDevice, pd: PdId) -> Result<SharedReceives, DeviceError> {
        if self.quota.is_some() {
            return Err(host.lacks("quotas of shared receives"));
        }
        // Which domain a receive's memory has to belong to is where devices differ.
        if self.pd != pd {
            return Err(host.lacks("shared receive queues of another protection domain"));
        }
        let domain = host.domain(pd)?;
        let mut queue = self.queue.lock();
        let capacity = queue.capacity;
        let shared = queue.given.open(&domain, capacity)?;
        self.fill(&mut queue);
        Ok(shared)
    }

    /// Takes the receive that the device has given to a message, by its number there.
    pub(crate) fn take_given(&self, number: u64) -> Option<Taken> {
        let mut queue = self.queue.lock();
        let wr = queue.given.take(number)?;
        queue.out += 1;
        self.fill(&mut queue);
        Some(Taken { wr, limit_reached: queue.is_limit_reached() })
    }

    /// Hands receives over to the device that a connection has given back, if it is one of the
    /// host: the connection has ended.
    pub(crate) fn refill(&self) {
        if self.device.host.is_some() {
            self.fill(&mut self.queue.lock());
        }
    }

    // In the functions above, it would move code of other paths out of line: of Sends by some 25
    // instructions each.
    #[inline(never)]
    fn fill(&self, queue: &mut Queue) {
        if let Some(host) = &self.device.host {
            queue.given.fill(&mut queue.posted, host);
        }
    }

    /// Notes that `qp` has given back one receive: its completion was delivered and the program
    /// posts anew.
    pub(crate) fn release(&self, qp: QpNum) {
        let mut queue = self.queue.lock();
        queue.out = queue.out.saturating_sub(1);
        if let Some(taken) = queue.taken.get_mut(&qp) {
            *taken = taken.saturating_sub(1);
        }
    }

    pub(crate) fn forget(&self, qp: QpNum) {
        self.users.lock().remove(&qp);
        let mut queue = self.queue.lock();
        queue.taken.remove(&qp);
        queue.waiting.remove(&qp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(quota: usize) -> SrqInner {
        let device = crate::Rnic::open().unwrap().0.anywhere().adapter.clone();
        SrqInner::new(SrqNum(1), device, PdId(1), SrqConfig { quota: Some(quota), ..SrqConfig::default() })
    }

    fn takes(queue: &SrqInner, qp: QpNum) -> Option<u64> {
        queue.take(qp).map(|taken| taken.wr.wr_id)
    }

    /// RFC 5042 §6.4.3.1
    #[test]
    fn no_qp_takes_more_than_its_quota() {
        let queue = queue(1);
        (1..=3).for_each(|id| queue.post(RecvWr::new(id, [])).unwrap());
        assert_eq!([takes(&queue, QpNum(1)), takes(&queue, QpNum(1))], [Some(1), None]);
        assert_eq!(takes(&queue, QpNum(2)), Some(2));
        queue.release(QpNum(1));
        assert_eq!(takes(&queue, QpNum(1)), Some(3));
    }

    /// Looking at a segment before all of it has arrived asks for the same receive more than once.
    #[test]
    fn asking_an_empty_queue_costs_no_quota() {
        let queue = queue(1);
        (0..5).for_each(|_| assert_eq!(takes(&queue, QpNum(1)), None));
        queue.post(RecvWr::new(1, [])).unwrap();
        assert_eq!(takes(&queue, QpNum(1)), Some(1));
    }

    /// A QP that is dropped may leave completions behind, whose receives count as outstanding.
    #[test]
    fn receives_are_outstanding_until_their_completions_are_polled_for() {
        let pd = crate::Rnic::open().unwrap().alloc_pd();
        let queue = pd.create_srq(SrqConfig { quota: Some(2), ..SrqConfig::default() });
        (1..=3).for_each(|id| queue.post_recv(RecvWr::new(id, [])).unwrap());
        queue.inner.anywhere().take(QpNum(1));
        queue.inner.anywhere().take(QpNum(1));
        queue.inner.anywhere().forget(QpNum(1));
        assert_eq!((queue.len(), queue.outstanding()), (1, 3));
        queue.inner.anywhere().release(QpNum(1));
        assert_eq!((queue.len(), queue.outstanding()), (1, 2));
    }
}
