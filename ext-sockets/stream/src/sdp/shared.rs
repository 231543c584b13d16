//! The connection of SDP that all holders of the socket share.

mod parts;

use std::mem::offset_of;
use std::num::NonZeroU8;

use rddp_mpa::CRC_LEN;
use rddp_sdp::machine::{Blocked, Config, Core, Machine};
use rddp_sdp::wire::HEADER_LEN;

use self::parts::{Answer, Behind, Credits, End, Message, Queue, UrgentOctet};
use super::{SdpInfo, Wrong};
use crate::Errno;
use crate::fields::{Structure, fields};
use crate::locks::set;
use crate::state::Rx;

/// The connection, under the lock of [`Rx`]. Integers alone, any value of which is one; zeros
/// before the startup.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    pub(super) core: Core,
    /// Octets of a private receive buffer of this end, the base header included; 0: not chosen yet.
    pub(super) size: u32,
    pub(super) bufs: u32,
    /// 1 while the counts are changed by several stores.
    pub(super) changing: u32,
    /// 1 while there are adverts, Reads or Requests in the block of tables.
    pub(crate) has_adverts: u32,
    /// MSN of this end's newest Read Request.
    pub(super) read_msn: u32,
    pub(super) message: Message,
    pub(super) end: End,
    pub(super) urgent: UrgentOctet,
    pub(super) answer: Answer,
    pub(super) queue: Queue,
    pub(super) behind: Behind,
    pub(super) credits: Credits,
}

impl Shared {
    /// The structures of a connection, by their offsets in it.
    pub(crate) const STRUCTURES: [Structure; 9] = [
        (
            0,
            fields!(Shared: core, size, bufs, changing, has_adverts, read_msn, message, end, urgent, answer,
            queue, behind, credits),
        ),
        (offset_of!(Self, core), Core::FIELDS),
        (offset_of!(Self, message), Message::FIELDS),
        (offset_of!(Self, end), End::FIELDS),
        (offset_of!(Self, urgent), UrgentOctet::FIELDS),
        (offset_of!(Self, answer), Answer::FIELDS),
        (offset_of!(Self, queue), Queue::FIELDS),
        (offset_of!(Self, behind), Behind::FIELDS),
        (offset_of!(Self, credits), Credits::FIELDS),
    ];

    /// Begins with both ends as the startup left them.
    pub(super) fn begin(&mut self, peer_bufs: u16, peer_size: u32, peer_adverts: u8) -> Result<(), Wrong> {
        let config = Config {
            bufs: self.bufs as u16,
            buf_size: self.size,
            send_size: u32::MAX,
            max_adverts: ADVERTS.get(),
            peer_bufs,
            peer_buf_size: peer_size,
            // An end that takes none only keeps this one from making some.
            peer_max_adverts: peer_adverts.max(1),
        };
        self.core = Core::new(&config).map_err(|_| Wrong::Format)?;
        self.credits.peer_bufs = peer_bufs.into();
        self.credits.low = if peer_bufs >= MANY { u32::from(peer_bufs) / 8 } else { 0 };
        Ok(())
    }

