//! The send queue: requests in the order of posting, and the progress of each.

use std::collections::VecDeque;

use rddp_ddp::Msn;
use rddp_iwarp::{Acknowledgement, Unacknowledged};
use rddp_rdma::{Capabilities, Completed, Completion, Gather, Operation, SendWr, Sge, Status};
use rddp_rdmap::Fault;
use rddp_stat::Counter;

use crate::capabilities::CAPABILITIES;
use crate::error::{PostError, SgeFault};
use crate::local::LocalMemory;
use crate::mem::QpNum;
use crate::queues::limits;
use crate::queues::options::Transport;
use crate::queues::patience::Patience;
use crate::queues::unpolled::Unpolled;
use crate::stat::Tally;

/// Messages that the peer has to acknowledge, beside which requests wait for more.
const MANY: u32 = 8;

/// Requests, and octets of theirs, that go to TCP without waiting for more.
const TOGETHER: usize = 32;
const OCTETS_TOGETHER: u64 = 32 * 1024;

/// The progress of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not all of the request has been taken by TCP.
    Queued,
    /// A request that has been sent whole and has no answer yet: a Response, or an acknowledgement
    /// where the wire has them.
    Awaiting,
    /// Ended, with the status to report, and waiting for those before it.
    Done(Status),
}

/// A request in the queue.
#[derive(Debug)]
pub(crate) struct Wqe {
    pub(crate) wr: SendWr,
    pub(crate) completed: Completed,
    /// True for the first half of a `WriteImmediate`; the second half completes for both.
    half: bool,
    /// Number of octets of the message, if it may be cut into segments.
    pub(crate) total: u64,
    /// The message sequence number, given when the message is first cut.
    pub(crate) msn: Option<Msn>,
    /// The Request Identifier of an atomic, given together with the MSN.
    pub(crate) request_id: u32,
    pub(crate) phase: Phase,
}

/// A place in the queue: `offset` octets into the message of the request with this number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) seq: u64,
    pub(crate) offset: u64,
}

/// A send queue. Requests are numbered from 0 on, over the QP's whole life; that number is a Read's
/// id towards `rdmap`.
#[derive(Debug)]
pub(crate) struct SendQueue {
    wqes: VecDeque<Wqe>,
    /// Number of the first request in `wqes`.
    first: u64,
    /// Place of the next octet to send.
    pub(crate) cursor: Cursor,
    /// Number of the first request that TCP has not taken whole.
    handed: u64,
    /// Number of requests in `wqes` that take two entries there.
    halves: usize,
    /// Number of requests that the queue holds, those included whose completions are `unpolled`.
    capacity: usize,
    pub(crate) unpolled: Unpolled,
    transport: Transport,
    /// Set where the wire is a device of the host: what that has.
    limits: Option<Box<Capabilities>>,
    /// Requests are acknowledged: see [`QpAttributes`](super::attributes::QpAttributes).
    pub(crate) acknowledges: bool,
    pub(crate) patience: Patience,
    /// Messages of this connection, if their wire acknowledges them.
    unacknowledged: Unacknowledged,
    /// Number of a request before which all that are acknowledged are done.
    acknowledged: u64,
}

impl SendQueue {
    pub(crate) fn new(capacity: usize, unpolled: Unpolled, transport: Transport) -> Self {
        let (wqes, cursor) = Default::default();
        SendQueue {
            wqes,
            first: 0,
            cursor,
            handed: 0,
            halves: 0,
            capacity,
            unpolled,
            transport,
            limits: None,
            acknowledges: transport == Transport::Acknowledged,
            patience: Patience::default(),
            unacknowledged: Unacknowledged::default(),
            acknowledged: 0,
        }
    }

    /// Returns an empty queue of the same size.
    pub(crate) fn successor(&self) -> Self {
        let new = Self::new(self.capacity, self.unpolled.clone(), self.transport);
        SendQueue {
            acknowledges: self.acknowledges,
            patience: self.patience,
            limits: self.limits.clone(),
            ..new
        }
    }

    /// Has requests be refused that the device of the wire, if it is one, does not have.
    pub(crate) fn limited(self, limits: Option<Capabilities>) -> Self {
        SendQueue { limits: limits.map(Box::new), ..self }
    }

