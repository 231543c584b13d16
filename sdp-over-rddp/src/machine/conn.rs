//! State of a connection apart from its adverts.

use crate::wire::{HEADER_LEN, LONGEST_CONTROL, Mode};

/// Both ends as the startup left them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Private receive buffers of this end, as its Hello or `HelloAck` said.
    pub bufs: u16,
    /// Octets of one of them, base header included, as its Hello or `HelloAck` said.
    pub buf_size: u32,
    /// Octets of the longest message that this end makes, base header included.
    pub send_size: u32,
    /// The adverts that this end takes at a time, as its Hello or `HelloAck` said: up to 8.
    pub max_adverts: u8,
    /// Private receive buffers of the peer.
    pub peer_bufs: u16,
    /// Octets of one of them, base header included.
    pub peer_buf_size: u32,
    /// The adverts that the peer takes at a time.
    pub peer_max_adverts: u8,
}

/// Reasons why two ends cannot talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// Buffers of one end do not hold the longest message without payload.
    #[error("a receive buffer of {0} octets does not hold the messages of SDP")]
    BufferSize(u32),
    /// Fewer than three buffers of this end, on which no Data may ever be sent.
    #[error("{0} receive buffers are too few")]
    Bufs(u16),
    /// An end takes no adverts.
    #[error("an end that takes {0} adverts")]
    MaxAdverts(u8),
}

/// State of a connection apart from its adverts. Zeroed, it is unused.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Core {
    /// Octets of the in half whose place in the stream is known.
    pub(super) in_octets: u64,
    /// Octets of the in half that the program has.
    pub(super) taken_octets: u64,
    /// The place of the urgent octet in the in half.
    pub(super) mark: u64,
    /// Facts: see [`flag`].
    pub(super) flags: u32,
    /// Control messages that are to be sent: see [`due`].
    pub(super) due: u32,
    /// The number of our next message.
    pub(super) next_mseq: u32,
    /// The number of the newest message received.
    pub(super) received: u32,
    /// The newest number that the peer has acknowledged.
    pub(super) acked: u32,
    /// The peer's buffers when it did.
    pub(super) peer_bufs: u32,
    /// Our buffers.
    pub(super) bufs: u32,
    /// Buffers of ours with a message whose payload has not all been taken.
    pub(super) taken_bufs: u32,
    /// The highest number that the peer may send, as it has been told.
    pub(super) shown: u32,
    /// The number acknowledged while [`flag::ACK_HELD`].
    pub(super) held_ack: u32,
    pub(super) buf_size: u32,
    pub(super) send_size: u32,
    pub(super) peer_buf_size: u32,
    pub(super) max_adverts: u32,
    pub(super) peer_max_adverts: u32,
    /// Modes as on the wire.
    pub(super) out_mode: u32,
    pub(super) in_mode: u32,
    /// Messages with payload sent that discarded no advert.
    pub(super) sent_non_discards: u32,
    /// [`Core::sent_non_discards`] when the out half left Pipelined.
    pub(super) non_discards_at_change: u32,
    /// Messages with payload received that discarded no advert.
    pub(super) received_non_discards: u32,
    /// The number of our newest `ModeChange` to Combined, while [`flag::CHANGE_UNSEEN`].
    pub(super) change_mseq: u32,
    /// The number of our `DisConn`.
    pub(super) disconn_mseq: u32,
    /// The number of our `SrcAvailCancel`, while [`flag::SOURCE_CANCEL`].
    pub(super) source_cancel_mseq: u32,
    /// The number of our `SinkAvailCancel`, while [`flag::SINK_CANCEL`].
    pub(super) sink_cancel_mseq: u32,
    /// The size that our `ChRcvBuf` asks for.
    pub(super) wanted_size: u32,
    /// `ChRcvBuf`s that the binding has not answered.
    pub(super) resizes_asked: u32,
    /// `ChRcvBufAck`s due.
    pub(super) resizes_due: u32,
}

