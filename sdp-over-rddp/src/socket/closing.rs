//! The end of a half, and of the connection.

use core::time::Duration;

use super::{Error, Socket};
use crate::machine::Abort;
use crate::transport::Transport;

/// The time between two looks at what the peer's host has: an acknowledgement is no event.
const LOOK: Duration = Duration::from_millis(5);

/// State of the close of a connection.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// The program sends no more.
    pub(super) shut_down: bool,
    /// The program is gone, or receives no more: what comes is dropped.
    pub(super) discards: bool,
    /// The program is gone.
    closed: bool,
    /// The machine knows that nothing more will be sent.
    announced: bool,
    /// This end's `DisConn` went before the peer's came.
    is_first: bool,
    sent: bool,
    pub(super) peer_has_closed: bool,
    disconnects: bool,
    /// The time to look again whether the peer's host has everything.
    pub(super) look_at: Option<Duration>,
    /// An `AbortConn` is on its way: the time at which it is no longer waited for.
    pub(super) abort_until: Option<Duration>,
    /// The time of the last message of the peer's, or of the close.
    pub(super) heard_at: Duration,
}

impl Closing {
    pub(super) fn both_closed(&self) -> bool {
        self.sent && self.peer_has_closed
    }
}

impl<T: Transport> Socket<T> {
    /// Ends the stream that this end sends, behind what was sent before.
    pub fn shutdown_send(&mut self) {
        if !self.closing.shut_down {
            self.closing.shut_down = true;
            self.closing.heard_at = self.now;
        }
        self.drive();
    }

    /// Drops what the peer sends from now on. The peer is not told.
    pub fn shutdown_receive(&mut self) {
        self.closing.discards = true;
        self.drive();
    }

    /// Closes the socket for its program: behind what was sent, or, with octets that the program
    /// has not received, by a reset. [`progress`](Self::progress) is to be called on until
    /// [`is_over`](Self::is_over).
    pub fn close(&mut self) {
        let unread = !self.inbox.is_empty() || self.unread().is_some();
        if unread && !self.closing.discards {
            return self.abort();
        }
        self.closing.closed = true;
        self.closing.discards = true;
        self.shutdown_send();
    }

    /// Resets the connection. Behind this end's `DisConn` an `AbortConn` goes first, for which
    /// there are [`Times::tie_break`](super::Times::tie_break); else every operation has ended when
    /// this returns.
    pub fn abort(&mut self) {
        if self.over.is_some() || self.closing.abort_until.is_some() {
            return;
        }
        let by_message = self.machine().abort() == Abort::Message;
        if by_message && !self.is_mute && self.transport.room() > 0 {
            // Of all that is due it goes first; without credits it cannot.
            if let Some(front) = self.machine().next_control()
                && self.post(|transport| transport.send(&front, None))
            {
                self.closing.abort_until = Some(self.now + self.config.times.tie_break);
                return self.drive();
            }
        }
        self.fail(Error::Aborted);
    }

    /// Ends a connection whose `AbortConn` has left, or takes too long to.
    pub(super) fn drive_abort(&mut self) {
        let is_late = self.closing.abort_until.is_some_and(|at| at <= self.now);
        if is_late || self.transport.is_idle() {
            self.fail(Error::Aborted);
        }
    }

    /// Returns whether the peer's host has all that this end sends, its end too, or will have no
    /// more of it.
    pub fn has_said_all(&mut self) -> bool {
        let is_sent = self.closing.sent && self.transport.is_idle() && self.transport.is_delivered();
        self.over.is_some() || is_sent
    }

    pub(super) fn send_refused(&self) -> Option<Error> {
        self.over.or(self.closing.shut_down.then_some(Error::Closed))
    }

    /// Takes note of a control message that was sent.
    pub(super) fn control_was_sent(&mut self, mid: u8) {
        if mid == crate::wire::Mid::DisConn as u8 {
            self.closing.sent = true;
            self.closing.is_first = !self.closing.peer_has_closed;
        }
    }

    /// Announces the end behind the last send, and has the transport disconnect once both halves
    /// are closed: the end that closed first begins.
    pub(super) fn drive_close(&mut self) {
        if self.closing.shut_down && !self.closing.announced && self.sends.is_empty() {
            self.closing.announced = true;
            self.machine().close_sending();
            self.send_controls();
        }
        let first = self.closing.both_closed() && self.closing.is_first && !self.closing.disconnects;
        if first && self.transport.is_idle() && self.inbox.is_empty() {
            // The peer may return credits until it has taken the `DisConn`, and a transport that
            // has been closed answers them by a reset: what the peer's host lacks would be lost.
            self.closing.disconnects = self.transport.is_delivered();
            self.closing.look_at = (!self.closing.disconnects).then(|| self.now + LOOK);
            if self.closing.disconnects {
                self.transport.disconnect();
            }
        }
    }

    /// Ends a connection that both ends have closed in order.
    pub(super) fn finish_closed(&mut self) {
        self.over = Some(Error::Closed);
        self.transport.abort();
        // What the peer reported before the end counts: it may have come with that.
        self.settle_sources();
        self.settle_sinks();
        self.release_all();
        self.refuse_after_end();
        self.has_changed = true;
    }

    pub(super) fn closing_deadline(&self) -> Option<Duration> {
        if self.closing.abort_until.is_some() {
            return self.closing.abort_until;
        }
        let waits = self.closing.closed || (self.closing.both_closed() && self.closing.disconnects);
        waits.then(|| self.closing.heard_at + self.config.times.answer)
    }

    pub(super) fn closing_is_late(&self) -> bool {
        self.closing_deadline().is_some_and(|at| at <= self.now)
    }
}
