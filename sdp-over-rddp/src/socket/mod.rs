//! A stream socket over an RDMA connection: copies by private buffers, zero copy by Read and Write.
//!
//! A [`Socket`] is driven by calls and by the events of its [`Transport`]; it never sleeps. Sends
//! and receives are operations: [`send`](Socket::send) and [`receive`](Socket::receive) begin one,
//! [`progress`](Socket::progress) drives all of them on, and [`ended`](Socket::ended) returns those
//! that are over. Several may be under way at once; they are carried out in order. A blocking call
//! is a loop of these three around a wait for the transport, until
//! [`deadline`](Socket::deadline) at most.
//!
//! The time is what [`progress`](Socket::progress) was told last, so that it is called before an
//! operation begins, too: limits of time count from there.
//!
//! The memory of an operation is the socket's until it has ended. It ends only when neither the
//! device nor the peer can touch that memory any more: an advert was read, or taken back and the
//! peer has said so. Where the peer does not answer, the connection is aborted first, and the
//! registration ended then.

mod arriving;
mod closing;
mod config;
mod escape;
mod modes;
mod operation;
mod ready;
mod receiving;
mod sending;
mod sinks;
mod startup;
mod urgent;

use core::time::Duration;
use std::collections::VecDeque;

pub use config::{Config, Times};
pub use operation::{Ended, Error, OperationId, Options};
pub use ready::Ready;
pub use startup::{Agreed, Role, answer, answered, hello};

use crate::machine::{self, Core, Machine, Tables};
use crate::transport::{Event, Lost, PostFault, Transport};
use operation::{Piece, ReadAhead, Receiving, Sending, Storage};

/// A socket of SDP: one end of a connection, over any transport.
pub struct Socket<T: Transport> {
    transport: T,
    core: Core,
    tables: Box<Tables>,
    config: Config,
    role: Role,
    now: Duration,
    sends: VecDeque<Sending<T>>,
    receives: VecDeque<Receiving<T>>,
    /// Octets for the program in private memory, in the order of the stream.
    inbox: VecDeque<Piece<T>>,
    /// Reads into private memory that are under way.
    ahead: VecDeque<ReadAhead<T>>,
    /// Octets in `ahead`, and of `inbox` those that were read ahead.
    ahead_octets: usize,
    ended: VecDeque<Ended>,
    next_id: u64,
    /// Nothing may be sent before something has come (RFC 5044 §7.1.2).
    is_mute: bool,
    /// This end has to send something, so that the peer may.
    owes_first: bool,
    closing: closing::Closing,
    /// Time since which the answer to a cancel is awaited.
    cancel_since: Option<Duration>,
    /// Time since which both ends have adverts out and nobody receives.
    crossing_since: Option<Duration>,
    /// Time since which an advert of the peer waits for a receive.
    unread_since: Option<Duration>,
    /// The time of the last update that only answered one.
    answered_at: Option<Duration>,
    /// Fewest octets that a receive waits for.
    low_water: usize,
    urgent: urgent::UrgentOctet,
    /// This half has been in Buffered mode.
    was_buffered: bool,
    /// Receive buffers grow, of which the peer is told when all have.
    is_growing: bool,
    over: Option<Error>,
    has_changed: bool,
}

impl<T: Transport> Socket<T> {
    /// Makes the socket of a connection whose startup is over. The receive buffers that this end's
    /// Hello or `HelloAck` announced are posted already.
    #[must_use]
    pub fn new(transport: T, config: Config, agreed: Agreed) -> Self {
        let sizes = machine::Config {
            bufs: config.buffers,
            buf_size: config.buffer_size,
            send_size: config.longest_message(),
            max_adverts: config.max_adverts,
            peer_bufs: agreed.peer_bufs,
            peer_buf_size: agreed.peer_size,
            peer_max_adverts: agreed.peer_adverts.max(1),
        };
        let core = Core::new(&sizes);
        // Ends that can never exchange a message.
        let over = core.is_err().then_some(Error::Aborted);
        let mut socket = Socket {
            transport,
            core: core.unwrap_or_default(),
            tables: Box::default(),
            config,
            role: agreed.role,
            now: Duration::ZERO,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            inbox: VecDeque::new(),
            ahead: VecDeque::new(),
            ahead_octets: 0,
            ended: VecDeque::new(),
            next_id: 0,
            is_mute: agreed.role == Role::Passive,
            owes_first: agreed.role == Role::Active,
            closing: closing::Closing::default(),
            cancel_since: None,
            crossing_since: None,
            unread_since: None,
            answered_at: None,
            low_water: 1,
            urgent: urgent::UrgentOctet::default(),
            was_buffered: false,
            is_growing: false,
            over: None,
            has_changed: false,
        };
        // A hint to the peer: adverts of this end's receives need Pipelined.
        socket.machine().prefer_pipelined(config.sink_adverts);
        if config.send_size > agreed.peer_size {
            // Refused where the peer's buffers are as large.
            let _ = socket.machine().request_buffer_size(config.send_size);
        }
        if let Some(error) = over {
            socket.fail(error);
        }
        socket
    }