    /// Returns the number of requests that the queue holds.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline]
    pub(crate) fn push(&mut self, wr: &SendWr, memory: LocalMemory<'_>) -> Result<(), PostError> {
        self.refuse_if_full(0)?;
        self.push_with_place(wr, memory)
    }

    /// Pushes a request that the queue has place for.
    #[inline]
    fn push_with_place(&mut self, wr: &SendWr, memory: LocalMemory<'_>) -> Result<(), PostError> {
        let (completed, total) = self.check(wr, memory)?;
        if matches!(wr.operation, Operation::WriteImmediate { .. }) {
            self.push_halves(wr, completed, total);
        } else {
            self.wqes.push_back(Wqe::new(wr.clone(), completed, total, false));
        }
        Ok(())
    }

    /// Pushes a Write and an Immediate that go for one request.
    // `inline(never)`: beside it the one push of all other requests stays in line.
    #[inline(never)]
    fn push_halves(&mut self, wr: &SendWr, completed: Completed, total: u64) {
        let Operation::WriteImmediate { gather, remote, data } = &wr.operation else { return };
        let write = Operation::Write { gather: gather.clone(), remote: *remote };
        let (solicited, signaled) = (false, false);
        let write = SendWr { operation: write, solicited, signaled, ..wr.clone() };
        let immediate = SendWr { operation: Operation::Immediate { data: *data }, ..wr.clone() };
        self.wqes.extend([Wqe::new(write, completed, total, true), Wqe::new(immediate, completed, 0, false)]);
        self.halves += 1;
    }

    /// Refuses a request that is none of this wire. Returns the operation that its completion
    /// names, and the number of octets of its message.
    #[inline]
    fn check(&self, wr: &SendWr, memory: LocalMemory<'_>) -> Result<(Completed, u64), PostError> {
        if !self.transport.sends(&wr.operation) {
            self.check_for_device(wr, memory)?;
        }
        Ok((completed(&wr.operation)?, check(&wr.operation, memory)?))
    }

    /// Refuses a request that not every wire has, unless the device of this one has it.
    #[cold]
    #[inline(never)]
    fn check_for_device(&self, wr: &SendWr, memory: LocalMemory<'_>) -> Result<(), PostError> {
        limits::check_send(self.limits.as_ref().ok_or(PostError::Transport)?, wr, memory)
    }

    /// Refuses a request where the queue is full, with so many others that are posted later.
    // `inline(always)`: with two callers it would go out of line of the hot path.
    #[inline(always)]
    fn refuse_if_full(&mut self, others: usize) -> Result<(), PostError> {
        if self.wqes.len() - self.halves + self.unpolled.count() + others >= self.capacity {
            return Err(PostError::QueueFull { capacity: self.capacity });
        }
        Ok(())
    }

    /// Pushes all requests of a list, or on an error none.
    pub(crate) fn push_all(&mut self, list: &[SendWr], memory: LocalMemory<'_>) -> Result<(), PostError> {
        if let Some(others) = list.len().checked_sub(1) {
            self.refuse_if_full(others)?;
        }
        let before = (self.wqes.len(), self.halves);
        let pushed = list.iter().try_for_each(|wr| self.push_with_place(wr, memory));
        if pushed.is_err() {
            self.wqes.truncate(before.0);
            self.halves = before.1;
        }
        pushed
    }

    /// Refuses a request that cannot be posted behind what is queued and so many others.
    #[cold]
    pub(crate) fn check_later(
        &mut self,
        wr: &SendWr,
        others: usize,
        memory: LocalMemory<'_>,
    ) -> Result<(), PostError> {
        self.refuse_if_full(others)?;
        self.check(wr, memory).map(drop)
    }

    /// Returns the number of requests that have not ended.
    pub(crate) fn outstanding(&self) -> usize {
        self.wqes.len() - self.halves
    }

    /// Adds a request to an empty queue of whose message TCP has taken a part, and goes on behind
    /// it. The request has been checked.
    #[cold]
    pub(crate) fn push_begun(&mut self, wr: &SendWr) {
        if let Ok(completed) = completed(&wr.operation) {
            self.wqes.push_back(Wqe::new(wr.clone(), completed, 0, false));
            self.cursor = Cursor { seq: self.end(), offset: 0 };
        }
    }

