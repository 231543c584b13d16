//! A queue pair as the [`Transport`] of a socket.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rddp_rnic::{
    Access, AsyncEventKind, Completed, Completion, CompletionChannel, CompletionQueue, Error, EventQueue,
    MemoryRegion, PostError, ProtectionDomain, QpConfig, QpState, QueuePair, RecvWr, Rnic, SendWr, Stag,
    Status,
};
use rddp_sdp::transport::{Buffer, Event, Facts, Fault, Lost, PostFault, Remote, Transport};

use crate::inbox::Inbox;
use crate::{Lease, ProgramMemory, Registry};

/// Reads that either end has under way at a time.
pub(crate) const READS: u16 = 8;

/// Sizes of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct EndpointConfig {
    /// Private receive buffers.
    pub buffers: u16,
    /// Octets of each, the base header included.
    pub buffer_size: u32,
    /// Octets of a private send buffer, where that is more.
    pub send_size: u32,
    /// Requests that can be outstanding, each with a private send buffer.
    pub sends: u16,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        EndpointConfig { buffers: 64, buffer_size: 32 * 1024 + 16, send_size: 0, sends: 64 }
    }
}

/// Octets of a connection by the way that they went, at this end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Octets {
    /// Copied between memory of the program and private memory.
    pub copied: u64,
    /// Read by the device from the peer's memory.
    pub read: u64,
    /// Written by the device from memory of the program into the peer's.
    pub written: u64,
}

/// An end of a connection of a device, with its private buffers.
#[derive(Debug)]
pub struct Endpoint {
    qp: QueuePair,
    cq: CompletionQueue,
    events: EventQueue,
    pd: ProtectionDomain,
    registry: Arc<Registry>,
    inbox: Inbox,
    /// Private send buffers.
    outbox: MemoryRegion,
    slot_size: usize,
    slots: usize,
    free_slots: Vec<u16>,
    /// Requests on memory of the program that are under way.
    zero_copies: usize,
    happened: VecDeque<Event>,
    is_over: bool,
    facts: Facts,
    octets: Octets,
}

impl Endpoint {
    /// Makes an endpoint of a QP that is not connected yet. Its receive buffers are posted, so that
    /// they can be announced.
    ///
    /// # Errors
    /// The device has no room for the queues or the buffers.
    pub fn new(
        rnic: &Rnic,
        pd: &ProtectionDomain,
        registry: &Arc<Registry>,
        config: EndpointConfig,
    ) -> Result<Self, Error> {
        Self::make(pd, registry, config, |capacity| rnic.create_cq(capacity))
    }

    /// Makes an endpoint as [`new`](Self::new) does, the completion queue of which reports to a
    /// channel when it is armed.
    ///
    /// # Errors
    /// The device has no room for the queues or the buffers.
    pub fn on_channel(
        rnic: &Rnic,
        channel: &CompletionChannel,
        pd: &ProtectionDomain,
        registry: &Arc<Registry>,
        config: EndpointConfig,
    ) -> Result<Self, Error> {
        Self::make(pd, registry, config, |capacity| rnic.create_cq_on(channel, capacity))
    }

    fn make(
        pd: &ProtectionDomain,
        registry: &Arc<Registry>,
        config: EndpointConfig,
        create_cq: impl FnOnce(usize) -> Result<CompletionQueue, Error>,
    ) -> Result<Self, Error> {
        let (receives, sends) = (usize::from(config.buffers), usize::from(config.sends));
        let slot_size = config.buffer_size.max(config.send_size) as usize;
        let cq = create_cq(2 * (receives + sends) + 8)?;
        let events = EventQueue::new()?;
        let settings = QpConfig {
            max_send: 2 * sends,
            max_recv: receives,
            events: Some(events.clone()),
            ..QpConfig::new(&cq)
        };
        let endpoint = Endpoint {
            qp: pd.create_qp(&settings)?,
            inbox: Inbox::new(pd, config.buffers, config.buffer_size)?,
            outbox: pd.allocate(sends * slot_size, Access::LOCAL_WRITE)?,
            cq,
            events,
            pd: pd.clone(),
            registry: registry.clone(),
            slot_size,
            slots: sends,
            free_slots: (0..config.sends).collect(),
            zero_copies: 0,
            happened: VecDeque::new(),
            is_over: false,
            facts: Facts { reads: 1, longest: registry.longest().min(1 << 20) },
            octets: Octets::default(),
        };
        for n in 0..config.buffers {
            endpoint.post(n).map_err(|_| Error::Conflict("receives are refused"))?;
        }
        Ok(endpoint)
    }

    /// Returns the QP, to be connected.
    #[must_use]
    pub fn qp(&self) -> &QueuePair {
        &self.qp
    }

    /// Returns the completion queue, to sleep on.
    #[must_use]
    pub fn cq(&self) -> &CompletionQueue {
        &self.cq
    }

