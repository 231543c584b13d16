//! Octets that are owed to TCP: the rest of FPDUs that it has begun to take, and whole FPDUs that
//! wait for room.
//!
//! What a write has counted is with TCP, or owed. The next call on the socket, reading or writing,
//! of any process, sends it. The rest ends its TCP segment, so that the next FPDU begins one.

use rddp_ddp::Header;
use rddp_iwarp::rest_ends_record;
use rddp_octets::{Message, Outgoing, Plain};

use super::Errno;
use super::base::Base;
use super::state::{Phase, Tx};
use super::sys::Direction;

impl Base<'_> {
    /// Gives TCP what a stream of plain octets owes to it, without waiting. Returns whether that
    /// was all.
    pub(super) fn pay_and_frame(&self, tx: &mut Tx) -> Result<bool, Errno> {
        let phase = self.state.phase();
        let frames = phase == Phase::Framed && self.state.may_send();
        // The RTR goes in one segment with the first octets, which are framed behind it.
        let more = if frames && !tx.early().is_empty() { libc::MSG_MORE } else { 0 };
        let mut paid = self.pay_octets(tx, more);
        if paid == Ok(true) && frames {
            paid = self.frame_early(tx, &mut Plain);
        }
        if phase == Phase::Ended {
            tx.drop_early();
        }
        let all = paid == Ok(true) && tx.early().is_empty();
        // A FIN before the initiator's first FPDU would leave the responder without permission to
        // send.
        if all && tx.fin_due && !tx.fin_sent && self.state.phase() != Phase::Starting {
            tx.fin_sent = true;
            // The call fails only when there is no connection any more.
            let _ = self.kernel.shut(Direction::Send);
        }
        self.note_owed(tx);
        paid
    }

    /// Gives TCP what a stream that has ended owes to it.
    pub(super) fn pay_at_end(&self, tx: &mut Tx) -> Result<bool, Errno> {
        let paid = self.pay_octets(tx, 0);
        tx.drop_early();
        if paid == Ok(true) && tx.fin_due && !tx.fin_sent {
            tx.fin_sent = true;
            // The call fails only when there is no connection any more.
            let _ = self.kernel.shut(Direction::Send);
        }
        self.note_owed(tx);
        paid
    }

    /// Gives TCP the octets that are owed to it. Returns whether those were all.
    pub(super) fn pay_octets(&self, tx: &mut Tx, flags: std::ffi::c_int) -> Result<bool, Errno> {
        while !tx.owed().is_empty() {
            // The next train begins a segment (RFC 5044 §5.1).
            let ends = rest_ends_record(tx.emss as usize, tx.unaligned as usize);
            let flags = if ends { libc::MSG_EOR } else { flags };
            tx.set_moving(true);
            let took = self.kernel.send(&[std::io::IoSlice::new(tx.owed())], flags);
            let all = tx.owed().len();
            // `writev`, the only call of a confined process, may have waited for room.
            let later = matches!(took, Err(Errno::WOULD_BLOCK | Errno::INTERRUPTED));
            match took {
                Ok(count) => tx.paid(count),
                Err(_) if later => {}
                // TCP takes nothing more from any process.
                Err(_) => tx.paid(all),
            }
            tx.set_moving(false);
            match took {
                Ok(_) => {}
                Err(_) if later => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Adds one FPDU to what is owed. `false`: there is no room.
#[must_use]
pub(super) fn owe_fpdu(tx: &mut Tx, header: &Header, payload: &[u8]) -> bool {
    owe_next(tx, |out, room| out.emit(header, payload, room))
}

/// Adds a Send of one FPDU, for which there is room.
pub(super) fn owe_send(tx: &mut Tx, octets: &[u8]) {
    let room = owe_next(tx, |out, room| out.send(octets, room));
    debug_assert!(room, "there is room for a short message");
}

/// Adds the FPDU that ends a message, with some more of its octets. There is room for it behind the
/// rest of another.
pub(super) fn owe_end(tx: &mut Tx, message: Message, octets: &[u8]) {
    let room = owe_next(tx, |out, room| out.end(message, octets, room));
    debug_assert!(room, "there is room for the rest of an FPDU and this one");
}

/// Adds the FPDU that `emit` writes to the front of its room.
fn owe_next(tx: &mut Tx, emit: impl FnOnce(&mut Outgoing, &mut [u8]) -> Option<usize>) -> bool {
    let mut out = tx.out;
    // A local buffer: a signal handler may be sending, in the middle of `malloc`.
    let mut room = [0; LONGEST];
    let Some(fpdu) = emit(&mut out, &mut room).map(|len| &room[..len]) else { return false };
    tx.change(|tx| {
        let owed = tx.owe(fpdu);
        if owed {
            tx.out = out;
            if tx.unaligned > 0 {
                tx.unaligned = tx.unaligned.saturating_add(fpdu.len() as u32);
            }
        }
        owed
    })
}

/// At least as long as any FPDU that is owed whole: the longest ends a message, with its last 1024
/// octets.
const LONGEST: usize = 1280;
