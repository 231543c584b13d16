//! The receive queue: a QP's own, or its share of a shared one.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use rddp_ddp::Stag;
use rddp_rdma::{Capabilities, Completed, Completion, RecvWr, Sge, Status};

use crate::capabilities::CAPABILITIES;
use crate::error::PostError;
use crate::local::LocalMemory;
use crate::mem::QpNum;
use crate::queues::limits;
use crate::queues::options::Transport;
use crate::queues::srq::SrqInner;
use crate::queues::unpolled::Unpolled;

/// Posted receives, and the one into which a message is arriving.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    posted: VecDeque<RecvWr>,
    /// Number of receives of its own that the queue holds, those included whose completions are
    /// `unpolled`.
    capacity: usize,
    pub(crate) unpolled: Unpolled,
    srq: Option<Arc<SrqInner>>,
    current: Option<RecvWr>,
    /// True when the connection has ended: its messages get no receive from the shared queue any
    /// more.
    flushed: bool,
    transport: Transport,
    /// Set where the wire is a device of the host: what that has.
    limits: Option<Box<Capabilities>>,
}

impl RecvQueue {
    pub(crate) fn new(
        capacity: usize,
        unpolled: Unpolled,
        srq: Option<Arc<SrqInner>>,
        transport: Transport,
    ) -> Self {
        let (posted, current) = Default::default();
        RecvQueue { posted, capacity, unpolled, srq, current, flushed: false, transport, limits: None }
    }

    /// Has receives be refused that the device of the wire, if it is one, does not take.
    pub(crate) fn limited(self, limits: Option<Capabilities>) -> Self {
        RecvQueue { limits: limits.map(Box::new), ..self }
    }

    /// Returns the number of receives of its own that the queue holds.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns an empty queue of the same size, which takes from the same shared queue.
    pub(crate) fn successor(&self) -> Self {
        let new = Self::new(self.capacity, self.unpolled.clone(), self.srq.clone(), self.transport);
        RecvQueue { limits: self.limits.clone(), ..new }
    }

    pub(crate) fn srq(&self) -> Option<&Arc<SrqInner>> {
        self.srq.as_ref()
    }

    #[inline]
    pub(crate) fn push(&mut self, wr: RecvWr, memory: LocalMemory<'_>) -> Result<(), PostError> {
        if self.srq.is_some() {
            return Err(PostError::UsesSharedQueue);
        }
        if wr.scatter.len() > CAPABILITIES.max_sge {
            return Err(PostError::TooManySges { count: wr.scatter.len(), max: CAPABILITIES.max_sge });
        }
        if self.posted.len() + self.unpolled.count() >= self.capacity {
            return Err(PostError::QueueFull { capacity: self.capacity });
        }
        if !self.transport.receives(&wr) {
            self.check_limits(&wr)?;
        }
        memory.check(&wr.scatter, true)?;
        self.posted.push_back(wr);
        Ok(())
    }

    /// Refuses a receive that not every wire has, unless the device of this one takes it.
    #[cold]
    #[inline(never)]
    fn check_limits(&self, wr: &RecvWr) -> Result<(), PostError> {
        let limits = self.limits.as_ref().ok_or(PostError::Transport)?;
        limits::check_receive(limits, wr)
    }

    /// Pushes a receive that is to fail: its memory is checked when a message comes. It shares
    /// nothing with [`push`](Self::push), which a second caller would take out of the hot path.
    pub(crate) fn push_unchecked(&mut self, wr: RecvWr) -> Result<(), PostError> {
        if self.srq.is_some() {
            return Err(PostError::UsesSharedQueue);
        }
        if self.posted.len() + self.unpolled.count() >= self.capacity {
            return Err(PostError::QueueFull { capacity: self.capacity });
        }
        self.posted.push_back(wr);
        Ok(())
    }

    /// Returns whether none of the QP's own receives waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    /// Returns whether there is a receive for the next message.
    pub(crate) fn has_receive(&self, qp: QpNum) -> bool {
        match &self.srq {
            None => !self.posted.is_empty(),
            Some(srq) => srq.has_receive(qp),
        }
    }

    /// Takes the next receive for a message that begins, and returns the number of octets that fit.
    /// Sets `limit_reached` if that brought a shared queue below its armed limit.
    pub(crate) fn begin(&mut self, qp: QpNum, limit_reached: &mut bool) -> Option<u64> {
        let wr = match &self.srq {
            None => self.posted.pop_front()?,
            Some(_) if self.flushed => return None,
            Some(srq) => {
                let taken = srq.take(qp)?;
                *limit_reached |= taken.limit_reached;
                taken.wr
            }
        };
        let capacity = wr.capacity();
        self.current = Some(wr);
        Some(capacity)
    }

    /// Takes the receive that a device of the host has taken from the shared queue, by its number
    /// there. Returns whether that brought the queue below its armed limit.
    pub(crate) fn begin_given(&mut self, number: u64) -> bool {
        let taken = self.srq.as_ref().and_then(|srq| srq.take_given(number));
        let limit_reached = taken.as_ref().is_some_and(|taken| taken.limit_reached);
        self.current = taken.map(|taken| taken.wr);
        limit_reached
    }

    /// Returns the first piece of the receive that the next message gets, if it is one of the QP's
    /// own.
    #[inline]
    pub(crate) fn next_piece(&self) -> Option<&Sge> {
        self.posted.front()?.scatter.first()
    }

    /// Returns the QP's own receives that no message has taken, in their order.
    pub(crate) fn posted(&self) -> &VecDeque<RecvWr> {
        &self.posted
    }

    /// Takes the receive that the next message gets, one of the QP's own, and returns its
    /// completion.
    #[inline(always)]
    pub(crate) fn complete_next(
        &mut self,
        qp: QpNum,
        status: Status,
        outcome: &Outcome,
    ) -> Option<Completion> {
        Some(completion(&self.posted.pop_front()?, qp, status, outcome))
    }

    pub(crate) fn current(&self) -> Option<&RecvWr> {
        self.current.as_ref()
    }

    /// Ends the receive into which a message was arriving, and returns its completion.
    pub(crate) fn end(&mut self, qp: QpNum, status: Status, outcome: &Outcome) -> Option<Completion> {
        Some(completion(&self.current.take()?, qp, status, outcome))
    }

    /// Prepares the queue for a new connection.
    pub(crate) fn reset(&mut self) {
        self.flushed = false;
    }

    /// Takes the oldest receive of the QP's own, and returns its completion as flushed. From now on
    /// no message gets a receive from the shared queue.
    pub(crate) fn flush(&mut self, qp: QpNum) -> Option<Completion> {
        self.flushed = true;
        Some(completion(&self.posted.pop_front()?, qp, Status::Flushed, &Outcome::default()))
    }
}

/// The result of a message, for the completion of its receive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) byte_len: u32,
    pub(crate) invalidated: Option<Stag>,
    pub(crate) immediate: Option<[u8; 8]>,
    pub(crate) source: Option<NonZeroU32>,
    pub(crate) solicited: bool,
}

#[inline]
fn completion(wr: &RecvWr, qp: QpNum, status: Status, outcome: &Outcome) -> Completion {
    let completed =
        if outcome.immediate.is_some() { Completed::ReceiveImmediate } else { Completed::Receive };
    Completion {
        wr_id: wr.wr_id,
        status,
        completed,
        byte_len: outcome.byte_len,
        qp,
        invalidated: outcome.invalidated,
        immediate: outcome.immediate,
        source: outcome.source,
        solicited: outcome.solicited,
    }
}
