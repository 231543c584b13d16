//! Shared receive queues: receives that the messages of several QPs take from (draft-hilland-rddp-verbs §6.3).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::device::DeviceInner;
use crate::error::PostError;
use crate::local::LocalMemory;
use crate::mem::{PdId, QpNum};
use crate::wr::{MAX_SGE, RecvWr};

/// How a shared receive queue is made.
#[derive(Clone, Copy, Debug)]
pub struct SrqConfig {
    /// Receives that it can hold.
    pub max_recv: usize,
    /// Receives that one QP may hold of it at a time (taken, and its completion not polled for yet or its message still
    /// arriving), so that no peer drains it for the others (RFC 5042 §6.4.3.1). `None`: no limit.
    pub quota: Option<usize>,
}

impl Default for SrqConfig {
    fn default() -> Self {
        SrqConfig { max_recv: 1024, quota: None }
    }
}

/// A shared receive queue. Cloning gives another handle to the same queue.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue(pub(crate) Arc<SrqInner>);

impl SharedReceiveQueue {
    /// Posts one receive.
    pub fn post_recv(&self, wr: RecvWr) -> Result<(), PostError> {
        self.0.post(wr)
    }

    /// Asks for one [`SrqLimit`](crate::AsyncEventKind::SrqLimit) event when fewer than `limit` receives are left.
    pub fn arm_limit(&self, limit: usize) {
        self.0.queue.lock().limit = limit;
    }

    /// Receives that are posted, or taken and their completion not polled for yet: as many completions can come of them.
    pub fn outstanding(&self) -> usize {
        let queue = self.0.queue.lock();
        queue.posted.len() + queue.out
    }

    /// Receives that are posted and not taken yet.
    pub fn len(&self) -> usize {
        self.0.queue.lock().posted.len()
    }

    /// Whether no receive is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[derive(Debug, Default)]
struct Queue {
    posted: VecDeque<RecvWr>,
    limit: usize,
    /// Taken and not released yet.
    out: usize,
    /// The same by their QPs, where there is a quota.
    taken: HashMap<QpNum, usize>,
}

#[derive(Debug)]
pub(crate) struct SrqInner {
    device: Arc<DeviceInner>,
    pub(crate) pd: PdId,
    config: SrqConfig,
    queue: Mutex<Queue>,
}

/// A receive that was taken, and whether that crossed the armed limit.
pub(crate) struct Taken {
    pub(crate) wr: RecvWr,
    pub(crate) limit_reached: bool,
}

impl SrqInner {
    pub(crate) fn new(device: Arc<DeviceInner>, pd: PdId, config: SrqConfig) -> Self {
        SrqInner { device, pd, config, queue: Mutex::default() }
    }

    fn post(&self, wr: RecvWr) -> Result<(), PostError> {
        if wr.scatter.len() > MAX_SGE {
            return Err(PostError::TooManySges { count: wr.scatter.len(), max: MAX_SGE });
        }
        LocalMemory { table: &self.device.mem, pd: self.pd }.check(&wr.scatter, true)?;
        let mut queue = self.queue.lock();
        if queue.posted.len() >= self.config.max_recv {
            return Err(PostError::QueueFull { capacity: self.config.max_recv });
        }
        queue.posted.push_back(wr);
        Ok(())
    }

    pub(crate) fn take(&self, qp: QpNum) -> Option<Taken> {
        let mut queue = self.queue.lock();
        if let Some(quota) = self.config.quota {
            // RFC 5042 §6.4.3.1: a stream that takes more than its share finds no receive, as if none were posted.
            if queue.taken.get(&qp).is_some_and(|taken| *taken >= quota) {
                return None;
            }
        }
        let wr = queue.posted.pop_front()?;
        queue.out += 1;
        if self.config.quota.is_some() {
            *queue.taken.entry(qp).or_default() += 1;
        }
        let limit_reached = queue.posted.len() < queue.limit;
        if limit_reached {
            queue.limit = 0;
        }
        Some(Taken { wr, limit_reached })
    }

    /// `qp` has given back one receive: its completion was delivered and the program posts anew.
    pub(crate) fn release(&self, qp: QpNum) {
        let mut queue = self.queue.lock();
        queue.out = queue.out.saturating_sub(1);
        if let Some(taken) = queue.taken.get_mut(&qp) {
            *taken = taken.saturating_sub(1);
        }
    }

    pub(crate) fn forget(&self, qp: QpNum) {
        self.queue.lock().taken.remove(&qp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(quota: usize) -> SrqInner {
        let device = crate::Rnic::open().unwrap().0;
        SrqInner::new(device, PdId(1), SrqConfig { quota: Some(quota), ..SrqConfig::default() })
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

    /// A segment that is looked at before all of it has come asks more than once.
    #[test]
    fn asking_an_empty_queue_costs_no_quota() {
        let queue = queue(1);
        (0..5).for_each(|_| assert_eq!(takes(&queue, QpNum(1)), None));
        queue.post(RecvWr::new(1, [])).unwrap();
        assert_eq!(takes(&queue, QpNum(1)), Some(1));
    }

    /// A QP that goes leaves completions behind.
    #[test]
    fn receives_are_outstanding_until_their_completions_are_polled_for() {
        let queue = SharedReceiveQueue(Arc::new(queue(2)));
        (1..=3).for_each(|id| queue.post_recv(RecvWr::new(id, [])).unwrap());
        queue.0.take(QpNum(1));
        queue.0.take(QpNum(1));
        queue.0.forget(QpNum(1));
        assert_eq!((queue.len(), queue.outstanding()), (1, 3));
        queue.0.release(QpNum(1));
        assert_eq!((queue.len(), queue.outstanding()), (1, 2));
    }
}
