//! A queue pair's connection: its wire, and beside it who watches its socket.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rddp_rdma::{AsyncEventKind, ConnectOptions, SendWr};
use rddp_rdmap::{Fault, Offending, TerminateRepr};

use super::opening::Terms;
use super::{Link, LinkEvent, Sent, Watch};
use crate::conn::socket::TcpSocket;
use crate::queues::attributes::QpAttributes;
use crate::queues::context::Context;
use crate::queues::sq::SendQueue;

/// A connection: see [`wire`](super).
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) watch: Watch,
    pub(crate) link: Link,
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
    /// [`LinkEvent::Close`] tells that it can begin.
    Later,
    /// The peer has asked for something that has not been answered or delivered.
    Busy,
}

impl Connection {
    pub(crate) fn new(socket: TcpSocket, terms: Terms, options: &ConnectOptions, active: bool) -> Self {
        let watch = Watch::new(socket, options);
        let Terms::Iwarp(negotiated) = terms;
        let link = Link::new(watch.socket().clone(), negotiated, options, active);
        Connection { watch, link }
    }

    /// Begins the connection: sets its timers, and opens memory to its peer.
    pub(crate) fn start(&mut self, attrs: &QpAttributes, timeout: Duration) {
        self.link.place_in_kernel(attrs);
        self.link.start(attrs, timeout);
        self.watch.look_for_silence(attrs);
    }

    /// Ends a connection that this end cannot take up.
    pub(crate) fn refuse(&mut self, attrs: &QpAttributes) {
        self.watch.unwatch(attrs);
        self.link.refuse();
    }

    /// Reads for so many octets, and at most one read more. Returns how that ended, and what the QP
    /// has to act on. What has come behind that is kept, and [`discard`](Self::discard) follows.
    #[inline]
    pub(crate) fn receive(&mut self, cx: &mut Context<'_>, turn: u64) -> (Pulled, Option<LinkEvent>) {
        let read = self.link.receive(cx, turn);
        self.watch.waits = self.link.is_parked();
        read
    }

    /// Goes on with a message that waits for a receive, if there is one now.
    pub(crate) fn resume(&mut self, cx: &mut Context<'_>) -> Result<(), LinkEvent> {
        let resumed = self.link.resume(cx);
        self.watch.waits = self.link.is_parked();
        resumed
    }

    /// Discards what has come behind the event that has ended the stream.
    pub(crate) fn discard(&mut self, attrs: &QpAttributes) -> Result<(), LinkEvent> {
        self.link.discard_stashed(attrs)
    }

    /// Returns whether this connection may not read now. RFC 5042 §6.4.1: while the partial FPDUs
    /// of all QPs take up all the memory that they may, no QP begins another.
    #[inline]
    pub(crate) fn must_pause(&self, cx: &Context<'_>) -> bool {
        cx.attrs.device.partial.is_exhausted() && self.link.is_between_fpdus()
    }

    /// Keeps everybody from looking for octets until a timer expires.
    pub(crate) fn pause_reading(&mut self, cx: &Context<'_>) {
        if self.watch.pause_reading(cx.attrs) {
            self.update_interest(cx);
        }
    }

    /// Ends a pause in reading, so that whoever sleeps on the socket looks for octets again.
    #[inline]
    pub(crate) fn resume_reading(&mut self, cx: &Context<'_>) {
        if self.watch.end_pause() {
            self.update_interest(cx);
        }
    }

    /// Returns whether what has come in part has been arriving for too long while others wait for
    /// the memory (RFC 5042 §6.4.2).
    pub(crate) fn is_stalled(&self, now: Instant) -> bool {
        self.link.is_stalled(now)
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
        let sent = self.link.send_short(&mut self.watch, cx, wr, tcp);
        if sent == Some(Sent::Begun) {
            self.update_interest(cx);
        }
        sent.is_some()
    }

    /// Sends what can be sent, and completes requests that this finished. While Reads of the peer's
    /// are in service, it ends behind so many octets.
    ///
    /// # Errors
    /// What the QP has to act on. What is prepared then is to be sent all the same.
    #[inline]
    pub(crate) fn send(&mut self, cx: &mut Context<'_>, turn: u64) -> Result<(), LinkEvent> {
        self.link.send(&mut self.watch, cx, turn)?;
        self.update_interest(cx);
        Ok(())
    }

