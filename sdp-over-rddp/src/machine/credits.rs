//! Credits: how many messages each end may send.
//!
//! A message takes one private buffer of its receiver, who tells in `Bufs` how many are free and in
//! `MSeqAck` up to which message that is true. A message that finds no buffer ends the connection,
//! so credits are a hard rule.

use super::conn::flag;
use super::{Blocked, Core, Machine};

/// Returns the messages that may be sent: the buffers free when `mseq_ack` was received, less the
/// messages since.
pub(super) fn credits(bufs: u32, mseq_ack: u32, next_mseq: u32) -> u32 {
    bufs.saturating_sub(next_mseq.wrapping_sub(1).wrapping_sub(mseq_ack))
}

/// Returns whether a message with payload or a `SrcAvail` may go: two credits stay for control.
pub(super) fn may_send_payload(credits: u32) -> bool {
    credits >= 3
}

/// Returns whether a message without payload may go: the last credit only goes for new ones.
pub(super) fn may_send_control(credits: u32, gives_credits: bool) -> bool {
    credits >= 2 || credits == 1 && gives_credits
}

impl Core {
    /// Returns the messages that the peer has buffers for.
    #[must_use]
    #[inline]
    pub fn credits(&self) -> u32 {
        credits(self.peer_bufs, self.acked, self.next_mseq)
    }

    /// Returns whether they suffice for a Data.
    #[must_use]
    #[inline]
    pub fn has_credits_for_data(&self) -> bool {
        may_send_payload(self.credits())
    }
}

impl Machine<'_> {
    /// Returns the messages that the peer has buffers for.
    #[must_use]
    pub fn credits(&self) -> u32 {
        self.core.credits()
    }

    /// Returns the messages with payload that discarded no advert: those sent, and those received.
    /// Each is the same number at the other end when nothing is under way.
    #[must_use]
    pub fn non_discards(&self) -> (u32, u32) {
        (self.core.sent_non_discards, self.core.received_non_discards)
    }

    /// Returns our buffers that hold no message.
    #[must_use]
    pub fn free_bufs(&self) -> u32 {
        self.core.bufs.saturating_sub(self.core.taken_bufs)
    }

    /// Tells that the last octet of a message with payload has been taken, so that its buffer may
    /// hold another message (with a device: that it has been posted again).
    pub fn buffer_freed(&mut self) {
        self.core.taken_bufs = self.core.taken_bufs.saturating_sub(1);
    }

    /// Tells that octets wait for credits, before the binding sleeps on that. Where the peer has so
    /// few buffers that it owes no update, one of ours becomes due that it will answer.
    pub fn wait_for_credits(&mut self) {
        self.core.set(flag::WANTS_CREDITS, true);
    }

    /// Makes an update of credits due, whatever it gives. Where the side that connects speaks
    /// first, this is what it says when its program has nothing to say yet.
    pub fn update_now(&mut self) {
        self.core.set_due(super::conn::due::UPDATE, true);
    }

    /// Returns whether an update of credits is due because of what it gives to the peer.
    #[must_use]
    pub fn update_due(&self) -> bool {
        let new = self.new_credits();
        if new == 0 || self.core.is(flag::ABORTED) {
            return false;
        }
        // The peer may be down to what it keeps for control. An update of its own is answered only
        // when a second comes: its buffer is all that there is to give.
        let left = self.core.shown.wrapping_sub(self.core.received).cast_signed();
        let only_an_update = self.core.is(flag::LAST_WAS_UPDATE) && new == 1;
        if left < 2 || left == 2 && !only_an_update {
            return true;
        }
        // A peer that has sent its last octet needs credits for control alone, and its transport
        // may be gone.
        !self.core.is(flag::DISCONN_RECEIVED) && new.saturating_mul(2) >= self.core.bufs
    }

    /// Returns whether all that is due is an update that answers one of the peer's, and gives no
    /// more than the buffer which that took; or one that asks for such an answer. Two ends that are
    /// full have an answer to every answer, and two that ask at once have always asked in vain, so
    /// a binding paces them; it does not leave them out, since an end with a single credit could
    /// never send a cancel.
    #[must_use]
    pub fn update_may_wait(&self) -> bool {
        let is_answer = self.core.is(flag::LAST_WAS_UPDATE) && self.new_credits() == 1;
        let may_wait = is_answer || self.must_poke();
        may_wait && !self.core.is_due(super::conn::due::UPDATE) && self.only_update_due()
    }

    /// Returns whether an update is the only way to a credit: the peer owes no answer to our own
    /// update, which took one of the three that Data needs.
    pub(super) fn must_poke(&self) -> bool {
        let unanswered = self.core.next_mseq.wrapping_sub(1).wrapping_sub(self.core.acked);
        self.core.is(flag::WANTS_CREDITS)
            && self.core.is(flag::LAST_SENT_UPDATE)
            && self.core.peer_bufs == 3
            && unanswered == 1
    }

    pub(super) fn need_payload_credits(&self) -> Result<(), Blocked> {
        if self.core.has_credits_for_data() { Ok(()) } else { Err(Blocked::Credits) }
    }

    pub(super) fn need_control_credits(&self) -> Result<(), Blocked> {
        if may_send_control(self.credits(), self.new_credits() > 0) { Ok(()) } else { Err(Blocked::Credits) }
    }

    /// Returns what a message now acknowledges: all that was received, except that a cancel waits
    /// for Reads.
    pub(super) fn mseq_ack(&self) -> u32 {
        if self.core.is(flag::ACK_HELD) { self.core.held_ack } else { self.core.received }
    }

    /// Returns the highest number that the peer may send, once it has been told.
    pub(super) fn limit(&self) -> u32 {
        self.mseq_ack().wrapping_add(self.free_bufs())
    }

    /// Returns the credits that a message now would give to the peer.
    fn new_credits(&self) -> u32 {
        let new = self.limit().wrapping_sub(self.core.shown).cast_signed();
        new.max(0).cast_unsigned()
    }
}
