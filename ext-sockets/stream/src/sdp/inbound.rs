//! Messages of the peer: what the path of plain octets asks about them.

use std::sync::atomic::Ordering;

use rddp_rdmap::TerminateCode;
use rddp_sdp::wire::Mid;

use super::counters::RECEIVED;
use super::part::{AT_MARK, NOT_BLOCKED, SHORT};
use super::{Wrong, live};
use crate::Errno;
use crate::base::Base;
use crate::ended::{Ended, Why};
use crate::rx::{HEAD, Pull};
use crate::sdp::Stream;
use crate::sink::Sink;
use crate::state::{Phase, Rx};
use crate::sys::{Guard, Lease};

impl Stream<'_> {
    /// Copies octets without taking them, those in the queue first.
    pub(super) fn glimpse_messages(
        &self,
        rx: &mut Guard<'_, Rx>,
        sink: &mut Sink<'_, '_>,
    ) -> Result<Pull, Errno> {
        if rx.sdp.has_mark() && rx.sdp.has_stub() && rx.left == 0 {
            self.fetch_behind(rx)?;
        }
        if self.show_held(rx, sink)? {
            return Ok(Pull::Some);
        }
        let shown = self.glimpse_octets(rx, sink);
        self.answer_peer(rx, 0);
        shown
    }

    /// Looks at the first `seen` octets in memory, as [`absorbed_octets`](Self::absorbed_octets)
    /// does.
    pub(super) fn absorbed_messages(
        &self,
        rx: &mut Guard<'_, Rx>,
        seen: usize,
    ) -> Result<Option<usize>, Errno> {
        if may_bring_advert(rx) {
            // The octets can be looked at once only.
            self.zero_copy().make_tables(rx);
        }
        let absorbed = self.absorbed_octets(rx, seen);
        if absorbed == Ok(None) {
            self.zero_copy().spare_tables(rx);
        }
        absorbed
    }

    /// Counts octets that the program has received, and answers the peer; `room` is what the
    /// program has for more.
    #[inline(never)]
    pub(crate) fn note_received(&self, rx: &mut Guard<'_, Rx>, octets: usize, room: usize) {
        self.state.sdp.count(RECEIVED, octets);
        self.answer_peer(rx, room);
    }

    /// Reads from adverts, and sends the control messages that have become due by a receive:
    /// credits, answers.
    ///
    /// `room` is what the caller has for more octets.
    pub(crate) fn answer_peer(&self, rx: &mut Guard<'_, Rx>, room: usize) {
        let reads = rx.sdp.has_adverts == 1 && self.zero_copy().begin_reads(rx, room);
        if self.state.phase() == Phase::Framed && self.state.may_send() {
            let ends = rx.sdp.is_done() && rx.sdp.end.fin_sent == 0;
            let owes = rx.sdp.has_adverts == 1 && live(rx).owes_octets();
            if live(rx).control_due() || ends || reads || owes {
                let paid = self.lock_tx().and_then(|mut tx| self.pay_messages(rx, &mut tx));
                if let Err(error) = paid {
                    rx.sdp.note_lost(error);
                }
            }
        }
        if rx.sdp.has_adverts == 0 && rx.tables != Lease::NONE && rx.held.is_empty() {
            self.zero_copy().spare_tables(rx);
        }
        let had_adverts = rx.sdp.has_adverts == 1;
        if had_adverts {
            rx.set_changing(true);
            self.zero_copy().settle_adverts(rx);
            rx.set_changing(false);
        }
        // A kick is made under the lock under which octets are given to TCP.
        let _tx = self.state.sleepers.any().then(|| self.lock_tx());
        if had_adverts {
            // What was taken may be for the call whose memory the peer reads.
            self.kick();
        }
        self.note_blocked(rx);
    }

    /// Gives TCP the Read Requests that are owed to it.
    pub(crate) fn pay_reads(&self, rx: &mut Guard<'_, Rx>) -> Result<(), Errno> {
        let mut tx = self.lock_tx()?;
        self.pay_messages(rx, &mut tx).map(drop)
    }
}

/// Returns whether what has come is looked at although the program reads nothing: a send waits for
/// a message of the peer, or all octets go by private buffers.
#[inline]
pub(super) fn needs_what_comes(base: &Base<'_>, rx: &Rx) -> bool {
    let blocked = base.state.sdp.blocked.load(Ordering::Acquire);
    let is_blocked = blocked & !AT_MARK != NOT_BLOCKED && blocked & SHORT == 0;
    let waits = rx.sdp.is_blocked() || rx.sdp.queue.seeks == 1 || is_blocked;
    base.state.asked.format.has_private_copies() || waits
}

/// Ends the connection because the peer has broken a rule of SDP, or has aborted it.
pub(super) fn breaks_sdp(base: &Base<'_>, wrong: Wrong) -> Errno {
    let (why, errno) = match wrong {
        Wrong::Abort => (Why::SdpAborted, Errno::RESET),
        _ => (Why::SdpFault, Errno::PROTOCOL),
    };
    base.state.end.set(Ended { why, errno, code: TerminateCode(wrong as u16) });
    base.kernel.reset();
    errno
}

/// Returns whether so many octets are no more than those that came with an advert, and the octets
/// behind them are being Read.
#[cold]
pub(crate) fn is_start(rx: &mut Guard<'_, Rx>, octets: usize) -> bool {
    let is_inline = (1..=rx.sdp.message.inline as usize).contains(&octets);
    is_inline && live(rx).machine().reads_open()
}

/// Returns whether the FPDU whose first octets are in memory may be a message with an advert.
fn may_bring_advert(rx: &Rx) -> bool {
    let is_advert = |mid| [Mid::SrcAvail as u8, Mid::SinkAvail as u8].contains(mid);
    // A marker may stand before the MID.
    rx.terms.markers || rx.kept().get(HEAD).is_none_or(is_advert)
}
