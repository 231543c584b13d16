//! Messages of the peer: what the path of plain octets asks about them.

use std::sync::atomic::Ordering;

use rddp_iwarp::Segment;
use rddp_rdmap::TerminateCode;
use rddp_sdp::wire::{Body, Flags, Message};

use super::counters::{COPIED, RECEIVED};
use super::{Part, Shared, Wrong};
use crate::ended::{Ended, Why};
use crate::state::{Phase, Rx};
use crate::sys::Guard;
use crate::{Errno, Stream};

impl Stream<'_> {
    /// Returns the connection of SDP as it is, if the stream has one.
    #[inline]
    pub(crate) fn sdp_of(&self, rx: &Rx) -> Option<Shared> {
        if self.state.asked.is_sdp() { Some(rx.sdp) } else { None }
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

    /// Counts in a segment whose octets went to the program directly.
    #[inline]
    pub(crate) fn count_directly(&self, rx: &mut Rx, segment: &Segment, front: &[u8]) -> Result<(), Errno> {
        if self.state.asked.is_sdp() { self.count_message(rx, segment, front) } else { Ok(()) }
    }

    #[inline(never)]
    fn count_message(&self, rx: &mut Rx, segment: &Segment, front: &[u8]) -> Result<(), Errno> {
        let mut sdp = rx.sdp;
        match sdp.segment(segment, front) {
            // What the peer says twice it says in the same way, or breaks the rules.
            Ok(Part::Octets { from }) if from == front.len() => {
                rx.store_sdp(&sdp);
                Ok(())
            }
            Ok(_) => Err(self.breaks_sdp(Wrong::Format)),
            Err(wrong) => Err(self.breaks_sdp(wrong)),
        }
    }

    /// Stores the connection as it is after a batch of FPDUs, of which so many octets were copied.
    #[inline(never)]
    pub(crate) fn note_batch(&self, rx: &mut Rx, sdp: &Shared, copied: usize) {
        rx.store_sdp(sdp);
        self.count(COPIED, copied);
    }

    /// Counts octets that the program has received, and answers the peer.
    #[inline(never)]
    pub(crate) fn note_received(&self, rx: &mut Guard<'_, Rx>, octets: usize) {
        self.count(RECEIVED, octets);
        self.answer_peer(rx);
    }

    /// Returns whether what has come is looked at although the program reads nothing: a send waits
    /// for a message of the peer, or all octets go by private buffers.
    #[inline]
    pub(crate) fn needs_what_comes(&self, rx: &Rx) -> bool {
        let asked = &self.state.asked;
        asked.is_sdp() && (asked.has_private_copies() || rx.sdp.is_blocked() || rx.sdp.seeks == 1)
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

    /// Sends the control messages that have become due by a receive: credits, answers.
    #[inline(never)]
    pub(crate) fn answer_peer(&self, rx: &mut Guard<'_, Rx>) {
        if self.state.phase() == Phase::Framed && self.state.may_send.load(Ordering::Acquire) {
            let ends = rx.sdp.is_done() && rx.sdp.fin_sent == 0;
            if rx.sdp.control_due() || ends {
                let paid = self.lock_tx().and_then(|mut tx| self.pay_messages(rx, &mut tx));
                if let Err(error) = paid {
                    rx.sdp.note_lost(error);
                }
            }
        }
        // A kick is made under the lock under which octets are given to TCP.
        let _tx = self.state.sleepers.any().then(|| self.lock_tx());
        self.note_blocked(rx);
    }
}

#[inline(never)]
fn front(segment: &Segment, octets: &[u8]) -> Option<usize> {
    let rddp_ddp::Header::Untagged(header) = segment.header else { return None };
    if header.mo > 0 {
        return Some(0);
    }
    let message = Message::parse(octets).ok()?;
    let has_octets = segment.payload_len > message.header_len();
    let is_urgent = message.header.flags.contains(Flags::OOB_PRES);
    (message.body == Body::Data && has_octets && !is_urgent).then_some(message.header_len())
}