    /// Sends only what TCP has been promised; then FIN, if one is due.
    pub(crate) fn push_out(&mut self, cx: &mut Context<'_>) -> Result<(), LinkEvent> {
        let pushed = self.link.push_out(&mut self.watch, cx);
        self.update_interest(cx);
        pushed
    }

    /// Returns whether there is anything to send, or to try again.
    #[inline]
    pub(crate) fn has_output(&self, sq: &SendQueue) -> bool {
        self.link.has_output(sq)
    }

    /// Arms the epoll sets for what the connection waits for.
    #[inline]
    pub(crate) fn update_interest(&mut self, cx: &Context<'_>) {
        let link = &self.link;
        self.watch.update_interest(cx.attrs, || link.has_output(cx.sq));
    }

    /// Does what is due now. Returns whether there is something to send.
    pub(crate) fn on_timer(&mut self, cx: &Context<'_>, now: Instant) -> Result<bool, LinkEvent> {
        let qp = cx.attrs.num.0;
        if self.watch.end.is_overdue(now) || self.link.is_overdue(now) {
            tracing::debug!(qp, "the peer is too slow: reset");
            return Err(LinkEvent::Lost(AsyncEventKind::ConnectionLost));
        }
        if self.watch.has_vanished(cx.attrs, now) {
            tracing::info!(
                qp,
                "reset: the peer does not answer, and has octets to acknowledge (ConnectOptions::user_timeout)"
            );
            return Err(LinkEvent::Lost(AsyncEventKind::ConnectionLost));
        }
        self.link.sum_ahead(cx.attrs, now);
        Ok(self.link.begins(cx, now))
    }

    /// Takes no more messages of the peer. Returns the Terminate that is queued for it, if one may
    /// be sent.
    pub(crate) fn fail(&mut self, fault: &Fault, offending: Option<&Offending>) -> Option<TerminateRepr> {
        self.link.fail(fault, offending)
    }

    /// Closes in order, unless the wire has something to do for the peer.
    pub(crate) fn close(&mut self, attrs: &QpAttributes) -> Closes {
        if self.link.close_behind_rtr() {
            self.watch.end.bound(attrs);
            return Closes::Later;
        }
        if self.link.owes_answers() {
            return Closes::Busy;
        }
        self.begin_close(attrs);
        Closes::Begun
    }

    /// Sends what TCP was promised, then FIN, and limits the time until the peer's FIN: a graceful
    /// teardown (RFC 5041 §6.2.1).
    pub(crate) fn begin_close(&mut self, attrs: &QpAttributes) {
        self.link.begin_close(attrs);
        self.watch.waits = false;
        self.watch.end.begin(attrs);
    }

    /// Returns whether nothing of the peer's is half-way: its FIN may come now.
    pub(crate) fn is_quiet(&self) -> bool {
        self.link.is_quiet()
    }

    /// Notes that the peer's FIN has come. Returns whether ours has gone, so that all is over.
    pub(crate) fn note_peer_done(&mut self) -> bool {
        self.watch.end.note_peer_done()
    }

    /// Lets nothing more be placed: what is outstanding is about to complete.
    pub(crate) fn flush(&mut self) {
        self.link.stop_in_kernel();
    }

    /// Ends the connection by a reset: an abortive teardown (RFC 5041 §6.2.2).
    pub(crate) fn lose(self, attrs: &QpAttributes) {
        self.watch.reset();
        self.release(attrs);
    }

    /// Gives back what the connection has of the device.
    pub(crate) fn release(&self, attrs: &QpAttributes) {
        self.link.release(attrs);
        self.watch.unwatch(attrs);
    }

    /// Leaves the connection to the device: what TCP was promised still goes out, in order
    /// (RFC 5040 §5.4).
    pub(crate) fn linger(self, attrs: &QpAttributes) {
        self.release(attrs);
        let (owed, discards) = self.link.rest();
        self.watch.linger(attrs, owed, discards);
    }
}
