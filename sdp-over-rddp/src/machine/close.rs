//! The end of each half-connection, and of both at once.

use super::conn::{due, flag};
use super::tables::{count, state};
use super::{Blocked, Core, Machine, Received, Violation};

/// Ways to give up a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// An `AbortConn` is due; the transport goes down behind it.
    Message,
    /// The transport goes down: a peer that has not had our `DisConn` takes no `AbortConn`.
    Transport,
}

impl Core {
    /// Returns whether this end's `DisConn` has been made.
    #[must_use]
    #[inline]
    pub fn sent_disconn(&self) -> bool {
        self.is(flag::DISCONN_SENT)
    }

    /// Returns whether the peer has sent its last octet.
    #[must_use]
    #[inline]
    pub fn received_disconn(&self) -> bool {
        self.is(flag::DISCONN_RECEIVED)
    }
}

impl Machine<'_> {
    /// Tells that the program sends no more and that the send queue is empty, octets of own adverts
    /// apart: a `DisConn` becomes due behind those.
    pub fn close_sending(&mut self) {
        self.complete_peer_sink();
        self.core.set(flag::CLOSING, true);
    }

    /// Gives up the connection. Nothing is sent or taken any more but what it returns.
    pub fn abort(&mut self) -> Abort {
        if self.core.is(flag::DISCONN_SENT) && !self.core.is(flag::ABORTED) {
            self.core.set_due(due::ABORT, true);
            return Abort::Message;
        }
        self.core.set(flag::ABORTED, true);
        Abort::Transport
    }

    /// Returns whether the connection was given up, by either end, or broken by the peer.
    #[must_use]
    pub fn aborted(&self) -> bool {
        self.core.is(flag::ABORTED)
    }

    /// Returns whether this end's `DisConn` has been made.
    #[must_use]
    pub fn sent_disconn(&self) -> bool {
        self.core.sent_disconn()
    }

    /// Returns whether the peer has sent its last octet.
    #[must_use]
    pub fn received_disconn(&self) -> bool {
        self.core.received_disconn()
    }

    /// Returns whether this end takes down the transport now: both halves have ended, its own
    /// first. The other end waits for that.
    #[must_use]
    pub fn takes_down_transport(&self) -> bool {
        let both = self.core.is(flag::DISCONN_SENT) && self.core.is(flag::DISCONN_RECEIVED);
        both && self.core.is(flag::FIRST)
    }

    /// Returns whether `DisConn` may go: behind all octets.
    pub(super) fn disconn_due(&self) -> bool {
        let sources = self.adverts().sources;
        self.core.is(flag::CLOSING)
            && !self.core.is(flag::DISCONN_SENT)
            && count(sources, state::OUT) + count(sources, state::RETURNED) == 0
            && self.no_report_first() != Err(Blocked::Control)
            && !self.partly_written()
    }

    pub(super) fn disconn_made(&mut self) {
        self.drop_peer_sinks();
        self.core.disconn_mseq = self.core.next_mseq;
        let first = !self.core.is(flag::DISCONN_RECEIVED);
        self.core.set(flag::FIRST, first);
        self.core.set(flag::DISCONN_SENT, true);
    }

    pub(super) fn take_disconn(&mut self) -> Result<Received, Violation> {
        if self.core.is(flag::DISCONN_RECEIVED) {
            return Err(Violation::SecondDisConn);
        }
        if self.peer_sources_pending() {
            return Err(Violation::DisConnUnderSource);
        }
        self.core.set(flag::DISCONN_RECEIVED, true);
        // Nothing can be written into them any more.
        self.return_sinks();
        Ok(Received::Disconnected)
    }

    pub(super) fn take_abort(&mut self) -> Result<Received, Violation> {
        if !self.core.is(flag::DISCONN_RECEIVED) {
            return Err(Violation::AbortConn);
        }
        self.core.set(flag::ABORTED, true);
        Ok(Received::Aborted)
    }
}
