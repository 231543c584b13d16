//! The end of a half, and of the connection.

use core::time::Duration;

use super::{Error, Socket};
use crate::transport::Transport;

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
            return self.fail(Error::Aborted);
        }
        self.closing.closed = true;
        self.closing.discards = true;
        self.shutdown_send();
    }

    /// Resets the connection. Every operation has ended when this returns.
    pub fn abort(&mut self) {
        self.fail(Error::Aborted);
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
            self.closing.disconnects = true;
            self.transport.disconnect();
        }
    }

    /// Ends a connection that both ends have closed in order.
    pub(super) fn finish_closed(&mut self) {
        self.over = Some(Error::Closed);
        self.transport.abort();
        self.release_all();
        self.refuse_after_end();
        self.has_changed = true;
    }

    pub(super) fn closing_deadline(&self) -> Option<Duration> {
        let waits = self.closing.closed || (self.closing.both_closed() && self.closing.disconnects);
        waits.then(|| self.closing.heard_at + self.config.times.answer)
    }

    pub(super) fn closing_is_late(&self) -> bool {
        self.closing_deadline().is_some_and(|at| at <= self.now)
    }
}