    pub(super) fn machine(&mut self) -> Machine<'_> {
        Machine::new(&mut self.core, None)
    }

    /// Notes that the octets of the last segment taken are read: with the last one of a message its
    /// buffer is free again. (A message without payload frees its own.)
    pub(crate) fn consumed(&mut self) {
        if self.is_whole() && self.message.has_payload == 1 {
            self.machine().buffer_freed();
        }
    }

    /// Returns whether the last segment taken was the last one of its message (Data, or one with
    /// an advert).
    pub(super) fn is_whole(&self) -> bool {
        self.message.is_open == 0 && self.message.is_tagged == 0
    }

    /// Returns whether a message has begun and not ended.
    pub(super) fn is_in_message(&self) -> bool {
        self.message.is_open == 1
    }

    /// Gives back the buffers of messages in the queue, but for as many as the `octets` of Data in
    /// it would fill: so short messages that nobody reads leave the peer its credits, and there is
    /// still room for all that it has credits for.
    pub(super) fn give_back_bufs(&mut self, octets: usize) {
        let in_one = (self.size as usize).saturating_sub(HEADER_LEN).max(1);
        let least = octets.div_ceil(in_one) as u32;
        for _ in least..self.queue.bufs {
            self.machine().buffer_freed();
        }
        self.queue.bufs = self.queue.bufs.min(least);
    }

    /// Returns whether the kernel's socket is readable for as long as octets, or the end, are there
    /// to be read: what comes is behind them.
    pub(crate) fn has_stub(&self) -> bool {
        self.end.stub > 0 || self.end.is_shut == 1
    }

    /// Notes that nothing more comes from TCP: by the peer's FIN, or by a reset that is told now.
    pub(crate) fn note_fin(&mut self) -> Result<(), Errno> {
        self.end.fin = 1;
        let lost = std::mem::take(&mut self.end.lost);
        if lost == 0 || self.is_over() { Ok(()) } else { Err(Errno(lost)) }
    }

    /// Notes, at the peer's end, that an advert of the peer will not be read: its octets have died
    /// with it, which is told once, as a reset is.
    pub(crate) fn note_octets_lost(&mut self) {
        if self.end.fin == 0 {
            self.end.lost = Errno::RESET.0;
        }
    }

    /// Notes the error of a send that no call of the program's waits for. Octets that came before a
    /// reset are still to be read, and behind the peer's `DisConn` it is the end.
    pub(super) fn note_lost(&mut self, error: Errno) {
        if ![Errno::WOULD_BLOCK, Errno::INTERRUPTED, Errno::BROKEN_PIPE].contains(&error) {
            self.end.lost = error.0;
        }
    }

    /// Forgets the error of a send, which is told otherwise.
    pub(super) fn forget_lost(&mut self) {
        self.end.lost = 0;
    }

    /// Returns whether the peer has ended its direction.
    pub(crate) fn is_over(&self) -> bool {
        self.core.received_disconn()
    }

    /// Returns the connection marked as changing.
    pub(super) fn marked(&self) -> Self {
        let mut marked = *self;
        marked.changing = 1;
        marked
    }

    /// Returns whether the peer has ended its direction by a FIN alone.
    pub(super) fn ended_by_fin(&self) -> bool {
        self.end.fin == 1 && !self.is_over()
    }

    /// Returns whether nothing more can come: by the peer's `DisConn`, or its FIN.
    pub(super) fn nothing_comes(&self) -> bool {
        self.is_over() || self.end.fin == 1
    }

    /// Returns what the connection tells of itself.
    pub(super) fn info(&self) -> SdpInfo {
        let mut core = self.core;
        let machine = Machine::new(&mut core, None);
        SdpInfo {
            send_mode: machine.out_mode(),
            receive_mode: machine.in_mode(),
            credits: machine.credits(),
            bufs: self.bufs,
            buf_size: self.size,
            peer_buf_size: machine.core().peer_buf_size(),
            counters: [0; 8],
        }
    }

    /// Returns whether the values fit together, and nobody died while they changed.
    pub(crate) fn is_sound(&self) -> bool {
        self.changing == 0
            && self.end.stub <= CRC_LEN as u32
            && self.end.is_shut <= 1
            && self.has_adverts <= 1
            && self.queue.bufs <= self.bufs
            && self.core.is_sound()
    }

    /// Returns whether a send waits for the peer.
    pub(crate) fn is_blocked(&self) -> bool {
        // Asked several times a call: the usual answer takes no copy of the state.
        if self.core.has_credits_for_data() {
            return false;
        }
        let room = Machine::new(&mut self.core.clone(), None).data_room();
        self.answer.is_due == 0 && room == Err(Blocked::Credits)
    }

    /// Returns whether there are more credits than a wait for room is told of.
    #[inline]
    pub(super) fn has_many_credits(&self) -> bool {
        self.core.has_credits_for_data() && !self.is_short()
    }

    /// Notes Data messages that were sent.
    #[inline]
    pub(super) fn note_sent(&mut self, messages: usize, octets: usize) {
        if self.credits.newest.saturating_add(messages as u32) > self.credits.peer_bufs {
            (self.credits.sent, self.credits.newest) = ([0, self.credits.sent[0]], 0);
        }
        self.credits.sent[0] = self.credits.sent[0].saturating_add(u32::try_from(octets).unwrap_or(u32::MAX));
        self.credits.newest = self.credits.newest.saturating_add(messages as u32);
    }

    /// Returns how many octets the peer may not have given credits for, at most.
    pub(super) fn in_flight(&self) -> usize {
        self.credits.sent[0].saturating_add(self.credits.sent[1]) as usize
    }

    /// Returns whether the peer's credits are fewer than a wait for room is told of.
    pub(super) fn is_short(&self) -> bool {
        self.core.credits() < self.credits.low
    }

    /// Returns whether there is something that sleepers were not told of, and notes that they are
    /// now: a place for octets, many credits, the peer's end, an urgent octet.
    pub(super) fn tells_more(&mut self, may_send: bool, has_many_credits: bool) -> bool {
        let is_short = !has_many_credits && self.is_short();
        let facts = [may_send, !is_short, self.is_over(), self.has_urgent()];
        let now = facts.into_iter().rev().fold(0, |all, fact| all << 1 | u32::from(fact));
        let is_new = now & !self.credits.told != 0;
        self.credits.told = now;
        is_new
    }

    /// Notes that this end's RTR was a Read, the first one.
    pub(crate) fn note_rtr_read(&mut self) {
        self.read_msn = 1;
    }

    /// Returns the octets of the stub, and the free buffers of this end.
    #[cfg(test)]
    pub(crate) fn stub_and_bufs(&self) -> (u32, u32) {
        (self.end.stub, Machine::new(&mut self.core.clone(), None).free_bufs())
    }

    /// Makes the first message of the initiator due.
    pub(super) fn greet(&mut self) {
        self.machine().update_now();
    }

    /// Notes that a call is about to wait for credits.
    pub(super) fn wait_for_credits(&mut self) {
        self.machine().wait_for_credits();
    }

    /// Returns whether both ends have sent their `DisConn`, or the peer its FIN.
    pub(super) fn is_done(&self) -> bool {
        self.is_closed() && self.nothing_comes()
    }

    /// Returns whether this end's `DisConn` has been sent.
    pub(super) fn is_closed(&self) -> bool {
        self.core.sent_disconn()
    }
}

impl Rx {
    /// Makes a change that takes several stores, so that the next owner of the lock detects that a
    /// process died in between.
    pub(crate) fn change_sdp<T>(&mut self, change: impl FnOnce(&mut Shared) -> T) -> T {
        self.set_changing(true);
        let done = change(&mut self.sdp);
        self.set_changing(false);
        done
    }

    /// Sets the mark of such a change.
    #[inline(always)]
    pub(super) fn set_changing(&mut self, changing: bool) {
        set(&mut self.sdp.changing, changing.into());
    }
}

/// Bufs of a peer from which on an eighth of them is held to be few: it gives new ones when half of
/// them are free, so more come.
const MANY: u16 = 64;
/// The adverts that an end takes at a time.
pub(super) const ADVERTS: NonZeroU8 = NonZeroU8::new(8).expect("not zero");

#[cfg(test)]
mod tests;