    /// Returns whether the queue is empty, and can hold a request.
    #[inline]
    pub(crate) fn is_idle(&mut self) -> bool {
        self.wqes.is_empty() && self.unpolled.count() < self.capacity
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.wqes.is_empty()
    }

    /// Returns whether any request has not been sent whole.
    pub(crate) fn has_unsent(&self) -> bool {
        self.cursor.seq < self.end()
    }

    /// Returns whether requests wait for more, so that TCP is given them together: the peer has
    /// many messages to acknowledge, and whoever hears of the next sends them.
    #[cold]
    #[inline(never)]
    pub(crate) fn gathers(&self) -> bool {
        let unsent = self.wqes.range((self.cursor.seq - self.first) as usize..);
        self.unacknowledged.count() >= MANY
            && unsent.len() < TOGETHER
            && unsent.map(|wqe| wqe.total).sum::<u64>() < OCTETS_TOGETHER
            && !self.is_at_local()
    }

    /// Returns whether the next request needs no socket.
    pub(crate) fn is_at_local(&self) -> bool {
        self.get(self.cursor.seq).is_some_and(Wqe::is_local)
    }

    fn end(&self) -> u64 {
        self.first + self.wqes.len() as u64
    }

    pub(crate) fn get(&self, seq: u64) -> Option<&Wqe> {
        self.wqes.get(usize::try_from(seq.checked_sub(self.first)?).ok()?)
    }

    pub(crate) fn get_mut(&mut self, seq: u64) -> Option<&mut Wqe> {
        self.wqes.get_mut(usize::try_from(seq.checked_sub(self.first)?).ok()?)
    }

    /// Returns the number of the oldest request in the queue: those before it are done and
    /// completed.
    pub(crate) fn oldest(&self) -> u64 {
        self.first
    }

    /// Returns whether the next request is one that had to wait for all before it, and is the
    /// oldest now.
    pub(crate) fn is_fence_over(&self) -> bool {
        self.cursor == Cursor { seq: self.first, offset: 0 }
            && self.wqes.front().is_some_and(|wqe| wqe.wr.local_fence)
    }

    /// Notes that TCP has taken everything before the cursor.
    pub(crate) fn handed_to_cursor(&mut self) {
        self.handed(self.cursor.seq);
    }

    /// Notes that TCP has taken everything before the request `upto`.
    pub(crate) fn handed(&mut self, upto: u64) {
        let has_acknowledgements = self.acknowledges;
        for seq in self.handed..upto {
            if let Some(wqe) = self.get_mut(seq)
                && wqe.phase == Phase::Queued
            {
                let is_acknowledged = has_acknowledgements && wqe.is_acknowledged();
                let awaits = is_acknowledged || wqe.awaits_response();
                wqe.phase = if awaits { Phase::Awaiting } else { Phase::Done(Status::Success) };
                if is_acknowledged {
                    self.unacknowledged.note_sent();
                }
            }
        }
        self.handed = self.handed.max(upto);
    }

    /// Notes that a device of the host has carried out this request, which ends with `status`, and
    /// all before it.
    pub(crate) fn carried_out(&mut self, seq: u64, status: Status) {
        if let Some(wqe) = self.get_mut(seq) {
            wqe.phase = Phase::Done(status);
        }
        self.handed = self.handed.max(seq + 1);
    }

    /// Counts the messages of a new connection.
    pub(crate) fn reset(&mut self) {
        self.unacknowledged = Unacknowledged::default();
        self.unpolled.forget_quiet();
    }

    /// Notes the requests that the peer says it has executed as done.
    ///
    /// # Errors
    /// The peer acknowledges what cannot be.
    pub(crate) fn acknowledged(&mut self, said: Acknowledgement) -> Result<(), Fault> {
        let mut more = self.unacknowledged.acknowledge(said, self.handed < self.end())?;
        let mut seq = self.acknowledged.max(self.first);
        while more > 0
            && let Some(wqe) = self.get_mut(seq)
        {
            if wqe.phase == Phase::Awaiting && wqe.is_acknowledged() {
                wqe.phase = Phase::Done(Status::Success);
                more -= 1;
            }
            seq += 1;
        }
        self.acknowledged = seq;
        Ok(())
    }

