//! The ends of a stream: the Terminate for the peer, and the error for the program (RFC 5040 §7.1,
//! RFC 5044 §8).

use std::ffi::c_short;
use std::sync::atomic::Ordering;

use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, POLLRDNORM, POLLWRNORM};
use rddp_iwarp::{OwnMessage, Termination, Trouble};
use rddp_mpa::{Framing, MpaError};
use rddp_octets::Incoming;
use rddp_rdmap::{Fault, TerminateCode, TerminateRepr};

use super::Errno;
use super::base::Base;
use super::ended::{Ended, Why};
use super::owed::owe_fpdu;
use super::state::{Rx, Tx};
use super::sys::Guard;

impl Base<'_> {
    /// Ends the stream because the peer broke the protocol. Returns the program's error.
    pub(super) fn fault(&self, rx: &mut Guard<'_, Rx>, incoming: &Incoming, trouble: &Trouble) -> Errno {
        let code = trouble.fault.code();
        let may_send = self.state.may_send() || incoming.has_good_fpdu();
        let terminate = Termination::of(&trouble.fault, trouble.offending.as_ref(), may_send).terminate();
        self.end(rx, Ended { why: Why::Fault, errno: Errno::RESET, code }, terminate.as_ref())
    }

    /// Ends the stream as [`fault`](Self::fault) does, because of a Read that came earlier.
    pub(super) fn fault_of_read(&self, rx: &mut Guard<'_, Rx>, tx: &mut Tx, trouble: &Trouble) -> Errno {
        let end = Ended { why: Why::Fault, errno: Errno::RESET, code: trouble.fault.code() };
        self.state.end.set(end);
        let terminate = Termination::of(&trouble.fault, trouble.offending.as_ref(), true).terminate();
        self.end_sending_with(tx, terminate.as_ref());
        self.end_receiving(rx);
        end.errno
    }

    /// Ends the stream because the peer sent its Terminate, which is never answered by one
    /// (RFC 5040 §7.1).
    pub(super) fn terminated(&self, rx: &mut Guard<'_, Rx>, code: TerminateCode) -> Errno {
        self.end(rx, Ended { why: Why::Terminated, errno: Errno::RESET, code }, None)
    }

    /// Ends the stream because the peer's FIN came inside an FPDU or a message. None of its octets
    /// is delivered.
    pub(super) fn truncated(&self, rx: &mut Guard<'_, Rx>) -> Errno {
        let code = Fault::mpa(MpaError::Closed).code();
        self.end(rx, Ended { why: Why::Truncated, errno: Errno::RESET, code }, None)
    }

    /// Ends the stream: sends Terminate and FIN, and drops octets that still come. (Unread octets
    /// would make TCP send a reset, which could overtake them.)
    fn end(&self, rx: &mut Guard<'_, Rx>, end: Ended, terminate: Option<&TerminateRepr>) -> Errno {
        self.state.end.set(end);
        // Nothing below changes the program's error.
        if let Ok(mut tx) = self.lock_tx() {
            self.end_sending_with(&mut tx, terminate);
        }
        self.end_receiving(rx);
        end.errno
    }

    fn end_sending_with(&self, tx: &mut Tx, terminate: Option<&TerminateRepr>) {
        if let Some(terminate) = terminate {
            owe_terminate(tx, terminate);
        }
        tx.fin_due = true;
        let _ = self.pay_at_end(tx);
    }

    fn end_receiving(&self, rx: &mut Guard<'_, Rx>) {
        rx.left = 0;
        let _ = self.wake_at(rx, 1);
        self.drain();
    }

    /// Drops octets that have come, up to a limit.
    pub(super) fn drain(&self) {
        for _ in 0..DRAINS {
            match self.kernel.discard(DRAIN) {
                Ok(count) if count > 0 => {}
                _ => break,
            }
        }
    }

    /// Ends a startup that failed. RFC 5044 §7.1.2 closes TCP; the descriptor stays the program's,
    /// so TCP is reset.
    pub(super) fn give_up(&self, why: Why, errno: Errno, code: MpaError) -> Errno {
        self.state.end.set(Ended { why, errno, code: Fault::mpa(code).code() });
        self.kernel.reset();
        errno
    }

    /// Ends a startup that failed after the Reply had come, with the Terminate of RFC 6581 §8.
    pub(super) fn give_up_politely(
        &self,
        rx: &mut Guard<'_, Rx>,
        terminate: &TerminateRepr,
        framing: Framing,
    ) -> Errno {
        if let Ok(mut tx) = self.state.tx.lock() {
            (tx.out.crc, tx.out.markers) = (framing.crc, framing.markers);
        }
        let end = Ended { why: Why::Startup, errno: Errno::PROTOCOL, code: terminate.code };
        self.end(rx, end, Some(terminate))
    }

    /// Ends the stream because its state does not fit together, or not to the octets in the kernel:
    /// a process died while it moved octets (it is not known where it stopped), or something else
    /// than this library wrote to the state or read the socket.
    pub(super) fn damaged(&self) -> Errno {
        self.state.end.set(Ended::new(Why::Damaged, Errno::ABORTED));
        self.kernel.reset();
        Errno::ABORTED
    }

    /// Ends the stream because memory of the program that was already summed has vanished in the
    /// middle of an FPDU, whose octets are lost.
    pub(super) fn memory_gone(&self) -> Errno {
        self.state.end.set(Ended::new(Why::MemoryGone, Errno::ABORTED));
        self.kernel.reset();
        Errno::ABORTED
    }

    /// Returns the events for an error that a call will report: the kernel reports it only once.
    pub(super) fn fails_with(&self, error: Errno, ready: c_short, want: c_short) -> c_short {
        self.remember(error);
        let moving = POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM;
        match error {
            // Nothing is wrong with the stream: the program gets the kernel's events.
            Errno::INTERRUPTED | Errno::DEADLOCK if ready & want != 0 => ready & (want | POLLHUP),
            // These events were asked for by us and stay set. If the program got none, the wait
            // would spin.
            Errno::INTERRUPTED | Errno::DEADLOCK => moving & want | ready & POLLHUP,
            _ if self.is_closed_at_once() => AT_END & want,
            _ => AT_END & want | POLLERR | POLLHUP,
        }
    }

    /// Returns the errno of the stream's end if that has come while a receive met `error`, or TCP's
    /// end: what TCP says of a connection that this end has reset is no news.
    pub(super) fn unless_ended(&self, error: Option<Errno>) -> Option<Errno> {
        match (error, self.state.ended()) {
            (Some(Errno::WOULD_BLOCK | Errno::INTERRUPTED), _) => error,
            (_, Some(end)) if !end.why.is_of_startup() => Some(end.errno),
            _ => error,
        }
    }

    /// Notes that the caller is about to report the end of the stream, if that is its error.
    pub(super) fn note_told(&self) {
        if self.state.end.is_set() {
            self.state.end.first_told();
        }
    }

    /// Returns whether the failure of the startup was reported already. It is reported once, as TCP
    /// reports a failed connect.
    pub(super) fn was_told_of_startup(&self) -> bool {
        self.state.ended().is_some_and(|end| end.why.is_of_startup()) && !self.state.end.first_told()
    }

    /// Returns the result of a call that has moved `done` octets before it met an error, or the
    /// end.
    pub(super) fn so_far(&self, done: usize, error: Option<Errno>) -> Result<usize, Errno> {
        match error {
            Some(error) if done == 0 => Err(error),
            Some(error) => {
                self.remember(error);
                Ok(done)
            }
            None => Ok(done),
        }
    }

    /// Keeps an error for the next call. TCP reports an error once, and a call that has moved
    /// octets reports those.
    pub(super) fn remember(&self, error: Errno) {
        let comes_again = [
            Errno::WOULD_BLOCK,
            Errno::INTERRUPTED,
            Errno::BROKEN_PIPE,
            Errno::PLAIN,
            Errno::FAULT,
            Errno::NO_DESCRIPTOR,
            Errno::DEADLOCK,
        ];
        if !comes_again.contains(&error) && !self.state.end.is_set() {
            self.state.flow.pending.store(error.0, Ordering::Release);
        }
    }

    pub(super) fn tell_pending(&self) -> Result<(), Errno> {
        self.state.take_pending().map_or(Ok(()), Err)
    }
}

/// Adds the one Terminate, which has a queue of its own (RFC 5040 §5.4). Without room for it only
/// the FIN is sent.
fn owe_terminate(tx: &mut Tx, terminate: &TerminateRepr) {
    let message = OwnMessage::terminate(terminate);
    let _ = owe_fpdu(tx, &message.header, message.payload());
}

/// Octets dropped in one call, and the most such calls.
const DRAIN: usize = 64 * 1024;
const DRAINS: usize = 64;
/// Events of a connection that is over.
pub(super) const AT_END: c_short = POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLRDHUP;
