//! Messages of the peer: what the path of plain octets asks about them.

use std::sync::atomic::Ordering;

use rddp_ddp::OpenTagged;
use rddp_iwarp::{Delivered, Segment};
use rddp_rdmap::TerminateCode;
use rddp_sdp::wire::{Body, Message};

use super::{Adverts, Live, Look, Part, Wrong, live};
use crate::ended::{Ended, Why};
use crate::state::{NOT_BLOCKED, Phase, Rx};
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
    pub(crate) fn front_of_message(&self, segment: &Segment, octets: &[u8]) -> Option<usize> {
        if self.state.asked.is_sdp() { front(segment, octets) } else { Some(0) }
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

    /// Returns whether what has come is looked at although the program reads nothing: a send waits
    /// for a message of the peer, or all octets go by private buffers.
    #[inline]
    pub(crate) fn needs_what_comes(&self, rx: &Rx) -> bool {
        let asked = &self.state.asked;
        let waits = rx.sdp.is_blocked() || self.state.blocked.load(Ordering::Acquire) != NOT_BLOCKED;
        asked.is_sdp() && (asked.has_private_copies() || waits)
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
                // The octets that were received count; the next call meets the error.
                if let Err(error) = paid {
                    self.remember(error);
                }
            }
        }
        if rx.sdp.has_adverts == 0 && rx.tables != Lease::NONE && rx.held.is_empty() {
            self.spare_tables(rx);
        }
        if rx.sdp.has_adverts == 1 {
            rx.sdp.changing = 1;
            self.settle_adverts(rx);
            rx.sdp.changing = 0;
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

#[inline(never)]
fn front(segment: &Segment, octets: &[u8]) -> Option<usize> {
    let rddp_ddp::Header::Untagged(header) = segment.header else { return Some(0) };
    if header.mo > 0 {
        return Some(0);
    }
    let message = Message::parse(octets).ok()?;
    let has_octets = segment.payload_len > message.header_len();
    (message.body == Body::Data && has_octets).then_some(message.header_len())
}