    /// Ends the request at the cursor without sending it (a bind, or one that failed), and moves
    /// the cursor past it.
    pub(crate) fn finish_at_cursor(&mut self, status: Status) {
        let seq = self.cursor.seq;
        if let Some(wqe) = self.get_mut(seq) {
            wqe.phase = Phase::Done(status);
        }
        self.cursor = Cursor { seq: seq + 1, offset: 0 };
        // TCP may have only the beginning of the last FPDU of a request before this one. Then
        // `handed` moves past both when TCP has taken the rest.
        if self.handed == seq {
            self.handed = seq + 1;
        }
    }

    /// Takes the oldest request if it is done, with its completion if it makes one (RFC 5040 §5.5
    /// rule 15: requests complete in the order of posting).
    pub(crate) fn retire(&mut self, qp: QpNum, tally: &Tally) -> Option<Option<Completion>> {
        let front = self.wqes.front()?;
        let Phase::Done(status) = front.phase else { return None };
        if self.first >= self.handed {
            return None;
        }
        let wqe = self.wqes.pop_front()?;
        self.first += 1;
        self.halves -= usize::from(wqe.half);
        count(&wqe.wr.operation, status, tally);
        if status != Status::Success
            && wqe.half
            && let Some(other) = self.wqes.front_mut()
        {
            // The second half reports the result of the first.
            other.phase = Phase::Done(status);
            self.handed = self.handed.max(self.first + 1);
            self.cursor.seq = self.cursor.seq.max(self.first + 1);
            return Some(None);
        }
        let completion = completion(&wqe.wr, wqe.completed, status, qp);
        if completion.is_none() && !wqe.half {
            self.unpolled.note_quiet();
        }
        Some(completion)
    }

    /// Ends all requests that have not ended: the first that is waiting for an answer with
    /// `refused`, all others with `Flushed`. Where the wire acknowledges requests, each waits from
    /// the beginning: the peer may refuse one of which not all has been sent.
    pub(crate) fn end_all(&mut self, refused: Option<Status>) {
        let mut special = refused;
        let mut broken = false;
        let has_acknowledgements = self.acknowledges;
        for wqe in &mut self.wqes {
            match wqe.phase {
                Phase::Done(Status::Success) if broken => wqe.phase = Phase::Done(Status::Flushed),
                Phase::Done(_) => {}
                Phase::Queued if !has_acknowledgements => wqe.phase = Phase::Done(Status::Flushed),
                Phase::Awaiting | Phase::Queued => {
                    wqe.phase = Phase::Done(special.take().unwrap_or(Status::Flushed));
                }
            }
            broken |= wqe.phase != Phase::Done(Status::Success);
        }
        self.cursor = Cursor { seq: self.end(), offset: 0 };
        self.handed = self.end();
    }
}

impl Wqe {
    fn new(wr: SendWr, completed: Completed, total: u64, half: bool) -> Self {
        Wqe { wr, completed, half, total, msn: None, request_id: 0, phase: Phase::Queued }
    }

    /// Returns whether the request sends nothing.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.wr.operation, Operation::Bind { .. } | Operation::Invalidate { .. })
    }

    /// Returns whether the peer acknowledges the message, where the wire has that: it asks for no
    /// Response, and is no Write of no octets.
    fn is_acknowledged(&self) -> bool {
        match self.wr.operation {
            Operation::Write { .. } => self.total > 0,
            Operation::Send { .. } | Operation::SendImmediate { .. } | Operation::Immediate { .. } => true,
            _ => false,
        }
    }

    fn awaits_response(&self) -> bool {
        matches!(self.completed, Completed::Read | Completed::FetchAdd | Completed::CmpSwap)
    }
}

/// Counts a request that succeeds without having been in a queue. Returns its completion if it
/// makes one.
#[inline]
pub(crate) fn succeeded(wr: &SendWr, qp: QpNum, tally: &Tally) -> Option<Completion> {
    count(&wr.operation, Status::Success, tally);
    completion(wr, completed(&wr.operation).ok()?, Status::Success, qp)
}