    /// Returns the octets so far.
    #[must_use]
    pub fn octets(&self) -> Octets {
        self.octets
    }

    /// Takes note of what was agreed on at the connection.
    pub fn connected(&mut self) {
        self.facts.reads = self.qp.depths().map_or(0, |(_, ord)| ord.min(READS));
    }

    /// Sleeps until something has happened, at most for `timeout`.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub fn wait(&self, timeout: Option<Duration>) -> std::io::Result<()> {
        if self.happened.is_empty() {
            self.cq.wait(timeout)?;
        }
        Ok(())
    }

    fn post(&self, n: u16) -> Result<(), PostError> {
        self.qp.post_recv(RecvWr::one(n.into(), self.inbox.whole(n)))
    }

    /// Puts the octets of a request into a private buffer, and posts the request.
    fn post_copy(
        &mut self,
        front: &[u8],
        payload: Option<(&ProgramMemory, Range<usize>)>,
        remote: Option<Remote>,
    ) -> Result<(), PostFault> {
        if self.is_over {
            return Err(PostFault::Lost);
        }
        let slot = self.free_slots.pop().ok_or(PostFault::Full)?;
        let start = usize::from(slot) * self.slot_size;
        let posted = self.fill_slot(start, front, payload).and_then(|len| {
            self.octets.copied += (len - front.len()) as u64;
            let part = self.outbox.sge(start..start + len);
            let wr = match remote {
                None => SendWr::send(slot.into(), part).solicited(),
                Some(remote) => SendWr::write(slot.into(), part, place(remote)),
            };
            self.qp.post_send(&wr).map_err(|error| refused(&error))
        });
        if posted.is_err() {
            self.free_slots.push(slot);
        }
        posted
    }

    fn post_zero_copy(&mut self, wr: &SendWr) -> Result<(), PostFault> {
        self.qp.post_send(wr).map_err(|error| refused(&error))?;
        self.zero_copies += 1;
        Ok(())
    }

    fn fill_slot(
        &self,
        start: usize,
        front: &[u8],
        payload: Option<(&ProgramMemory, Range<usize>)>,
    ) -> Result<usize, PostFault> {
        let mut len = front.len();
        let added = payload.as_ref().map_or(0, |(_, part)| part.len());
        if len + added > self.slot_size {
            return Err(PostFault::Memory);
        }
        self.outbox.write(start, front).map_err(|_| PostFault::Lost)?;
        if let Some((memory, part)) = payload {
            memory.copy_to(part, &self.outbox, start + len).map_err(|_| PostFault::Memory)?;
            len += added;
        }
        Ok(len)
    }

    fn happened(&mut self, completion: &Completion) -> Option<Event> {
        if completion.status != Status::Success {
            return self.over(completion.status);
        }
        if completion.wr_id & ZERO_COPY != 0 {
            self.zero_copies -= 1;
        }
        match completion.completed {
            Completed::Receive => {
                Some(Event::Received(Buffer(completion.wr_id as u16), completion.byte_len as usize))
            }
            Completed::Read => Some(Event::Read(completion.wr_id & !ZERO_COPY)),
            _ if completion.wr_id & ZERO_COPY != 0 => Some(Event::Written(completion.wr_id & !ZERO_COPY)),
            _ => {
                self.free_slots.push(completion.wr_id as u16);
                Some(Event::Room)
            }
        }
    }

    /// Returns the event that ends the connection, once.
    fn over(&mut self, status: Status) -> Option<Event> {
        if std::mem::replace(&mut self.is_over, true) {
            return None;
        }
        Some(Event::Lost(self.reason(status)))
    }

    fn reason(&self, status: Status) -> Lost {
        if status != Status::Flushed {
            return Lost::Failed;
        }
        let mut reason = match self.qp.state() {
            QpState::Idle | QpState::Closing => Lost::Closed,
            _ => Lost::Reset,
        };
        while let Some(event) = self.events.next_event() {
            reason = match event.kind {
                AsyncEventKind::CloseComplete => Lost::Closed,
                AsyncEventKind::Fault(_) | AsyncEventKind::TerminateReceived(_) => Lost::Failed,
                AsyncEventKind::BadClose | AsyncEventKind::ConnectionLost => Lost::Reset,
                _ => reason,
            };
        }
        reason
    }
}

impl Transport for Endpoint {
    type Memory = ProgramMemory;
    type Region = Lease;

    fn facts(&self) -> Facts {
        self.facts
    }

    fn add_buffers(&mut self, _count: u16, _size: u32) -> u16 {
        self.inbox.count()
    }

    fn grow_buffers(&mut self, size: u32) -> bool {
        self.inbox.grow(&self.pd, size)
    }

    fn smallest_buffer(&self) -> u32 {
        self.inbox.smallest()
    }

