//! A queue pair's connection: its wire, and beside it who watches its socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rddp_rdma::{AsyncEventKind, ConnectOptions, SendWr};
use rddp_rdmap::{Fault, Offending, TerminateRepr};
use rddp_stat::Counter;
use socket2::SockAddr;

use super::datagrams::Datagrams;
use super::device::Device;
use super::iwarp::{Link, Sent};
use super::opening::Terms;
use super::plain::Plain;
use super::{Watch, WireEvent};
use crate::conn::linger::MAX_DISCARDED;
use crate::conn::socket::DeviceSocket;
use crate::queues::attributes::QpAttributes;
use crate::queues::context::Context;
use crate::queues::options::{DatagramOptions, Transport};
use crate::queues::sq::SendQueue;
use crate::queues::state::QpState;

/// Time for which requests wait for more at most.
const GATHERING: Duration = Duration::from_millis(1);

/// A connection: see [`wire`](super).
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) watch: Watch,
    wire: Wire,
}

/// The wires there are.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "almost all are of the large kind")]
enum Wire {
    Iwarp(Link),
    Plain(Plain),
    Datagrams(Datagrams),
    Device(Box<Device>),
}

/// The end of a turn of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pulled {
    /// TCP has nothing more now.
    Dry,
    /// There may be more.
    More,
    /// The connection reads nothing for a while: see [`Connection::must_pause`].
    Paused,
}

/// The answer to the wish to close in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closes {
    /// The close has begun: nothing more is sent or received.
    Begun,
    /// The close waits for something that the program knows nothing of, and
    /// [`WireEvent::Close`] tells that it can begin.
    Later,
    /// FIN follows the requests that are queued; receives go on until the peer's.
    Half,
    /// There is nobody to tell: it is over.
    Over,
    /// The peer has asked for something that has not been answered or delivered.
    Busy,
}

/// The way in which a fault ends a connection.
#[derive(Debug)]
pub(crate) enum Ends {
    /// With a Terminate, which is queued, or in silence where none may be sent; then with FIN.
    Terminate(Option<TerminateRepr>),
    /// With a reset: the wire can say no more.
    Reset,
}

impl Wire {
    #[inline]
    fn has_output(&self, sq: &SendQueue) -> bool {
        match self {
            Wire::Iwarp(link) => link.has_output(sq),
            Wire::Plain(_) | Wire::Datagrams(_) | Wire::Device(_) => sq.has_unsent(),
        }
    }
}

impl Connection {
    pub(crate) fn new(
        socket: DeviceSocket,
        terms: Terms,
        options: &ConnectOptions,
        active: bool,
        attrs: &QpAttributes,
    ) -> Self {
        let mut watch = match terms {
            Terms::Device(_) => Watch::of_datagrams(socket),
            _ => Watch::new(socket, options),
        };
        let wire = match terms {
            Terms::Iwarp(negotiated) => {
                let acknowledges = attrs.acknowledges();
                Wire::Iwarp(Link::new(watch.socket().clone(), negotiated, options, active, acknowledges))
            }
            Terms::Tcp => {
                rddp_capture::is_plain(watch.fd());
                let records = (attrs.transport == Transport::Record).then_some(attrs.records);
                Wire::Plain(Plain::new(records))
            }
            Terms::Device(mut device) => {
                device.begin(&mut watch, options, attrs);
                Wire::Device(device)
            }
        };
        Connection { watch, wire }
    }

    /// Makes the state of a QP that is bound to an address of UDP.
    pub(crate) fn of_datagrams(
        socket: DeviceSocket,
        options: DatagramOptions,
        attrs: &QpAttributes,
    ) -> io::Result<Self> {
        let datagrams = Datagrams::new(&socket, options, attrs.transport)?;
        Ok(Connection { watch: Watch::of_datagrams(socket), wire: Wire::Datagrams(datagrams) })
    }

    /// Returns the iWARP connection, for what only that has.
    #[inline]
    pub(crate) fn iwarp(&self) -> Option<&Link> {
        match &self.wire {
            Wire::Iwarp(link) => Some(link),
            Wire::Plain(_) | Wire::Datagrams(_) | Wire::Device(_) => None,
        }
    }

