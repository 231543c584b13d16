//! The connection of SDP that all holders of the socket share.

use std::num::NonZeroU8;
use std::sync::atomic::{Ordering, compiler_fence};

use rddp_ddp::Header;
use rddp_iwarp::Segment;
use rddp_mpa::CRC_LEN;
use rddp_sdp::machine::{Blocked, Config, Core, Machine, Received, Tables};
use rddp_sdp::wire::{Flags, Front, HEADER_LEN, Message};

use super::{SdpInfo, Wrong};
use crate::Errno;
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
    /// `Len` of the message that is open: more of its segments follow.
    open_len: u32,
    is_open: u32,
    has_payload: u32,
    /// Octets in front of the kernel's queue that belong to an FPDU that has been taken: they keep
    /// the socket readable.
    pub(super) stub: u32,
    /// 1 while the counts are changed by several stores.
    pub(super) changing: u32,
    /// A message that was made while one of the peer was taken, and goes before any other; 1 in
    /// `has_answer` while there is one.
    answer: [u8; HEADER_LEN],
    has_answer: u32,
    /// 1 once the peer's FIN has come without its `DisConn`.
    fin: u32,
    /// 1 once this end's FIN was sent.
    pub(super) fin_sent: u32,
    /// 1 once the last holder has closed the socket: what still comes is dropped.
    pub(super) closing: u32,
    /// The errno of a reset that a send of ours has met, for the receive that has come up to it; 0:
    /// none.
    pub(super) lost: i32,
    /// 1 while the urgent octet has not been passed by, and 1 once it was read by `MSG_OOB`.
    pub(super) marked: u32,
    pub(super) oob_read: u32,
    /// Octets of a call that are still to be sent, the last of which is urgent.
    pub(super) urgent_left: u32,
    /// Octets of the queue in front of the messages that are looked at.
    pub(super) queued: u32,
    /// 1 while a wait looks for what is behind all octets.
    pub(super) seeks: u32,
    /// 1 once octets could not be moved to the queue for want of room.
    pub(super) cramped: u32,
    /// Facts that sleepers have been told of, as bits.
    told: u32,
}

/// The connection as it will be behind FPDUs that are looked at; nothing for plain octets.
pub(crate) struct Ahead {
    pub(crate) now: Option<Shared>,
    /// The connection before the last of them.
    before: Option<Shared>,
}

impl Ahead {
    pub(crate) const NOTHING: Self = Self { now: None, before: None };

    /// Notes where [`cut_back`](Self::cut_back) goes back to.
    #[inline]
    pub(crate) fn mark(&mut self) {
        if let Some(now) = &self.now {
            self.before = Some(*now);
        }
    }

    /// Leaves out the last FPDU.
    pub(crate) fn cut_back(&mut self) {
        self.now = self.before.take();
    }
}

/// Meaning of a segment for the program.
pub(crate) enum Part {
    /// The segment has octets for the program, from here on.
    Octets { from: usize },
    /// The segment has none.
    Control,
}