/// Facts of a connection, in [`Core::flags`].
pub(super) mod flag {
    pub(in crate::machine) const IN_USE: u32 = 1;
    /// The newest message received since the newest sent is an update of credits and no more.
    pub(in crate::machine) const LAST_WAS_UPDATE: u32 = 1 << 1;
    /// The newest message sent was.
    pub(in crate::machine) const LAST_SENT_UPDATE: u32 = 1 << 2;
    /// Octets wait for credits.
    pub(in crate::machine) const WANTS_CREDITS: u32 = 1 << 3;
    /// A `SrcAvailCancel` of the peer waits for Reads.
    pub(in crate::machine) const ACK_HELD: u32 = 1 << 4;
    /// The peer's `SrcAvail`s are cancelled or refused: no more Reads of them.
    pub(in crate::machine) const NO_READS: u32 = 1 << 5;
    /// Own `SrcAvailCancel` sent and unanswered.
    pub(in crate::machine) const SOURCE_CANCEL: u32 = 1 << 6;
    /// Own `SinkAvailCancel` sent and unanswered.
    pub(in crate::machine) const SINK_CANCEL: u32 = 1 << 7;
    /// An own `SinkAvailCancel` ended without its answer, which may still come.
    pub(in crate::machine) const SINK_CANCEL_LATE: u32 = 1 << 8;
    /// The peer has not seen our newest `ModeChange` to Combined.
    pub(in crate::machine) const CHANGE_UNSEEN: u32 = 1 << 9;
    pub(in crate::machine) const CLOSING: u32 = 1 << 10;
    pub(in crate::machine) const DISCONN_SENT: u32 = 1 << 11;
    pub(in crate::machine) const DISCONN_RECEIVED: u32 = 1 << 12;
    /// Our `DisConn` went before the peer's came.
    pub(in crate::machine) const FIRST: u32 = 1 << 13;
    /// Aborted, by either side, or by a violation.
    pub(in crate::machine) const ABORTED: u32 = 1 << 14;
    /// An urgent octet of the peer is announced and not here.
    pub(in crate::machine) const URGENT_ANNOUNCED: u32 = 1 << 15;
    /// There is a mark in the in half.
    pub(in crate::machine) const URGENT_HERE: u32 = 1 << 16;
    /// Our messages announce an urgent octet.
    pub(in crate::machine) const ANNOUNCING: u32 = 1 << 17;
    /// The peer would like Pipelined.
    pub(in crate::machine) const PEER_PREFERS_PIPELINED: u32 = 1 << 18;
    /// This end would like Pipelined.
    pub(in crate::machine) const PREFERS_PIPELINED: u32 = 1 << 19;
    /// The peer's `SrcAvail`s are cancelled by a `SrcAvailCancel` that is not answered.
    pub(in crate::machine) const CANCELLED: u32 = 1 << 21;
    /// A `ChRcvBuf` of ours is unanswered.
    pub(in crate::machine) const RESIZING: u32 = 1 << 20;
    pub(in crate::machine) const ALL: u32 = (1 << 22) - 1;
}

/// Control messages to be sent, in [`Core::due`].
pub(super) mod due {
    pub(in crate::machine) const SINK_CANCEL_ACK: u32 = 1;
    pub(in crate::machine) const SOURCE_CANCEL: u32 = 1 << 1;
    pub(in crate::machine) const SINK_CANCEL: u32 = 1 << 2;
    pub(in crate::machine) const RESIZE: u32 = 1 << 3;
    pub(in crate::machine) const ABORT: u32 = 1 << 4;
    /// An update of credits, whatever it gives.
    pub(in crate::machine) const UPDATE: u32 = 1 << 5;
    pub(in crate::machine) const ALL: u32 = (1 << 6) - 1;
}

impl Core {
    /// The state of a connection whose startup has just ended: Combined both ways, and the next
    /// message each way is number 1.
    ///
    /// # Errors
    /// Such ends could never exchange messages.
    pub fn new(config: &Config) -> Result<Self, Unusable> {
        for size in [config.buf_size, config.send_size, config.peer_buf_size] {
            if (size as usize) < LONGEST_CONTROL {
                return Err(Unusable::BufferSize(size));
            }
        }
        if config.bufs < 3 {
            return Err(Unusable::Bufs(config.bufs));
        }
        for adverts in [config.max_adverts, config.peer_max_adverts] {
            if adverts == 0 {
                return Err(Unusable::MaxAdverts(adverts));
            }
        }
        Ok(Self {
            flags: flag::IN_USE,
            next_mseq: 1,
            peer_bufs: config.peer_bufs.into(),
            bufs: config.bufs.into(),
            shown: config.bufs.into(),
            buf_size: config.buf_size,
            send_size: config.send_size,
            peer_buf_size: config.peer_buf_size,
            max_adverts: u32::from(config.max_adverts).min(super::ADVERTS as u32),
            peer_max_adverts: config.peer_max_adverts.into(),
            out_mode: Mode::Combined as u32,
            in_mode: Mode::Combined as u32,
            ..Self::default()
        })
    }

    /// Begins both counters of messages at `mseq`, as after a long run: for tests of their wrap.
    /// Both ends have to begin alike.
    #[must_use]
    pub fn numbered_from(mut self, mseq: u32) -> Self {
        let last = mseq.wrapping_sub(1);
        self.next_mseq = mseq;
        (self.received, self.acked) = (last, last);
        self.shown = last.wrapping_add(self.bufs);
        self
    }

    /// Returns whether these octets are the state of a connection.
    #[must_use]
    pub fn in_use(&self) -> bool {
        self.is(flag::IN_USE)
    }

    pub(super) fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn set(&mut self, flag: u32, to: bool) {
        self.flags = if to { self.flags | flag } else { self.flags & !flag };
    }

    pub(super) fn is_due(&self, due: u32) -> bool {
        self.due & due != 0
    }

    pub(super) fn set_due(&mut self, due: u32, to: bool) {
        self.due = if to { self.due | due } else { self.due & !due };
    }

    /// Returns the octets of the longest message to the peer: its buffer and our own bound it.
    pub(super) fn longest_message(&self) -> usize {
        self.peer_buf_size.min(self.send_size) as usize
    }

    /// Returns the octets of the longest payload of a Data.
    #[must_use]
    pub fn longest_payload(&self) -> usize {
        self.longest_message().saturating_sub(HEADER_LEN)
    }

    /// Returns the octets of a private receive buffer of this end that its peer may fill, base
    /// header included.
    #[must_use]
    pub fn buf_size(&self) -> u32 {
        self.buf_size
    }

    /// Returns the octets that a private receive buffer of the peer holds.
    #[must_use]
    pub fn peer_buf_size(&self) -> u32 {
        self.peer_buf_size
    }
}

const _: () = assert!(size_of::<Core>() <= 320);