/// Counts a request that ends with this status, unless it is flushed.
#[inline]
fn count(operation: &Operation, status: Status, tally: &Tally) {
    let counter = match (operation, status) {
        (_, Status::Flushed) => return,
        (
            Operation::Send { .. }
            | Operation::SendImmediate { .. }
            | Operation::Immediate { .. }
            | Operation::Datagram { .. }
            | Operation::Unreliable { .. },
            Status::Success,
        ) => Counter::SendsSent,
        (Operation::Write { .. }, Status::Success) => Counter::WritesSent,
        (Operation::Read { .. }, Status::Success) => Counter::ReadsSent,
        (Operation::FetchAdd { .. } | Operation::CmpSwap { .. }, Status::Success) => Counter::AtomicsSent,
        (Operation::Bind { .. }, Status::Success) => Counter::Binds,
        (Operation::Invalidate { .. }, Status::Success) => Counter::Invalidations,
        _ => Counter::RequestsFailed,
    };
    tally.add(counter, 1);
}

fn completion(wr: &SendWr, completed: Completed, status: Status, qp: QpNum) -> Option<Completion> {
    if status == Status::Success && !wr.signaled {
        return None;
    }
    let byte_len = match wr.operation {
        // Posting refused longer ones, so the length fits.
        Operation::Read { sink, .. } if status == Status::Success => sink.len as u32,
        Operation::FetchAdd { .. } | Operation::CmpSwap { .. } if status == Status::Success => 8,
        _ => 0,
    };
    Some(Completion {
        wr_id: wr.wr_id,
        status,
        completed,
        byte_len,
        qp,
        invalidated: None,
        immediate: None,
        source: None,
        solicited: false,
    })
}

/// Returns the operation named in the completion. Refuses operations that this device does not
/// know: the list of operations grows with what other devices can do.
#[inline]
fn completed(operation: &Operation) -> Result<Completed, PostError> {
    Ok(match operation {
        Operation::Send { .. }
        | Operation::SendImmediate { .. }
        | Operation::Datagram { .. }
        | Operation::Unreliable { .. } => Completed::Send,
        Operation::Immediate { .. } => Completed::Immediate,
        Operation::Write { .. } | Operation::WriteImmediate { .. } => Completed::Write,
        Operation::Read { .. } => Completed::Read,
        Operation::FetchAdd { .. } => Completed::FetchAdd,
        Operation::CmpSwap { .. } => Completed::CmpSwap,
        Operation::Bind { .. } => Completed::Bind,
        Operation::Invalidate { .. } => Completed::Invalidate,
        _ => return Err(PostError::Unsupported),
    })
}

/// Checks that a request may be posted, and returns the number of octets of its message.
fn check(operation: &Operation, memory: LocalMemory<'_>) -> Result<u64, PostError> {
    let gather = match operation {
        Operation::Send { gather, .. }
        | Operation::SendImmediate { gather, .. }
        | Operation::Datagram { gather, .. }
        | Operation::Unreliable { gather, .. }
        | Operation::Write { gather, .. }
        | Operation::WriteImmediate { gather, .. } => gather,
        Operation::Read { sink, .. } => {
            check_len(sink.len)?;
            return memory.check(&[*sink], true).map(|()| 0);
        }
        Operation::FetchAdd { sink, .. } | Operation::CmpSwap { sink, .. } => {
            if sink.len < 8 {
                return Err(PostError::Memory { index: 0, stag: sink.stag, fault: SgeFault::TooShort });
            }
            return memory.check(&[Sge { len: 8, ..*sink }], true).map(|()| 0);
        }
        _ => return Ok(0),
    };
    let total = message_len(gather)?;
    if let Gather::List(list) = gather {
        memory.check(list, false)?;
    }
    Ok(total)
}

/// Returns the number of octets of a message, unless it is one that is refused.
#[inline]
pub(crate) fn message_len(gather: &Gather) -> Result<u64, PostError> {
    match gather {
        Gather::List(list) if list.len() > CAPABILITIES.max_sge => {
            Err(PostError::TooManySges { count: list.len(), max: CAPABILITIES.max_sge })
        }
        Gather::Inline(octets) if octets.len() > CAPABILITIES.max_inline => {
            Err(PostError::InlineTooLong { len: octets.len(), max: CAPABILITIES.max_inline })
        }
        Gather::List(list) => check_len(list.total()),
        Gather::Inline(octets) => Ok(octets.len() as u64),
    }
}

/// Refuses a message that is longer than any of DDP (RFC 5041 §5.2).
fn check_len(len: u64) -> Result<u64, PostError> {
    if len > CAPABILITIES.max_message { Err(PostError::MessageTooLong { len }) } else { Ok(len) }
}
