//! Progress of a queue pair: its connection reads and writes, and the QP acts on the result.

use std::io;
use std::os::fd::BorrowedFd;

use rddp_rdma::{AsyncEventKind, SendWr};

use super::QpInner;
use super::core::Core;
use crate::mem::send_octets;
use crate::queues::context::Context;
use crate::queues::state::QpState;
use crate::wire::{Pulled, WireEvent};

/// Number of octets of one turn of reading: other connections get theirs in between
/// (RFC 5042 §6.4.4). Tests have a shorter one, as TCP does not keep enough for this.
pub(super) const TURN: u64 = if cfg!(test) { 30_000 } else { 1024 * 1024 };

/// Number of octets of one turn of sending while Reads of the peer's are in service.
const ANSWERING_TURN: u64 = 1024 * 1024;

impl QpInner {
    /// Reads for one turn, and at most one read more.
    #[inline(always)]
    pub(super) fn pull(&self, core: &mut Core) -> Pulled {
        while let Some((connection, mut cx)) = core.split(&self.attrs) {
            let (pulled, event) = connection.receive(&mut cx, TURN);
            let Some(event) = event else { return pulled };
            self.on_end_of_stream(core, event);
            if pulled == Pulled::Dry {
                break;
            }
        }
        Pulled::Dry
    }

    /// Delivers the segment that waits for a receive, and those behind it, if there is a receive
    /// now. Returns whether the socket may be read.
    #[inline]
    pub(super) fn unpark(&self, core: &mut Core) -> bool {
        if !core.connection.as_ref().is_some_and(|connection| connection.watch.waits()) {
            return true;
        }
        self.resume(core);
        core.connection.as_ref().is_some_and(|connection| !connection.watch.is_shut())
    }

    /// Goes on after a receive was posted: a device of the host gets it, and elsewhere the socket
    /// is read again.
    pub(super) fn go_on_with_receive(&self, core: &mut Core) {
        let was_parked = core.is_parked();
        self.resume(core);
        if was_parked {
            self.pump(core);
        }
    }

    fn resume(&self, core: &mut Core) {
        if let Some((connection, mut cx)) = core.split(&self.attrs)
            && let Err(event) = connection.resume(&mut cx)
        {
            self.on_end_of_stream(core, event);
        }
    }

    /// Acts on what reading has brought, and discards the octets behind it.
    #[cold]
    fn on_end_of_stream(&self, core: &mut Core, event: WireEvent) {
        self.on_event(core, event);
        if let Some(connection) = &mut core.connection
            && let Err(event) = connection.discard(&self.attrs)
        {
            self.on_event(core, event);
        }
    }

    /// Sends what can be sent, and completes requests that this finished. While Reads of the peer's
    /// are in service, it ends after a turn.
    pub(super) fn pump(&self, core: &mut Core) {
        while let Some((connection, mut cx)) = core.split(&self.attrs) {
            match connection.send(&mut cx, ANSWERING_TURN) {
                Ok(()) => return,
                Err(event) => {
                    // RFC 5040 §6.2.1: what comes behind a fault is dropped; and a peer that sends
                    // on would keep this end reading.
                    if matches!(event, WireEvent::Lost(AsyncEventKind::ConnectionLost)) {
                        self.read_last(core);
                    }
                    self.on_event(core, event);
                }
            }
        }
        self.pump_to_itself(core);
    }

    /// Reads what has come where TCP no longer sends and requests are acknowledged: a peer that
    /// leaves with octets unread resets TCP behind its last acknowledgements.
    #[cold]
    fn read_last(&self, core: &mut Core) {
        while self.stays(core) && core.connection.is_some() && self.pull(core) == Pulled::More {}
    }

    /// Carries out what is posted to a QP that is connected to itself.
    #[cold]
    #[inline(never)]
    pub(super) fn pump_to_itself(&self, core: &mut Core) {
        let Core { itself: Some(itself), sq, rq, tally, .. } = core else { return };
        if let Err(event) = itself.send(&mut Context { attrs: &self.attrs, sq, rq, tally }) {
            self.on_event(core, event);
        }
        self.check_queues(core);
    }

    /// Sends the message of a request past the queue, if it is short and nothing stands before it.
    /// Returns whether it did; if not, nothing has changed.
    #[inline]
    pub(super) fn send_short(&self, core: &mut Core, wr: &SendWr) -> bool {
        self.send_short_by(core, wr, send_octets)
    }

    /// Does what [`send_short`](Self::send_short) does, by this call to TCP.
    #[inline]
    pub(super) fn send_short_by(
        &self,
        core: &mut Core,
        wr: &SendWr,
        tcp: impl FnOnce(BorrowedFd<'_>, &[u8]) -> io::Result<usize>,
    ) -> bool {
        if core.state != QpState::ReadyToSend {
            return false;
        }
        let Some((connection, mut cx)) = core.split(&self.attrs) else { return false };
        connection.post(&mut cx, wr, tcp)
    }

    /// Sends what was posted, unless it waits for more.
    // Out of the way of connections that have no acknowledgements.
    #[cold]
    #[inline(never)]
    pub(super) fn pump_together(&self, core: &mut Core) {
        if !core.split(&self.attrs).is_some_and(|(connection, cx)| connection.wait_for_more(&cx)) {
            self.pump(core);
        }
    }

    /// Sends only what TCP has been promised, which is the rest of an FPDU or a Terminate; then
    /// FIN, if one is due.
    pub(super) fn push_out(&self, core: &mut Core) {
        if let Some((connection, mut cx)) = core.split(&self.attrs)
            && let Err(event) = connection.push_out(&mut cx)
        {
            self.on_event(core, event);
        }
    }
}