    /// Returns whether a device of the host moves the octets.
    #[inline]
    pub(crate) fn is_of_device(&self) -> bool {
        matches!(self.wire, Wire::Device(_))
    }

    /// Returns IRD and ORD, which are 0 where the wire has no Reads.
    pub(crate) fn depths(&self) -> (u16, u16) {
        match &self.wire {
            Wire::Iwarp(link) => (link.negotiated().ird, link.negotiated().ord),
            Wire::Plain(_) | Wire::Datagrams(_) => (0, 0),
            Wire::Device(device) => device.depths(),
        }
    }

    /// Returns the address of this end, and the peer's.
    pub(crate) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        if let Wire::Device(device) = &self.wire {
            return device.addresses();
        }
        let socket = &self.watch.socket;
        let of = |addr: io::Result<SockAddr>| addr.ok().and_then(|addr| addr.as_socket());
        (of(socket.local_addr()), of(socket.peer_addr()))
    }

    /// Makes long FPDUs from now on, as the programs have agreed. Returns whether the wire can.
    pub(crate) fn send_large_fpdus(&mut self) -> bool {
        match &mut self.wire {
            Wire::Iwarp(link) => link.send_large_fpdus(),
            Wire::Plain(_) | Wire::Datagrams(_) | Wire::Device(_) => false,
        }
    }

    /// Returns whether receives are kept for the peer's messages in this state of the QP.
    pub(crate) fn takes_receives(&self, state: QpState) -> bool {
        match &self.wire {
            Wire::Iwarp(_) | Wire::Datagrams(_) => state.takes_receives(),
            Wire::Plain(_) => {
                matches!(state, QpState::ReadyToSend | QpState::Closing) && !self.watch.end.is_peer_done()
            }
            // The device has them until the connection is over.
            Wire::Device(_) => matches!(state, QpState::ReadyToSend | QpState::Closing),
        }
    }

    /// Begins the connection: sets its timers, and opens memory to its peer.
    pub(crate) fn start(&mut self, attrs: &QpAttributes, timeout: Duration) {
        if let Wire::Iwarp(link) = &mut self.wire {
            link.place_in_kernel(attrs);
            link.start(attrs, timeout);
        }
        self.watch.look_for_silence(attrs);
    }

    /// Ends a connection that this end cannot take up.
    pub(crate) fn refuse(&mut self, attrs: &QpAttributes) {
        self.watch.unwatch(attrs);
        match &mut self.wire {
            Wire::Iwarp(link) => link.refuse(),
            Wire::Plain(_) => self.watch.reset(),
            Wire::Datagrams(_) | Wire::Device(_) => {}
        }
    }

    /// Reads for so many octets, and at most one read more. Returns how that ended, and what the QP
    /// has to act on. What has come behind that is kept, and [`discard`](Self::discard) follows.
    #[inline(always)]
    pub(crate) fn receive(&mut self, cx: &mut Context<'_>, turn: u64) -> (Pulled, Option<WireEvent>) {
        match &mut self.wire {
            Wire::Iwarp(link) => {
                let read = link.receive(cx, turn);
                if read.1.is_none() {
                    link.acknowledge_turn(&mut self.watch, cx);
                }
                self.watch.waits = link.is_parked();
                if self.watch.waits {
                    self.watch.reads_on = link.reads_on();
                }
                read
            }
            Wire::Plain(plain) => plain.receive(&mut self.watch, cx, turn),
            Wire::Datagrams(datagrams) => datagrams.receive(&mut self.watch, cx, turn),
            Wire::Device(device) => device.receive(&mut self.watch, cx),
        }
    }

    /// Goes on with a message that waits for a receive, if there is one now, or hands receives over
    /// to a device of the host.
    pub(crate) fn resume(&mut self, cx: &mut Context<'_>) -> Result<(), WireEvent> {
        match &mut self.wire {
            Wire::Iwarp(link) => {
                let resumed = link.resume(cx);
                (self.watch.waits, self.watch.reads_on) = (link.is_parked(), link.reads_on());
                resumed
            }
            Wire::Plain(plain) => plain.resume(&mut self.watch, cx),
            Wire::Datagrams(datagrams) => datagrams.resume(&mut self.watch, cx),
            Wire::Device(device) => device.give_receives(cx),
        }
    }

    /// Discards what has come behind the event that has ended the stream.
    pub(crate) fn discard(&mut self, attrs: &QpAttributes) -> Result<(), WireEvent> {
        match &mut self.wire {
            Wire::Iwarp(link) => link.discard_stashed(attrs),
            Wire::Plain(_) | Wire::Datagrams(_) | Wire::Device(_) => Ok(()),
        }
    }

    /// Returns whether this connection may not read now. RFC 5042 §6.4.1: while the partial FPDUs
    /// of all QPs take up all the memory that they may, no QP begins another.
    #[inline]
    pub(crate) fn must_pause(&self, cx: &Context<'_>) -> bool {
        cx.attrs.device.partial.is_exhausted() && self.iwarp().is_some_and(Link::is_between_fpdus)
    }

    /// Keeps everybody from looking for octets until a timer expires.
    pub(crate) fn pause_reading(&mut self, cx: &Context<'_>) {
        if self.watch.pause_reading(cx.attrs) {
            self.update_interest(cx);
        }
    }

    /// Ends a pause in reading, so that whoever sleeps on the socket looks for octets again.
    /// Returns whether there was one.
    #[inline]
    pub(crate) fn resume_reading(&mut self, cx: &Context<'_>) -> bool {
        let was_paused = self.watch.end_pause();
        if was_paused {
            self.update_interest(cx);
        }
        was_paused
    }

    /// Returns whether what has come in part has been arriving for too long while others wait for
    /// the memory (RFC 5042 §6.4.2).
    pub(crate) fn is_stalled(&self, now: Instant) -> bool {
        self.iwarp().is_some_and(|link| link.is_stalled(now))
    }

    /// Sends a request's message past the queue, if it is short and nothing stands before it. `tcp`
    /// is the call that hands octets to the socket. Returns whether TCP took any; if not, nothing
    /// has changed.
    #[inline]
    pub(crate) fn post(
        &mut self,
        cx: &mut Context<'_>,
        wr: &SendWr,
        tcp: impl FnOnce(BorrowedFd<'_>, &[u8]) -> io::Result<usize>,
    ) -> bool {
        let Wire::Iwarp(link) = &mut self.wire else { return false };
        let sent = link.send_short(&mut self.watch, cx, wr, tcp);
        if sent == Some(Sent::Begun) {
            self.update_interest(cx);
        }
        sent.is_some()
    }

    /// Has requests wait for more, if they may: see [`SendQueue::gathers`]. A timer sends them
    /// where the program may read no answers. Returns whether they wait.
    pub(crate) fn wait_for_more(&mut self, cx: &Context<'_>) -> bool {
        if !cx.sq.gathers() || self.watch.is_shut() {
            return false;
        }
        if !self.watch.is_watched() {
            let now = Instant::now();
            self.watch.wake_by(now + GATHERING, now, cx.attrs);
        }
        true
    }

    /// Sends the acknowledgement that waits for an answer, if one does: the connection ends.
    pub(crate) fn acknowledge_held(&mut self, cx: &mut Context<'_>) {
        if let Wire::Iwarp(link) = &mut self.wire
            && link.owes_acknowledgement()
        {
            link.acknowledge_with_own(cx);
            // If TCP has gone, the peer cannot be told.
            let _ = self.push_out(cx);
        }
    }

    /// Sends what can be sent, and completes requests that this finished. While Reads of the peer's
    /// are in service, it ends behind so many octets.
    ///
    /// # Errors
    /// What the QP has to act on. What is prepared then is to be sent all the same.
    #[inline]
    pub(crate) fn send(&mut self, cx: &mut Context<'_>, turn: u64) -> Result<(), WireEvent> {
        match &mut self.wire {
            Wire::Iwarp(link) => link.send(&mut self.watch, cx, turn)?,
            Wire::Plain(plain) => plain.send(&mut self.watch, cx)?,
            Wire::Datagrams(datagrams) => datagrams.send(&mut self.watch, cx)?,
            // It is never asked for room.
            Wire::Device(device) => return device.send(cx),
        }
        self.update_interest(cx);
        Ok(())
    }

    /// Sends only what TCP has been promised; then FIN, if one is due.
    pub(crate) fn push_out(&mut self, cx: &mut Context<'_>) -> Result<(), WireEvent> {
        let pushed = match &mut self.wire {
            Wire::Iwarp(link) => link.push_out(&mut self.watch, cx),
            Wire::Plain(plain) => plain.send(&mut self.watch, cx),
            Wire::Datagrams(datagrams) => datagrams.send(&mut self.watch, cx),
            // The device has sent what it was given.
            Wire::Device(_) => self.watch.end.send_fin(&self.watch.socket),
        };
        self.update_interest(cx);
        pushed
    }

    /// Returns whether there is anything to send, or to try again.
    #[inline]
    pub(crate) fn has_output(&self, sq: &SendQueue) -> bool {
        self.wire.has_output(sq)
    }

    /// Arms the epoll sets for what the connection waits for.
    #[inline]
    pub(crate) fn update_interest(&mut self, cx: &Context<'_>) {
        let wire = &self.wire;
        self.watch.update_interest(cx.attrs, || wire.has_output(cx.sq));
    }

    /// Returns whether an acknowledgement waits for what the program posts.
    pub(crate) fn owes_acknowledgement(&self) -> bool {
        self.iwarp().is_some_and(Link::owes_acknowledgement)
    }

    /// Does what is due now. Returns whether there is something to send.
    pub(crate) fn on_timer(&mut self, cx: &Context<'_>, now: Instant) -> Result<bool, WireEvent> {
        let qp = cx.attrs.num.0;
        let socket = self.watch.socket.clone();
        if self.watch.end.is_overdue(cx.attrs, socket.as_fd(), now)
            || self.iwarp().is_some_and(|link| link.is_overdue(now))
        {
            tracing::debug!(qp, "the peer is too slow: reset");
            return Err(WireEvent::Lost(AsyncEventKind::ConnectionLost));
        }
        let moved = self.moved(cx);
        if self.watch.has_vanished(cx.attrs, now, moved) {
            tracing::info!(qp, "reset: the peer does not answer, and has octets or requests to acknowledge");
            return Err(WireEvent::Lost(AsyncEventKind::ConnectionLost));
        }
        let link = match &mut self.wire {
            Wire::Iwarp(link) => link,
            Wire::Device(device) => return device.on_timer(&mut self.watch, now, cx.attrs).map(|()| true),
            Wire::Plain(_) | Wire::Datagrams(_) => return Ok(false),
        };
        if link.are_tries_over(now) {
            return Err(WireEvent::NoReceive);
        }
        link.sum_ahead(cx.attrs, now);
        let is_due = link.is_acknowledgement_due(&mut self.watch, cx, now);
        let has_gathered = cx.sq.acknowledges && cx.sq.has_unsent();
        Ok(link.nudges_or_speaks(cx, now) || is_due || has_gathered)
    }

    /// Returns the octets that TCP was given and has brought, if the peer has to answer in time.
    fn moved(&self, cx: &Context<'_>) -> Option<u64> {
        let is_owed = cx.sq.patience.answers.is_some() && !cx.sq.is_empty();
        if !is_owed || !self.iwarp().is_some_and(Link::awaits_answers) {
            return None;
        }
        Some(cx.tally.of(Counter::OctetsSent).wrapping_add(cx.tally.of(Counter::OctetsReceived)))
    }

    /// Takes no more messages of the peer.
    pub(crate) fn fail(&mut self, fault: &Fault, offending: Option<&Offending>) -> Ends {
        match &mut self.wire {
            Wire::Iwarp(link) => Ends::Terminate(link.fail(fault, offending)),
            Wire::Plain(_) | Wire::Datagrams(_) | Wire::Device(_) => Ends::Reset,
        }
    }

    /// Closes in order, unless the wire has something to do for the peer.
    pub(crate) fn close(&mut self, attrs: &QpAttributes, sq: &SendQueue) -> Closes {
        let link = match &mut self.wire {
            Wire::Iwarp(link) => link,
            Wire::Plain(_) => {
                self.watch.end.fin_behind_all();
                return Closes::Half;
            }
            Wire::Datagrams(_) => return Closes::Over,
            // What a device has it carries out first: on InfiniBand a message that the peer has not
            // acknowledged is as good as sent.
            Wire::Device(_) if sq.has_unsent() => return Closes::Busy,
            Wire::Device(device) => {
                device.close(&mut self.watch, attrs);
                return Closes::Half;
            }
        };
        if !sq.is_empty() {
            return Closes::Busy;
        }
        if link.close_behind_rtr() {
            self.watch.end.bound(attrs);
            return Closes::Later;
        }
        if link.owes_answers() {
            return Closes::Busy;
        }
        self.begin_close(attrs);
        Closes::Begun
    }

    /// Sends what TCP was promised, then FIN, and limits the time until the peer's FIN: a graceful
    /// teardown (RFC 5041 §6.2.1).
    pub(crate) fn begin_close(&mut self, attrs: &QpAttributes) {
        if let Wire::Iwarp(link) = &mut self.wire {
            link.begin_close(attrs);
        }
        self.watch.waits = false;
        self.watch.end.begin(attrs);
    }

    /// Returns whether nothing of the peer's is half-way: its FIN may come now.
    pub(crate) fn is_quiet(&self) -> bool {
        self.iwarp().is_none_or(Link::is_quiet)
    }

    /// Notes that the peer's FIN has come. Returns whether ours has gone, so that all is over.
    pub(crate) fn note_peer_done(&mut self) -> bool {
        self.watch.end.note_peer_done()
    }

    /// Lets nothing more be placed: what is outstanding is about to complete.
    pub(crate) fn flush(&mut self) {
        if let Wire::Iwarp(link) = &mut self.wire {
            link.stop_in_kernel();
        }
    }

    /// Ends the connection by a reset: an abortive teardown (RFC 5041 §6.2.2).
    pub(crate) fn lose(self, attrs: &QpAttributes) {
        if self.is_of_tcp() {
            self.watch.reset();
        }
        self.release(attrs);
    }

    /// Gives back what the connection has of the device.
    pub(crate) fn release(&self, attrs: &QpAttributes) {
        match &self.wire {
            Wire::Iwarp(link) => link.release(attrs),
            Wire::Plain(plain) => plain.release(attrs),
            Wire::Datagrams(datagrams) => datagrams.release(attrs),
            Wire::Device(_) => {}
        }
        self.watch.unwatch(attrs);
    }

    /// Returns whether there is a connection of TCP that could be ended.
    fn is_of_tcp(&self) -> bool {
        matches!(self.wire, Wire::Iwarp(_) | Wire::Plain(_))
    }

    /// Leaves the connection to the device: what TCP was promised still goes out, in order
    /// (RFC 5040 §5.4).
    pub(crate) fn linger(self, attrs: &QpAttributes) {
        self.release(attrs);
        if let Wire::Device(device) = self.wire {
            return device.linger();
        }
        if !self.is_of_tcp() {
            return;
        }
        let (owed, discards) = self.iwarp().map_or((Vec::new(), MAX_DISCARDED), Link::rest);
        self.watch.linger(attrs, owed, discards);
    }
}

/// Accessors for tests of a queue pair.
#[cfg(test)]
impl Connection {
    /// Returns an iWARP connection's parts.
    pub(crate) fn parts(&mut self) -> (&mut Watch, &mut Link) {
        match &mut self.wire {
            Wire::Iwarp(link) => (&mut self.watch, link),
            Wire::Plain(_) | Wire::Datagrams(_) | Wire::Device(_) => panic!("no connection of iWARP"),
        }
    }
}
