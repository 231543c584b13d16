//! Requests that fail on demand, and connections that end so.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rddp_policy::{FaultOperation, FaultStatus, RequestEffect};
use rddp_rnic::{
    Operation, PostError, PostListError, QpState, QueuePair, RecvWr, SendWr, Sge, SharedReceiveQueue, Stag,
    Status,
};

use super::abi::status;
use super::gate::plan;
use crate::engine::spawn;
use crate::faults::Plan;

/// Faults on demand of one queue pair.
#[derive(Debug)]
pub(super) struct Demanded {
    plan: &'static Plan,
    queues: QueuePair,
    /// The place of the queue pair among those that were made, from 1 on.
    place: u32,
    /// Requests behind one that is late, itself the first; none if none is.
    late: Mutex<VecDeque<Late>>,
}

/// A request that waits, with what becomes of it then.
type Late = (SendWr, Option<RequestEffect>);

impl Demanded {
    /// Returns the faults of a queue pair that is being made; `None` where there are no rules.
    pub(super) fn of(queues: &QueuePair) -> Option<Arc<Self>> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let plan = plan()?;
        let place = MADE.fetch_add(1, Ordering::Relaxed) + 1;
        let late = Mutex::default();
        let demanded = Arc::new(Demanded { plan, queues: queues.clone(), place, late });
        for (delay, rule) in plan.timed(Some(place)) {
            demanded.later(delay, move |demanded| {
                plan.due(rule);
                demanded.lose_peer();
            });
        }
        Some(demanded)
    }

    /// Posts requests, as [`QueuePair::post_sends`] does.
    pub(super) fn post_sends(self: &Arc<Self>, list: &[SendWr]) -> Result<(), PostListError> {
        let mut late = self.late.lock();
        for (posted, wr) in list.iter().enumerate() {
            let refused = |error| PostListError { posted, error };
            self.queues.check_request(wr, late.len()).map_err(refused)?;
            let operation = operation_of(&wr.operation);
            let effect = operation.and_then(|operation| self.plan.request(operation, Some(self.place)));
            let is_behind = !late.is_empty();
            late.push_back((wr.clone(), effect));
            if !is_behind {
                self.carry_out(&mut late).map_err(refused)?;
            }
            if self.plan.octets(self.place, octets_of(&wr.operation)) {
                self.lose_peer();
            }
        }
        Ok(())
    }

    /// Posts what waits, up to a request that is late.
    fn carry_out(self: &Arc<Self>, late: &mut VecDeque<Late>) -> Result<(), PostError> {
        while let Some((wr, effect)) = late.pop_front() {
            match effect {
                None => self.queues.post_send(&wr)?,
                // It executes, and says nothing.
                Some(RequestEffect::Drop) => self.queues.post_send(&SendWr { signaled: false, ..wr })?,
                Some(RequestEffect::Status(status)) => {
                    let (status, told) = status_of(status);
                    self.queues.fail_request(&wr, status, told.map(|status| status as u8))?;
                }
                Some(RequestEffect::Delay(delay)) => {
                    late.push_front((wr, None));
                    self.later(delay, |demanded| {
                        let mut late = demanded.late.lock();
                        // One that cannot be posted any more holds up none behind it.
                        while let Err(error) = demanded.carry_out(&mut late) {
                            tracing::warn!(%error, "a late request could not be posted");
                        }
                    });
                    break;
                }
            }
        }
        Ok(())
    }

    /// Does something later, if the queue pair is there then.
    fn later(self: &Arc<Self>, delay: Duration, work: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let demanded = Arc::downgrade(self);
        after(delay, move || {
            if let Some(demanded) = demanded.upgrade() {
                work(&demanded);
            }
        });
    }

    /// Ends the connection, or as soon as it is there.
    fn lose_peer(self: &Arc<Self>) {
        if self.lose_present_peer() {
            return;
        }
        let demanded = Arc::downgrade(self);
        after(SOON, move || {
            while demanded.upgrade().is_some_and(|demanded| !demanded.lose_present_peer()) {
                thread::sleep(SOON);
            }
        });
    }

    /// Ends the connection. Returns false if there is none, and one may come.
    fn lose_present_peer(&self) -> bool {
        let may_come = self.queues.state() == QpState::Idle;
        self.queues.lose_peer() || !may_come
    }

    /// Posts a receive, which fails where a rule says so.
    pub(super) fn post_recv(&self, wr: RecvWr) -> Result<(), PostError> {
        match spoilt(self.plan, &wr, Some(self.place)) {
            None => self.queues.post_recv(wr),
            Some(spoilt) => self.queues.post_recv_unchecked(spoilt),
        }
    }
}

