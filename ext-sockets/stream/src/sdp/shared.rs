//! The connection of SDP that all holders of the socket share.

use std::sync::atomic::{Ordering, compiler_fence};

use rddp_ddp::Header;
use rddp_iwarp::Segment;
use rddp_mpa::CRC_LEN;
use rddp_sdp::wire::{Front, Message};

use super::counts::{Blocked, Counts};
use super::{SdpInfo, Wrong};
use crate::state::Rx;

/// The connection, under the lock of [`Rx`]. Integers alone, any value of which is one; zeros before
/// the startup.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    counts: Counts,
    /// Octets of a private receive buffer of this end, the base header included; 0: not chosen yet.
    pub(super) size: u32,
    pub(super) bufs: u32,
    /// `Len` of the message that is open: more of its segments follow.
    open_len: u32,
    is_open: u32,
    /// Octets in front of the kernel's queue that belong to an FPDU that has been taken: they keep
    /// the socket readable.
    pub(super) stub: u32,
    /// 1 while the counts are changed by several stores.
    pub(super) changing: u32,
    /// 1 once the peer's FIN has come without its `DisConn`.
    fin: u32,
    /// 1 once this end's FIN was sent.
    pub(super) fin_sent: u32,
    /// 1 once the last holder has closed the socket: what still comes is dropped.
    pub(super) closing: u32,
}

/// Meaning of a segment for the program.
pub(crate) enum Part {
    /// The segment has octets for the program, from here on.
    Octets { from: usize },
    /// The segment has none.
    Control,
}

impl Shared {
    /// Begins to count: the startup is over.
    pub(super) fn begin(&mut self, peer_bufs: u16, peer_size: u32) {
        self.counts = Counts::new(self.bufs as u16, peer_bufs, peer_size);
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
        if message.header.len > self.size {
            return Err(Wrong::Len);
        }
        self.counts.receive(&message)?;
        self.open_len = message.header.len;
        Ok(message.header_len())
    }

    /// Notes that the octets of the last segment taken are read: with the last one of a message its
    /// buffer is free again.
    pub(crate) fn consumed(&mut self) {
        if self.is_open == 0 {
            self.counts.buffer_freed();
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

    /// Notes the peer's FIN.
    pub(crate) fn note_fin(&mut self) {
        self.fin = 1;
    }

    /// Returns whether the peer has ended its direction.
    pub(crate) fn is_over(&self) -> bool {
        self.counts.is_over()
    }

    /// Returns whether nothing more can come: by the peer's `DisConn`, or its FIN.
    pub(super) fn nothing_comes(&self) -> bool {
        self.is_over() || self.fin == 1
    }

    /// Returns what the connection tells of itself.
    pub(super) fn info(&self) -> SdpInfo {
        SdpInfo { bufs: self.bufs, buf_size: self.size, ..self.counts.info() }
    }

    /// Returns whether the values fit together, and nobody died while they changed.
    pub(crate) fn is_sound(&self) -> bool {
        self.changing == 0 && self.stub <= CRC_LEN as u32
    }

    /// Returns the octets of the longest Data that may be sent now.
    pub(super) fn data_room(&self) -> Result<usize, Blocked> {
        self.counts.data_room()
    }

    /// Returns whether a send waits for the peer.
    pub(crate) fn is_blocked(&self) -> bool {
        self.data_room() == Err(Blocked::Credits)
    }

    pub(super) fn data(&mut self, payload_len: usize) -> Front {
        self.counts.data(payload_len)
    }

    pub(super) fn next_control(&mut self) -> Option<Front> {
        self.counts.next_control(self.size)
    }

    pub(super) fn control_due(&self) -> bool {
        self.counts.control_due()
    }

    pub(super) fn greet(&mut self) {
        self.counts.greet();
    }

    pub(super) fn close_sending(&mut self) {
        self.counts.close_sending();
    }

    /// Returns whether both ends have sent their `DisConn`, or the peer its FIN.
    pub(super) fn is_done(&self) -> bool {
        self.counts.is_closed() && self.nothing_comes()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.counts.is_closed()
    }
}

impl Rx {
    /// Stores the connection as it is after some FPDUs.
    pub(crate) fn store_sdp(&mut self, sdp: Shared) {
        self.change_sdp(|at| *at = Shared { changing: 1, ..sdp });
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
