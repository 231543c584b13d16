//! The counts of a connection: sequence numbers, credits, and what is due.

use rddp_sdp::wire::{Body, Flags, Front, HEADER_LEN, Message, Mode};

use super::{SdpInfo, Wrong};

/// Sequence numbers and credits of both directions, and the control messages that are due. Integers
/// alone, any value of which is one; zeros before the startup.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    /// `MSeq` of the last message sent, and of the last received.
    sent: u32,
    received: u32,
    /// Last `MSeq` that the peer may use, as it was told, and that this end may use.
    granted: u32,
    allowed: u32,
    acknowledged: u32,
    /// Private receive buffers: all, and those whose octets are not taken yet.
    bufs: u32,
    used: u32,
    /// Octets of a message that the peer takes.
    peer_size: u32,
    flags: u32,
}

/// Reasons why no message may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// There are not enough credits.
    Credits,
    /// The direction is closed.
    Closed,
}

impl Counts {
    /// Returns the counts after the startup: this end has `bufs` buffers, the peer `peer_bufs` of
    /// `peer_size` octets. Hello and `HelloAck` have number 0.
    pub(super) const fn new(bufs: u16, peer_bufs: u16, peer_size: u32) -> Self {
        Self {
            sent: 0,
            received: 0,
            granted: bufs as u32,
            allowed: peer_bufs as u32,
            acknowledged: 0,
            bufs: bufs as u32,
            used: 0,
            peer_size,
            flags: 0,
        }
    }

    fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    fn credits(&self) -> i32 {
        self.allowed.wrapping_sub(self.sent).cast_signed()
    }

    /// Returns modes, credits and the peer's buffers.
    pub(super) fn info(&self) -> SdpInfo {
        let receive_mode = match (self.is(PIPELINED), self.is(BUFFERED)) {
            (true, _) => Mode::Pipelined,
            (false, true) => Mode::Buffered,
            (false, false) => Mode::Combined,
        };
        SdpInfo {
            send_mode: Mode::Combined,
            receive_mode,
            credits: self.credits().max(0).unsigned_abs(),
            bufs: self.bufs,
            buf_size: 0,
            peer_buf_size: self.peer_size,
        }
    }

    fn posted(&self) -> u32 {
        self.bufs.saturating_sub(self.used)
    }

    /// Counts in a message of the peer.
    pub(super) fn receive(&mut self, message: &Message) -> Result<(), Wrong> {
        let header = &message.header;
        let (mseq, ack) = (header.mseq, header.mseq_ack);
        if mseq != self.received.wrapping_add(1) {
            return Err(Wrong::Sequence);
        }
        if mseq.wrapping_sub(self.granted).cast_signed() > 0 {
            return Err(Wrong::Credits);
        }
        let is_new = ack.wrapping_sub(self.acknowledged).cast_signed() >= 0;
        if !is_new || ack.wrapping_sub(self.sent).cast_signed() > 0 {
            return Err(Wrong::Acknowledgement);
        }
        self.meaning(message)?;
        (self.received, self.acknowledged) = (mseq, ack);
        self.allowed = ack.wrapping_add(header.bufs.into());
        self.used = self.used.saturating_add(1);
        Ok(())
    }

    fn meaning(&mut self, message: &Message) -> Result<(), Wrong> {
        let empty = message.payload_len == 0;
        match message.body {
            Body::Data | Body::SrcAvail { .. } if self.is(OVER) && !empty => Err(Wrong::AfterDisConn),
            Body::DisConn if self.is(OVER) => Err(Wrong::AfterDisConn),
            Body::DisConn => {
                self.flags |= OVER;
                Ok(())
            }
            Body::AbortConn if self.is(OVER) => Err(Wrong::Abort),
            // In Combined the payload is the buffer's first octets, and never all of them.
            Body::SrcAvail { advert } if !self.is(PIPELINED | OVER) => {
                if empty || advert.len as usize <= message.payload_len {
                    return Err(Wrong::Mode);
                }
                self.flags |= REFUSES;
                Ok(())
            }
            // A SendSm that answers no cancel is not for Pipelined.
            Body::SrcAvail { .. } if !self.is(OVER) => Err(Wrong::Unsupported),
            Body::ModeChange { of_receivers_half: false, mode: Mode::Pipelined }
                if !self.is(PIPELINED | BUFFERED) =>
            {
                self.flags |= PIPELINED;
                Ok(())
            }
            Body::ModeChange { of_receivers_half: false, mode: Mode::Combined } if self.is(PIPELINED) => {
                self.flags &= !PIPELINED;
                Ok(())
            }
            Body::ModeChange { of_receivers_half: false, mode: Mode::Buffered }
                if !self.is(PIPELINED | BUFFERED) =>
            {
                self.flags |= BUFFERED;
                Ok(())
            }
            Body::ChRcvBuf { .. } => {
                self.flags |= TELLS_SIZE;
                Ok(())
            }
            // A size that was not asked for is ignored; of an advert that was refused nothing is
            // left to cancel.
            Body::Data | Body::ChRcvBufAck { .. } | Body::SrcAvailCancel => Ok(()),
            Body::SuspComm { .. } | Body::SuspCommAck => Err(Wrong::Unsupported),
            _ => Err(Wrong::Mode),
        }
    }