    /// Begins to send what lies in memory.
    pub fn send(&mut self, memory: T::Memory, options: Options) -> OperationId {
        let id = self.new_id();
        if let Some(error) = self.send_refused() {
            self.end(id, 0, Some(error));
            return id;
        }
        if options.urgent {
            self.machine().announce_urgent();
        }
        self.sends.push_back(Sending {
            id,
            memory,
            options,
            sent: 0,
            adverts: VecDeque::new(),
            writes: VecDeque::new(),
            copies: false,
            is_stopped: false,
            error: None,
        });
        self.drive();
        if options.non_blocking {
            self.cancel_for(id, Error::WouldBlock);
        }
        id
    }

    /// Begins to receive into memory.
    pub fn receive(&mut self, memory: T::Memory, options: Options) -> OperationId {
        let id = self.new_id();
        self.receives.push_back(Receiving {
            id,
            memory,
            options,
            filled: 0,
            sink: None,
            reading: None,
            is_stopped: false,
            error: None,
        });
        self.drive();
        if options.non_blocking {
            self.cancel_for(id, Error::WouldBlock);
        }
        id
    }

    /// Takes an operation back. It ends when the peer can no longer touch its memory, with what was
    /// done of it.
    pub fn cancel(&mut self, id: OperationId) {
        self.cancel_for(id, Error::Cancelled);
    }

    /// Returns an operation that has ended.
    pub fn ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    /// Returns the end of this operation, if it has ended.
    pub fn take(&mut self, id: OperationId) -> Option<Ended> {
        let at = self.ended.iter().position(|ended| ended.id == id)?;
        self.ended.remove(at)
    }

    /// Takes what has happened on the connection, and drives the operations on. Returns whether
    /// some have ended, or anything else has changed that a caller may wait for.
    pub fn progress(&mut self, now: Duration) -> bool {
        self.now = self.now.max(now);
        while let Some(event) = self.transport.poll() {
            self.happened(event);
        }
        self.drive();
        self.check_timeouts();
        std::mem::take(&mut self.has_changed)
    }