/// Time between two looks for a connection that is to end.
const SOON: Duration = Duration::from_millis(10);

/// Does something later, in a thread of its own.
pub(super) fn after(delay: Duration, work: impl FnOnce() + Send + 'static) {
    let spawned = spawn(move || {
        thread::sleep(delay);
        work();
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "no thread for a fault on demand");
    }
}

/// Posts a receive to a shared queue, which fails where a rule says so.
#[inline]
pub(super) fn post_shared_recv(queue: &SharedReceiveQueue, wr: RecvWr) -> Result<(), PostError> {
    match plan().and_then(|plan| spoilt(plan, &wr, None)) {
        None => queue.post_recv(wr),
        Some(spoilt) => queue.post_recv_unchecked(spoilt),
    }
}

/// Returns what fails in place of a receive where a rule says so: one without room for an octet, or
/// with memory that nobody has.
fn spoilt(plan: &Plan, wr: &RecvWr, place: Option<u32>) -> Option<RecvWr> {
    let RequestEffect::Status(status) = plan.request(FaultOperation::Recv, place)? else { return None };
    Some(match status {
        FaultStatus::LocalLength => RecvWr::new(wr.wr_id, Vec::new()),
        _ => RecvWr::one(wr.wr_id, Sge { stag: NOBODYS, addr: 0, len: u64::from(u32::MAX) }),
    })
}

const NOBODYS: Stag = Stag(u32::MAX);

fn operation_of(operation: &Operation) -> Option<FaultOperation> {
    match operation {
        Operation::Write { .. } | Operation::WriteImmediate { .. } => Some(FaultOperation::Write),
        Operation::Read { .. } => Some(FaultOperation::Read),
        Operation::FetchAdd { .. } | Operation::CmpSwap { .. } => Some(FaultOperation::Atomic),
        Operation::Bind { .. } | Operation::Invalidate { .. } => None,
        _ => Some(FaultOperation::Send),
    }
}

/// Returns the length of a message.
fn octets_of(operation: &Operation) -> u64 {
    match operation {
        Operation::Send { gather, .. }
        | Operation::SendImmediate { gather, .. }
        | Operation::Unreliable { gather, .. }
        | Operation::Write { gather, .. }
        | Operation::WriteImmediate { gather, .. } => gather.total(),
        Operation::Read { sink, .. } => sink.len,
        Operation::Bind { .. } | Operation::Invalidate { .. } => 0,
        _ => 8,
    }
}

/// Returns a status in the device's words, and as the peer is told of it, whose queue pair fails
/// with it, as on an adapter (InfiniBand Architecture, error handling of the responder).
fn status_of(demanded: FaultStatus) -> (Status, Option<u32>) {
    match demanded {
        FaultStatus::LocalLength => (Status::MessageTooLong, None),
        FaultStatus::LocalOperation => (Status::LocalOperation, None),
        FaultStatus::LocalProtection => (Status::LocalProtection, None),
        FaultStatus::RemoteInvalidRequest => (Status::RemoteInvalidRequest, Some(status::REM_INV_REQ_ERR)),
        FaultStatus::RemoteAccess => (Status::RemoteAccess, Some(status::REM_ACCESS_ERR)),
        FaultStatus::RemoteOperation => (Status::RemoteOperation, Some(status::REM_OP_ERR)),
        FaultStatus::RetryExceeded => (Status::Unanswered, None),
        FaultStatus::RnrRetryExceeded => (Status::ReceiverNotReady, None),
    }
}
