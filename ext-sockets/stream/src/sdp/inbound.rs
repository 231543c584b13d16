//! Messages of the peer: what the path of plain octets asks about them.

use std::sync::atomic::Ordering;

use rddp_ddp::OpenTagged;
use rddp_iwarp::{Delivered, Segment};
use rddp_rdmap::TerminateCode;
use rddp_sdp::wire::{Body, Flags, Message};

use super::counters::{COPIED, RECEIVED};
use super::{Adverts, Live, Look, Part, Wrong, live};
use crate::ended::{Ended, Why};
use crate::state::{AT_MARK, NOT_BLOCKED, Phase, Rx, SHORT};
use crate::sys::{Guard, Lease};
use crate::{Errno, Stream};

impl Stream<'_> {
    /// Returns a look at the connection of SDP as it is, if the stream has one. Its adverts are
    /// copied to `place`.
    #[inline]
    pub(crate) fn look_of<'s>(
        &self,
        rx: &mut Guard<'_, Rx>,
        place: &'s mut Option<Adverts>,
    ) -> Option<Look<'s>> {
        if !self.state.asked.is_sdp() {
            return None;
        }
        let Live { sdp, adverts } = live(rx);
        let adverts = adverts.map(|adverts| place.insert(*adverts));
        Some(Look::at(*sdp, adverts))
    }

    /// Returns the octets of the longest Send that is taken.
    #[inline]
    pub(crate) fn longest_send(&self, rx: &Rx) -> u32 {
        if self.state.asked.is_sdp() { rx.sdp.size } else { self.state.asked.max_send }
    }

    /// Returns how many octets of headers stand before the program's in the segment in front, of
    /// which the first `octets` have come. `None`: it has nothing for the program, or something
    /// else.
    #[inline]
    pub(crate) fn front_of_message(&self, rx: &Rx, segment: &Segment, octets: &[u8]) -> Option<usize> {
        if self.state.asked.is_sdp() {
            front(segment, octets).filter(|_| !rx.sdp.has_mark())
        } else {
            Some(0)
        }
    }

    /// Counts in a segment whose octets went to the program directly; `open` is the tagged message
    /// that is open behind it.
    #[inline]
    pub(crate) fn count_directly(
        &self,
        rx: &mut Guard<'_, Rx>,
        delivered: &Delivered,
        open: Option<OpenTagged>,
        front: &[u8],
    ) -> Result<(), Errno> {
        let mut place = None;
        let Some(mut look) = self.look_of(rx, &mut place) else { return Ok(()) };
        match look.delivered(delivered, open, front) {
            // What the peer says twice it says in the same way, or breaks the rules.
            Ok(Part::Octets { from }) if from == front.len() => {
                look.store(rx);
                Ok(())
            }
            Ok(_) => Err(self.breaks_sdp(Wrong::Format)),
            Err(wrong) => Err(self.breaks_sdp(wrong)),
        }
    }

    /// Stores the connection as it is after a batch of FPDUs, of which so many octets were copied.
    #[inline(never)]
    pub(crate) fn note_batch(&self, rx: &mut Guard<'_, Rx>, look: &Look<'_>, copied: usize) {
        look.store(rx);
        self.count(COPIED, copied);
    }

    /// Counts octets that the program has received, and answers the peer; `room` is what the
    /// program has for more.
    #[inline(never)]
    pub(crate) fn note_received(&self, rx: &mut Guard<'_, Rx>, octets: usize, room: usize) {
        self.count(RECEIVED, octets);
        self.answer_peer(rx, room);
    }

    /// Returns whether what has come is looked at although the program reads nothing: a send waits
    /// for a message of the peer, or all octets go by private buffers.
    #[inline]
    pub(crate) fn needs_what_comes(&self, rx: &Rx) -> bool {
        let asked = &self.state.asked;
        let blocked = self.state.blocked.load(Ordering::Acquire);
        let is_blocked = blocked & !AT_MARK != NOT_BLOCKED && blocked & SHORT == 0;
        let waits = rx.sdp.is_blocked() || rx.sdp.seeks == 1 || is_blocked;
        asked.is_sdp() && (asked.has_private_copies() || waits)
    }

    /// Notes that a receive has told of a reset, whichever call had met it.
    pub(crate) fn reset_is_told(&self) {
        if self.state.asked.is_sdp()
            && let Ok(mut rx) = self.lock_rx()
        {
            rx.sdp.forget_lost();
        }
    }

    /// Ends the connection because the peer has broken a rule of SDP, or has aborted it.
    pub(crate) fn breaks_sdp(&self, wrong: Wrong) -> Errno {
        let (why, errno) = match wrong {
            Wrong::Abort => (Why::SdpAborted, Errno::RESET),
            _ => (Why::SdpFault, Errno::PROTOCOL),
        };
        self.state.end.set(Ended { why, errno, code: TerminateCode(wrong as u16) });
        self.kernel.reset();
        errno
    }

    /// Reads from adverts, and sends the control messages that have become due by a receive:
    /// credits, answers.
    ///
    /// `room` is what the caller has for more octets.
    pub(crate) fn answer_peer(&self, rx: &mut Guard<'_, Rx>, room: usize) {
        let reads = rx.sdp.has_adverts == 1 && self.begin_reads(rx, room);
        if self.state.phase() == Phase::Framed && self.state.may_send.load(Ordering::Acquire) {
            let ends = rx.sdp.is_done() && rx.sdp.fin_sent == 0;
            let owes = rx.sdp.has_adverts == 1 && live(rx).owes_octets();
            if live(rx).control_due() || ends || reads || owes {
                let paid = self.lock_tx().and_then(|mut tx| self.pay_messages(rx, &mut tx));
                if let Err(error) = paid {
                    rx.sdp.note_lost(error);
                }
            }
        }
        if rx.sdp.has_adverts == 0 && rx.tables != Lease::NONE && rx.held.is_empty() {
            self.spare_tables(rx);
        }
        let had_adverts = rx.sdp.has_adverts == 1;
        if had_adverts {
            rx.sdp.changing = 1;
            self.settle_adverts(rx);
            rx.sdp.changing = 0;
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

/// Returns whether so many octets are no more than those that came with an advert, and the octets
/// behind them are being Read.
#[cold]
pub(crate) fn is_start(rx: &mut Guard<'_, Rx>, octets: usize) -> bool {
    let is_inline = (1..=rx.sdp.inline as usize).contains(&octets);
    is_inline && live(rx).machine().reads_open()
}

#[inline(never)]
fn front(segment: &Segment, octets: &[u8]) -> Option<usize> {
    let rddp_ddp::Header::Untagged(header) = segment.header else { return Some(0) };
    if header.mo > 0 {
        return Some(0);
    }
    let message = Message::parse(octets).ok()?;
    let has_octets = segment.payload_len > message.header_len();
    let is_urgent = message.header.flags.contains(Flags::OOB_PRES);
    (message.body == Body::Data && has_octets && !is_urgent).then_some(message.header_len())
}
