//! How a stream ends: the Terminate that the peer is owed, and what the program is told (RFC 5040 §7.1, RFC 5044 §8).

use std::sync::atomic::Ordering;

use rddp_iwarp::{OwnMessage, Termination, rest_ends_record};
use rddp_mpa::{Framer, Framing, MpaError};
use rddp_rdmap::{Fault, TerminateCode, TerminateRepr};

use super::ended::{Ended, Why};
use super::inbound::Trouble;
use super::room::{Direction, Guard, Kernel};
use super::state::{Phase, Rx, Tx};
use super::{Errno, Stream};

impl Stream<'_> {
    /// The peer broke the protocol. What the program is told.
    pub(super) fn fault(&self, rx: &mut Guard<'_, Rx>, trouble: &Trouble) -> Errno {
        let code = trouble.fault.code();
        // RFC 5044 §7.1.2 r4: before an FPDU of the initiator's has been found good nothing may be sent, a Terminate
        // neither. A fault that DDP or RDMAP found is about an FPDU that was good.
        let may_send = self.state.may_send.load(Ordering::Acquire) || !matches!(trouble.fault, Fault::Mpa(_));
        let terminate = Termination::of(&trouble.fault, trouble.offending.as_ref(), may_send).terminate();
        self.end(rx, Ended { why: Why::Fault, errno: Errno::RESET, code }, terminate.as_ref())
    }

    /// The peer sent its Terminate, which is never answered by one (RFC 5040 §7.1).
    pub(super) fn terminated(&self, rx: &mut Guard<'_, Rx>, code: TerminateCode) -> Errno {
        self.end(rx, Ended { why: Why::Terminated, errno: Errno::RESET, code }, None)
    }

    /// The peer's FIN came inside an FPDU or a message: no octet of it passes for complete.
    pub(super) fn truncated(&self, rx: &mut Guard<'_, Rx>) -> Errno {
        let code = Fault::mpa(MpaError::Closed.code()).code();
        self.end(rx, Ended { why: Why::Truncated, errno: Errno::RESET, code }, None)
    }

    /// Ends the stream: Terminate, FIN, and whatever still comes is dropped, so that no reset of ours overtakes them.
    fn end(&self, rx: &mut Guard<'_, Rx>, end: Ended, terminate: Option<&TerminateRepr>) -> Errno {
        self.state.end.set(end);
        // Nothing below can change what the program is told.
        if let Ok(mut tx) = self.lock_tx() {
            if let Some(terminate) = terminate {
                owe_terminate(&mut tx, terminate);
            }
            tx.fin_due = true;
            let _ = self.pay(&mut tx);
        }
        rx.left = 0;
        let _ = self.wake_at(rx, 1);
        self.drain();
        end.errno
    }

    /// Drops what has come, within bounds.
    pub(super) fn drain(&self) {
        for _ in 0..DRAINS {
            match self.kernel.discard(DRAIN) {
                Ok(count) if count > 0 => {}
                _ => break,
            }
        }
    }

    /// Ends a startup that failed: RFC 5044 §7.1.2 closes TCP. The descriptor stays the program's, so TCP is reset.
    pub(super) fn give_up(&self, why: Why, errno: Errno, code: MpaError) -> Errno {
        self.state.end.set(Ended { why, errno, code: Fault::mpa(code.code()).code() });
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
            (tx.crc, tx.markers) = (framing.crc, framing.markers);
        }
        let end = Ended { why: Why::Startup, errno: Errno::PROTOCOL, code: terminate.code };
        self.end(rx, end, Some(terminate))
    }

    /// A process died with octets half moved: nobody can tell where in the stream it stopped.
    pub(super) fn owner_died(&self) -> Errno {
        self.state.end.set(Ended::new(Why::OwnerDied, Errno::ABORTED));
        self.kernel.reset();
        Errno::ABORTED
    }

    /// Memory of the program's that has been looked at is gone, in the middle of an FPDU: nobody
    /// can tell its octets.
    pub(super) fn memory_gone(&self) -> Errno {
        self.state.end.set(Ended::new(Why::MemoryGone, Errno::ABORTED));
        self.kernel.reset();
        Errno::ABORTED
    }

    /// Takes `count` octets out of the kernel, which has them, by `take`. Until that is noted the state is not true.
    pub(super) fn moving(
        &self,
        rx: &mut Rx,
        count: usize,
        take: impl FnOnce(&Kernel<'_>) -> Result<usize, Errno>,
    ) -> Result<(), Errno> {
        match self.moving_some(rx, take) {
            Ok(took) if took == count => Ok(()),
            // Somebody reads the socket behind our back.
            _ => Err(self.owner_died()),
        }
    }

    /// Takes octets into memory of the program's, where the kernel stops if it is not there.
    /// Returns how many it took.
    pub(super) fn moving_some(
        &self,
        rx: &mut Rx,
        take: impl FnOnce(&Kernel<'_>) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        rx.moving = true;
        let took = take(&self.kernel);
        rx.moving = false;
        match took {
            Err(Errno::FAULT) => Ok(0),
            Err(_) => Err(self.owner_died()),
            took => took,
        }
    }

    /// Who gives a lock back has nothing on the move: if something is, its last owner died.
    pub(super) fn lock_rx(&self) -> Result<Guard<'_, Rx>, Errno> {
        let rx = self.state.rx.lock()?;
        if rx.moving || !rx.is_sound() { Err(self.owner_died()) } else { Ok(rx) }
    }

    pub(super) fn lock_tx(&self) -> Result<Guard<'_, Tx>, Errno> {
        let tx = self.state.tx.lock()?;
        let half = tx.moving || tx.framing || tx.changing.load(Ordering::Relaxed);
        if half || !tx.is_sound() { Err(self.owner_died()) } else { Ok(tx) }
    }

    /// There is leave to send: what has waited for it goes out.
    pub(super) fn may_send_now(&self) {
        if self.state.may_send.load(Ordering::Acquire) {
            return;
        }
        self.state.may_send.store(true, Ordering::Release);
        // Under the lock, so that a call that found no leave a moment ago has noted what it kept.
        let paid = self.lock_tx().and_then(|mut tx| {
            self.shut_what_was_shut_early();
            self.pay(&mut tx)
        });
        if let Err(error) = paid {
            self.remember(error);
        }
    }

    /// Gives TCP what is owed to it, without waiting. Whether that was all.
    pub(super) fn pay(&self, tx: &mut Tx) -> Result<bool, Errno> {
        let phase = self.state.phase();
        let frames = phase == Phase::Framed && self.state.may_send.load(Ordering::Acquire);
        // In one segment with what is framed behind it: the RTR goes with the first octets.
        let more = if frames && !tx.early().is_empty() { libc::MSG_MORE } else { 0 };
        let mut paid = self.pay_octets(tx, more);
        if paid == Ok(true) && frames {
            paid = self.frame_early(tx);
        }
        if phase == Phase::Ended {
            tx.drop_early();
        }
        let all = paid == Ok(true) && tx.early().is_empty();
        // A FIN before the initiator's first FPDU would leave the responder without leave to send.
        if all && tx.fin_due && !tx.fin_sent && self.state.phase() != Phase::Starting {
            tx.fin_sent = true;
            // It fails only when there is no connection any more.
            let _ = self.kernel.shut(Direction::Send);
        }
        self.state.note_owed(tx);
        paid
    }

    fn pay_octets(&self, tx: &mut Tx, flags: std::ffi::c_int) -> Result<bool, Errno> {
        while !tx.owed().is_empty() {
            // RFC 5044 §5.1: the next train begins a segment.
            let ends = rest_ends_record(tx.emss as usize, tx.unaligned as usize);
            let flags = if ends { libc::MSG_EOR } else { flags };
            tx.moving = true;
            let took = self.kernel.send(&[std::io::IoSlice::new(tx.owed())], flags);
            let all = tx.owed().len();
            // `writev`, which is all that a confined process has, may have waited for room.
            let later = matches!(took, Err(Errno::WOULD_BLOCK | Errno::INTERRUPTED));
            match took {
                Ok(count) => tx.paid(count),
                Err(_) if later => {}
                // TCP takes no more from anyone.
                Err(_) => tx.paid(all),
            }
            tx.moving = false;
            match took {
                Ok(_) => {}
                Err(_) if later => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// RFC 5040 §5.4: one Terminate, on a queue of its own, and nothing behind it. Without room for it the FIN has to do.
fn owe_terminate(tx: &mut Tx, terminate: &TerminateRepr) {
    let message = OwnMessage::terminate(terminate);
    let _ = owe_fpdu(tx, &message.header, message.payload());
}

/// Promises TCP one FPDU. `false`: there is no room.
#[must_use]
pub(super) fn owe_fpdu(tx: &mut Tx, header: &rddp_ddp::Header, payload: &[u8]) -> bool {
    let mut framer = tx.framer();
    let header = header.octets();
    // Not from the heap: a signal handler may be what sends, in the middle of `malloc`.
    let mut room = [0; LONGEST];
    let Some(out) = room.get_mut(..framer.fpdu_len(header.len() + payload.len())) else { return false };
    let fill = |offset: usize, dst: &mut [u8]| dst.copy_from_slice(&payload[offset..offset + dst.len()]);
    framer.emit_into(&header, payload.len(), fill, out);
    tx.change(|tx| {
        let owed = tx.owe(out);
        if owed {
            tx.position = framer.position();
            if tx.unaligned > 0 {
                tx.unaligned = tx.unaligned.saturating_add(out.len() as u32);
            }
        }
        owed
    })
}

impl Tx {
    pub(super) fn framer(&self) -> Framer {
        let framing = Framing { crc: self.crc, markers: self.markers };
        Framer::at(framing, self.position & !3)
    }
}

/// No shorter than any FPDU that is promised whole: the longest ends a message, with its last 1024
/// octets.
const LONGEST: usize = 1280;
/// Octets dropped in one call, and how many calls at most.
const DRAIN: usize = 64 * 1024;
const DRAINS: usize = 64;