    /// Returns whether the connection is over, and every operation with it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// Returns the reason for the end of the connection.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        self.over
    }

    /// Returns whether something has come from the peer, before which an end of iWARP that accepted
    /// a connection may not send (RFC 5044 §7.1.2).
    #[must_use]
    pub fn is_established(&self) -> bool {
        !self.is_mute
    }

    /// Sets the fewest octets that a receive waits for, where its memory has room for them.
    pub fn set_low_water(&mut self, octets: usize) {
        self.low_water = octets.max(1);
        self.drive();
    }

    /// Returns whether a receive would end at once.
    #[must_use]
    pub fn is_readable(&mut self) -> bool {
        self.has_octets() || self.at_end() || self.unread().is_some()
    }

    /// Returns the transport.
    #[must_use]
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// Sets the shortest send that is advertised: see [`Config::source_threshold`].
    pub fn set_source_threshold(&mut self, threshold: Option<usize>) {
        self.config.source_threshold = threshold;
    }

    fn machine(&mut self) -> Machine<'_> {
        Machine::new(&mut self.core, Some(&mut self.tables))
    }

    fn new_id(&mut self) -> OperationId {
        OperationId(self.new_number())
    }

    fn new_number(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn end(&mut self, id: OperationId, octets: usize, error: Option<Error>) {
        self.has_changed = true;
        self.ended.push_back(Ended { id, octets, error });
    }

    /// Does all that can be done now.
    fn drive(&mut self) {
        if self.over.is_none() && self.closing.abort_until.is_some() {
            return self.drive_abort();
        }
        while self.over.is_none() {
            self.settle_sources();
            self.settle_sinks();
            let mut moved = self.deliver();
            moved |= self.settle_modes();
            moved |= self.begin_reads();
            moved |= self.begin_sends();
            moved |= self.empty_buffers();
            moved |= self.advertise_sinks();
            moved |= self.send_controls();
            self.finish_sends();
            if !moved {
                break;
            }
        }
        if self.over.is_none() {
            self.drive_close();
        }
        self.refuse_after_end();
    }

    /// Sends the control messages that are due and that credits allow.
    fn send_controls(&mut self) -> bool {
        let mut moved = false;
        if self.owes_first {
            // The peer may send nothing before it has something from here.
            self.machine().update_now();
        }
        self.complete_sink();
        self.answer_growth();
        while !self.is_mute && self.transport.room() > 0 {
            if self.paces_update() {
                break;
            }
            let Some(front) = self.machine().next_control() else { break };
            moved = true;
            self.control_was_sent(front[0]);
            if !self.post(|transport| transport.send(&front, None)) {
                break;
            }
        }
        moved
    }

    /// Posts a request, for which there is room. Returns whether the connection goes on.
    fn post(&mut self, request: impl FnOnce(&mut T) -> Result<(), PostFault>) -> bool {
        self.owes_first = false;
        let Err(fault) = request(&mut self.transport) else { return true };
        self.fail(match fault {
            PostFault::Memory => Error::Address,
            // There was room: a message that counts as sent and is not breaks the connection.
            PostFault::Full | PostFault::Lost => Error::Reset,
        });
        false
    }

    fn happened(&mut self, event: Event) {
        if self.over.is_some() {
            return;
        }
        match event {
            Event::Received(buffer, len) => self.arrived(buffer, len),
            Event::Read(id) => self.read(id),
            Event::Written(id) => self.written(id),
            Event::Room => {}
            Event::Lost(lost) => self.lost(lost),
        }
    }

    fn lost(&mut self, lost: Lost) {
        match lost {
            // The end of the transport behind both ends' last message is no loss, however it came.
            Lost::Closed | Lost::Reset if self.closing.both_closed() => self.finish_closed(),
            Lost::Closed | Lost::Reset | Lost::Failed => self.fail(Error::Reset),
        }
    }

    /// Ends the connection, then every registration, then every operation: in this order, so that
    /// nobody touches memory of an operation that has ended.
    fn fail(&mut self, error: Error) {
        if self.over.is_some() {
            return;
        }
        // What comes behind an `AbortConn` of this end says nothing.
        let error = if self.closing.abort_until.is_some() { Error::Aborted } else { error };
        self.over = Some(error);
        self.transport.abort();
        // What the peer reported before the end counts.
        self.settle_sources();
        self.settle_sinks();
        self.release_all();
        let receive_error = if self.closing.peer_has_closed { None } else { Some(error) };
        for op in std::mem::take(&mut self.sends) {
            self.end(op.id, op.accepted(), Some(error));
        }
        for op in std::mem::take(&mut self.receives) {
            self.end(op.id, op.filled, receive_error);
        }
        self.has_changed = true;
    }

    fn release_all(&mut self) {
        let mut regions = Vec::new();
        for op in &mut self.sends {
            op.sent = op.accepted();
            regions.extend(op.adverts.drain(..).map(|advert| advert.region));
            regions.extend(op.writes.drain(..).map(|(_, region)| region));
        }
        for op in &mut self.receives {
            regions.extend(op.sink.take().map(|(_, region)| region));
            regions.extend(op.reading.take().map(|(_, _, region)| region));
        }
        regions.extend(self.ahead.drain(..).map(|read| read.region));
        for region in regions {
            self.transport.release(region);
        }
    }

    /// Ends what was begun on a connection that is over.
    fn refuse_after_end(&mut self) {
        let Some(error) = self.over else { return };
        if self.closing.peer_has_closed {
            // What had come before the end of the stream is still the program's.
            self.deliver();
        }
        for op in std::mem::take(&mut self.sends) {
            self.end(op.id, 0, Some(error));
        }
        for op in std::mem::take(&mut self.receives) {
            let error = if self.closing.peer_has_closed { None } else { Some(error) };
            self.end(op.id, op.filled, error);
        }
    }
}