    fn peek(&self, buffer: Buffer, from: usize, out: &mut [u8]) {
        // It fails only where the buffer is not ours, and then the octets say nothing.
        let (region, start) = self.inbox.place(buffer.0);
        if region.read_into(start + from, out).is_err() {
            out.fill(0);
        }
    }

    fn deliver(
        &mut self,
        buffer: Buffer,
        from: Range<usize>,
        to: &ProgramMemory,
        at: usize,
    ) -> Result<(), Fault> {
        let (region, start) = self.inbox.place(buffer.0);
        self.octets.copied += from.len() as u64;
        to.fill(at, region, start + from.start..start + from.end)
    }

    fn repost(&mut self, buffer: Buffer) -> Result<(), Lost> {
        self.inbox.give_back(buffer.0);
        self.post(buffer.0).map_err(|_| Lost::Reset)
    }

    fn room(&self) -> usize {
        // A Read or Write of the program's memory takes a place in the queue and no buffer.
        self.free_slots.len().min(self.slots.saturating_sub(self.zero_copies))
    }

    fn is_idle(&self) -> bool {
        self.free_slots.len() == self.slots && self.zero_copies == 0
    }

    fn is_delivered(&self) -> bool {
        self.qp.unacknowledged().is_none_or(|octets| octets == 0)
    }

    fn send(
        &mut self,
        front: &[u8],
        payload: Option<(&ProgramMemory, Range<usize>)>,
    ) -> Result<(), PostFault> {
        self.post_copy(front, payload, None)
    }

    fn read(
        &mut self,
        id: u64,
        sink: &Lease,
        at: usize,
        remote: Remote,
        len: usize,
    ) -> Result<(), PostFault> {
        let start = sink.offset + at;
        let wr = SendWr::read(id | ZERO_COPY, sink.region.sge(start..start + len), place(remote));
        self.post_zero_copy(&wr)?;
        self.octets.read += len as u64;
        Ok(())
    }

    fn write(
        &mut self,
        id: u64,
        source: &Lease,
        part: Range<usize>,
        remote: Remote,
    ) -> Result<(), PostFault> {
        let octets = source.region.sge(source.offset + part.start..source.offset + part.end);
        let wr = SendWr::write(id | ZERO_COPY, octets, place(remote));
        self.post_zero_copy(&wr)?;
        self.octets.written += part.len() as u64;
        Ok(())
    }

    fn write_copy(
        &mut self,
        memory: &ProgramMemory,
        part: Range<usize>,
        remote: Remote,
    ) -> Result<(), PostFault> {
        self.post_copy(b"", Some((memory, part)), Some(remote))
    }

    fn register_source(&mut self, memory: &ProgramMemory, part: Range<usize>) -> Result<Lease, Fault> {
        self.registry.lease(memory, part, Access::REMOTE_READ)
    }

    fn register_sink(&mut self, memory: &ProgramMemory, part: Range<usize>) -> Result<Lease, Fault> {
        self.registry.lease(memory, part, Access::LOCAL_WRITE | Access::REMOTE_WRITE)
    }

    fn remote(&self, region: &Lease) -> Remote {
        let rddp_rnic::Remote { stag: Stag(stag), to } = region.region.remote(region.offset);
        Remote { stag, to }
    }

    fn release(&mut self, region: Lease) {
        self.registry.release(region);
    }

    fn allocate(&mut self, len: usize) -> Option<ProgramMemory> {
        // No remote rights: it is the sink of this end's own Reads.
        Some(ProgramMemory::private(self.pd.allocate(len, Access::LOCAL_WRITE).ok()?))
    }

    fn copy(
        &mut self,
        from: &ProgramMemory,
        part: Range<usize>,
        to: &ProgramMemory,
        at: usize,
    ) -> Result<(), Fault> {
        self.octets.copied += part.len() as u64;
        let from = from.own_region().ok_or(Fault::Address)?;
        to.fill(at, from, part)
    }

    fn poll(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.happened.pop_front() {
                return Some(event);
            }
            let completion = self.cq.poll_one()?;
            let event = self.happened(&completion);
            self.happened.extend(event);
        }
    }

    fn disconnect(&mut self) {
        self.qp.disconnect();
    }

    fn abort(&mut self) {
        self.is_over = true;
        self.qp.abort();
    }
}

fn place(remote: Remote) -> rddp_rnic::Remote {
    rddp_rnic::Remote { stag: Stag(remote.stag), to: remote.to }
}

fn refused(error: &PostError) -> PostFault {
    match error {
        PostError::QueueFull { .. } => PostFault::Full,
        PostError::Memory { .. } => PostFault::Memory,
        _ => PostFault::Lost,
    }
}

/// Marks requests on memory of the program in a `wr_id`; others have the number of a buffer.
const ZERO_COPY: u64 = 1 << 63;