impl Shared {
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
        Ok(())
    }

    pub(super) fn machine(&mut self) -> Machine<'_> {
        Machine::new(&mut self.core, None)
    }

    /// Counts in a segment of a message. The first begins with the `front` of the message, all of
    /// its headers.
    pub(crate) fn segment(&mut self, segment: &Segment, front: &[u8]) -> Result<Part, Wrong> {
        let Header::Untagged(header) = segment.header else { return Err(Wrong::Format) };
        let (at, last) = (header.mo as usize, header.last);
        let from = if at == 0 { self.front(front)? } else { 0 };
        // `Len` is said first: no segment may go beyond it, and the last one ends there.
        let end = at.saturating_add(segment.payload_len);
        let len = self.open_len as usize;
        if end > len || last != (end == len) {
            return Err(Wrong::Len);
        }
        self.is_open = (!last).into();
        if from < segment.payload_len {
            return Ok(Part::Octets { from });
        }
        self.consumed();
        Ok(Part::Control)
    }

    /// Counts in the message that begins here; returns the octets of its headers.
    fn front(&mut self, octets: &[u8]) -> Result<usize, Wrong> {
        let message = Message::parse(octets)?;
        match self.machine().receive(&message)? {
            Received::NeedsTables => self.refuse(&message)?,
            Received::LargerBuffersWanted { .. } => self.machine().answer_buffer_size(None),
            Received::Aborted => return Err(Wrong::Abort),
            _ => {}
        }
        self.open_len = message.header.len;
        self.has_payload = (message.payload_len > 0).into();
        if message.header.flags.contains(Flags::OOB_PRES) && message.payload_len > 0 {
            self.note_mark(message.payload_len);
        }
        Ok(message.header_len())
    }

    /// Refuses an advert of the peer. The tables live for the length of the refusal: an advert that
    /// is refused leaves nothing in them.
    fn refuse(&mut self, message: &Message) -> Result<(), Wrong> {
        let mut tables = Tables::default();
        let mut machine = Machine::new(&mut self.core, Some(&mut tables));
        machine.receive(message)?;
        // A SendSm that answers no cancel is not for Pipelined.
        machine.refuse_source().map_err(|_| Wrong::Unsupported)?;
        let front = machine.next_control().filter(|front| front.len() == HEADER_LEN);
        let front = front.ok_or(Wrong::Unsupported)?;
        self.answer.copy_from_slice(&front);
        self.has_answer = 1;
        Ok(())
    }

    /// Notes that the octets of the last segment taken are read: with the last one of a message its
    /// buffer is free again. (A message without payload frees its own.)
    pub(crate) fn consumed(&mut self) {
        if self.is_open == 0 && self.has_payload == 1 {
            self.machine().buffer_freed();
        }
    }

    /// Returns whether the last segment taken was the last one of its message.
    pub(super) fn is_whole(&self) -> bool {
        self.is_open == 0
    }

    /// Notes that the last octets of so many messages are read.
    pub(super) fn messages_read(&mut self, count: u32) {
        for _ in 0..count {
            self.machine().buffer_freed();
        }
    }

    /// Returns how many of the last octets of an FPDU stay in the kernel, and notes them: none, or
    /// its CRC field after the peer's `DisConn`, so that the end stays readable.
    pub(crate) fn leave_stub(&mut self) -> usize {
        if !self.is_over() {
            return 0;
        }
        self.stub = CRC_LEN as u32;
        CRC_LEN
    }

    pub(crate) fn has_stub(&self) -> bool {
        self.stub > 0
    }

    /// Notes that nothing more comes from TCP: by the peer's FIN, or by a reset that is told now.
    pub(crate) fn note_fin(&mut self) -> Result<(), Errno> {
        self.fin = 1;
        let lost = std::mem::take(&mut self.lost);
        if lost == 0 || self.is_over() { Ok(()) } else { Err(Errno(lost)) }
    }

    /// Notes the error of a send that no call of the program's waits for. Octets that came before a
    /// reset are still to be read, and behind the peer's `DisConn` it is the end.
    pub(super) fn note_lost(&mut self, error: Errno) {
        if ![Errno::WOULD_BLOCK, Errno::INTERRUPTED, Errno::BROKEN_PIPE].contains(&error) {
            self.lost = error.0;
        }
    }

    /// Returns whether the peer has ended its direction.
    pub(crate) fn is_over(&self) -> bool {
        Machine::new(&mut self.core.clone(), None).received_disconn()
    }

    /// Returns the connection marked as changing.
    fn marked(&self) -> Self {
        let mut marked = *self;
        marked.changing = 1;
        marked
    }

    /// Returns whether nothing more can come: by the peer's `DisConn`, or its FIN.
    pub(super) fn nothing_comes(&self) -> bool {
        self.is_over() || self.fin == 1
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
        self.changing == 0 && self.stub <= CRC_LEN as u32 && self.core.is_sound()
    }

    /// Returns the octets of the longest Data that may be sent now.
    pub(super) fn data_room(&self) -> Result<usize, Blocked> {
        if self.has_answer == 1 {
            return Err(Blocked::Control);
        }
        Machine::new(&mut self.core.clone(), None).data_room()
    }

    /// Returns whether a send waits for the peer.
    pub(crate) fn is_blocked(&self) -> bool {
        self.data_room() == Err(Blocked::Credits)
    }

    /// Returns the headers of a Data, which counts as sent.
    pub(super) fn data(&mut self, payload_len: usize) -> Result<Front, Blocked> {
        let left = (self.urgent_left as usize).saturating_sub(payload_len);
        let is_urgent = self.urgent_left > 0 && left == 0;
        if (1..=NEAR).contains(&self.urgent_left) && !is_urgent {
            self.machine().announce_urgent();
        }
        let front = self.machine().data(payload_len, is_urgent)?;
        self.urgent_left = left as u32;
        Ok(front)
    }

    /// Returns whether there is something that sleepers were not told of, and notes that they are
    /// now: credits, the peer's end, an urgent octet.
    pub(super) fn tells_more(&mut self) -> bool {
        let facts = [!self.is_blocked(), self.is_over(), self.has_urgent()];
        let now = facts.into_iter().rev().fold(0, |all, fact| all << 1 | u32::from(fact));
        let is_new = now & !self.told != 0;
        self.told = now;
        is_new
    }

    /// Passes the next control message that is due, if credits allow it, to `send`. It counts as
    /// sent. Returns whether there was one.
    pub(super) fn next_control(&mut self, send: impl FnOnce(&[u8])) -> bool {
        if std::mem::take(&mut self.has_answer) == 1 {
            send(&self.answer);
            return true;
        }
        let front = self.machine().next_control();
        front.inspect(|front| send(front)).is_some()
    }

    /// Returns whether a message without octets of the program is due, whatever the credits.
    pub(super) fn control_due(&self) -> bool {
        self.has_answer == 1 || Machine::new(&mut self.core.clone(), None).control_due()
    }

    /// Makes the first message of the initiator due.
    pub(super) fn greet(&mut self) {
        self.machine().update_now();
    }

    /// Notes that a call is about to wait for credits.
    pub(super) fn wait_for_credits(&mut self) {
        self.machine().wait_for_credits();
    }

    /// Makes `DisConn` due, behind everything that was sent.
    pub(super) fn close_sending(&mut self) {
        self.machine().close_sending();
    }

    /// Returns whether both ends have sent their `DisConn`, or the peer its FIN.
    pub(super) fn is_done(&self) -> bool {
        self.is_closed() && self.nothing_comes()
    }

    /// Returns whether this end's `DisConn` has been sent.
    pub(super) fn is_closed(&self) -> bool {
        Machine::new(&mut self.core.clone(), None).sent_disconn()
    }
}

impl Rx {
    /// Stores the connection as it is after some FPDUs.
    pub(crate) fn store_sdp(&mut self, sdp: &Shared) {
        let sdp = sdp.marked();
        self.change_sdp(|at| *at = sdp);
    }

    /// Makes a change that takes several stores, so that the next owner of the lock detects that a
    /// process died in between.
    pub(crate) fn change_sdp<T>(&mut self, change: impl FnOnce(&mut Shared) -> T) -> T {
        self.sdp.changing = 1;
        // A process dies between two instructions; the fence keeps the compiler from reordering
        // these stores.
        compiler_fence(Ordering::SeqCst);
        let done = change(&mut self.sdp);
        compiler_fence(Ordering::SeqCst);
        self.sdp.changing = 0;
        done
    }
}

/// Octets of the urgent one at which messages announce it.
const NEAR: u32 = 65_535;
/// The adverts that an end takes at a time.
pub(super) const ADVERTS: NonZeroU8 = NonZeroU8::new(8).expect("not zero");