    /// Counts a buffer as free again.
    pub(super) fn buffer_freed(&mut self) {
        self.used = self.used.saturating_sub(1);
    }

    /// Returns the octets of the longest Data that may be sent now.
    pub(super) fn data_room(&self) -> Result<usize, Blocked> {
        if self.is(CLOSED | CLOSING) {
            return Err(Blocked::Closed);
        }
        if self.credits() < FOR_OCTETS {
            return Err(Blocked::Credits);
        }
        Ok((self.peer_size as usize).saturating_sub(HEADER_LEN).max(1))
    }

    /// Returns the headers of a Data with so much payload, which counts as sent from now on.
    pub(super) fn data(&mut self, payload_len: usize) -> Front {
        self.front(Body::Data, payload_len)
    }

    fn front(&mut self, body: Body, payload_len: usize) -> Front {
        self.sent = self.sent.wrapping_add(1);
        let bufs = u16::try_from(self.posted()).unwrap_or(u16::MAX);
        self.granted = self.received.wrapping_add(bufs.into());
        let mut message = Message::new(body, payload_len);
        message.header.flags = Flags::empty();
        (message.header.bufs, message.header.mseq) = (bufs, self.sent);
        message.header.mseq_ack = self.received;
        message.emit()
    }

    /// Returns the next control message that is due, if credits allow it. It counts as sent.
    pub(super) fn next_control(&mut self, size: u32) -> Option<Front> {
        let gives = self.received.wrapping_add(self.posted()).wrapping_sub(self.granted).cast_signed() > 0;
        // The last credit is for a message that gives new ones.
        if self.credits() < if gives { 1 } else { 2 } {
            return None;
        }
        if self.is(REFUSES) {
            self.flags &= !REFUSES;
            return Some(self.front(Body::SendSm, 0));
        }
        if self.is(TELLS_SIZE) {
            self.flags &= !TELLS_SIZE;
            return Some(self.front(Body::ChRcvBufAck { size }, 0));
        }
        if self.is(GREETS) || self.update_due() {
            self.flags &= !GREETS;
            return Some(self.front(Body::Data, 0));
        }
        if self.is(CLOSING) {
            self.flags = self.flags & !CLOSING | CLOSED;
            return Some(self.front(Body::DisConn, 0));
        }
        None
    }

    /// Returns whether a control message is due, whatever the credits.
    pub(super) fn control_due(&self) -> bool {
        self.is(REFUSES | TELLS_SIZE | GREETS | CLOSING) || self.update_due()
    }

    /// Returns whether half of the buffers are free and the peer does not know it. An end that has
    /// had the peer's `DisConn` does not tell.
    fn update_due(&self) -> bool {
        let new = self.received.wrapping_add(self.posted()).wrapping_sub(self.granted);
        !self.is(OVER) && new.cast_signed() > 0 && new >= (self.bufs / 2).max(1)
    }

    /// Makes the first message of the initiator due.
    pub(super) fn greet(&mut self) {
        self.flags |= GREETS;
    }

    /// Makes `DisConn` due, behind everything that was sent.
    pub(super) fn close_sending(&mut self) {
        if !self.is(CLOSED) {
            self.flags |= CLOSING;
        }
    }

    /// Returns whether the peer's `DisConn` has come.
    pub(super) fn is_over(&self) -> bool {
        self.is(OVER)
    }

    /// Returns whether this end's `DisConn` has been sent.
    pub(super) fn is_closed(&self) -> bool {
        self.is(CLOSED)
    }
}

/// Credits that a message with octets needs: two are left for control messages.
const FOR_OCTETS: i32 = 3;

/// The peer's `DisConn` has come.
const OVER: u32 = 1;
/// `DisConn` is due; it has been sent.
const CLOSING: u32 = 2;
const CLOSED: u32 = 4;
/// A `SendSm` is due.
const REFUSES: u32 = 8;
/// A `ChRcvBufAck` is due.
const TELLS_SIZE: u32 = 16;
/// A message is due that lets the peer send.
const GREETS: u32 = 32;
/// Modes of the half-connection on which the peer sends; neither: Combined.
const PIPELINED: u32 = 64;
const BUFFERED: u32 = 128;
