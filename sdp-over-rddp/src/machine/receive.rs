//! What arrives.

use super::conn::flag;
use super::{Half, Machine, SinkId, SourceId, Violation};
use crate::wire::{Body, Flags, Message, Mode, seq_before};

/// What a message asks of the binding. The payload of a message, where it has any, is the next
/// octets of the stream, also where this names something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Received {
    /// The message was not taken: it needs [`Tables`](super::Tables), and this machine has none.
    /// Call again with them.
    NeedsTables,
    /// Nothing to be done: an update of credits, or a message that crossed another and counts no
    /// more.
    Nothing,
    /// Payload.
    Data {
        /// Its last octet is urgent.
        urgent: bool,
    },
    /// Payload, in the place of an own `SinkAvail` that the peer will not write to. It belongs to
    /// that buffer; what does not fit follows as Data.
    DataIntoSink {
        /// The advert, which is over.
        sink: SinkId,
        /// The last octet is urgent.
        urgent: bool,
    },
    /// An advert to read from: [`next_read`](Machine::next_read). Payload is its first octets.
    SrcAvail,
    /// An advert to write into.
    SinkAvail {
        /// It counts: [`peer_sink`](Machine::peer_sink). Else it crossed something.
        kept: bool,
        /// Own `SrcAvail`s came back: [`returned`](Machine::returned).
        returned: bool,
    },
    /// The peer has read from an own `SrcAvail`.
    SourceRead {
        /// The advert.
        source: SourceId,
        /// All of it: it is over.
        done: bool,
    },
    /// Own `SrcAvail`s came back: [`returned`](Machine::returned).
    SourcesReturned,
    /// The peer has written into an own `SinkAvail`, which is over.
    SinkWritten {
        /// The advert.
        sink: SinkId,
        /// Octets from its front.
        octets: u32,
    },
    /// Own `SinkAvail`s came back with nothing in them.
    SinksReturned,
    /// The peer took back its `SrcAvail`s: the Reads in progress are to be finished.
    SourcesCancelled,
    /// The peer took back its `SinkAvail`s: there is nothing to write into any more.
    SinksCancelled,
    /// The mode of a half-connection changed; where Pipelined ended, own `SinkAvail`s came back.
    ModeChanged {
        /// The half.
        half: Half,
        /// Its mode now.
        mode: Mode,
    },
    /// The peer asks for larger buffers: [`answer_buffer_size`](Machine::answer_buffer_size).
    LargerBuffersWanted {
        /// Octets of a buffer, base header included.
        size: u32,
    },
    /// The peer has larger buffers now.
    LongerMessages,
    /// The peer has sent its last octet. Own `SinkAvail`s came back.
    Disconnected,
    /// The peer ended the connection at once.
    Aborted,
}

impl Machine<'_> {
    /// Takes a message at its front, in the order of the wire, and says what it asks for.
    ///
    /// # Errors
    /// The peer broke a rule: the connection is over.
    pub fn receive(&mut self, message: &Message) -> Result<Received, Violation> {
        let advert = matches!(message.body, Body::SrcAvail { .. } | Body::SinkAvail { .. });
        if advert && self.tables.is_none() {
            return Ok(Received::NeedsTables);
        }
        let received = self.check(message).and_then(|()| {
            self.count(message);
            self.dispatch(message)
        });
        if received.is_err() {
            self.core.set(flag::ABORTED, true);
        }
        received
    }

    /// What is asked of every message.
    fn check(&self, message: &Message) -> Result<(), Violation> {
        let (core, header) = (&*self.core, &message.header);
        let expected = core.received.wrapping_add(1);
        if core.is(flag::ABORTED) {
            return Err(Violation::AfterAbort);
        }
        // Numbers rise by 1, without gaps.
        if header.mseq != expected {
            return Err(Violation::Mseq { got: header.mseq, expected });
        }
        // No acknowledgement of what was not sent, and none goes back.
        let unacked = core.next_mseq.wrapping_sub(1).wrapping_sub(core.acked);
        if header.mseq_ack.wrapping_sub(core.acked) > unacked {
            return Err(Violation::MseqAck(header.mseq_ack));
        }
        // A message fits the buffer that was announced.
        if header.len > core.buf_size || message.payload_len > core.buf_size as usize {
            return Err(Violation::TooLong(header.len));
        }
        // Credits are a hard rule: each message finds a buffer.
        if self.free_bufs() == 0 {
            return Err(Violation::NoBuffer);
        }
        // DisConn is the last message with payload of its half.
        if message.payload_len > 0 && core.is(flag::DISCONN_RECEIVED) {
            return Err(Violation::AfterDisConn);
        }
        Ok(())
    }

    fn count(&mut self, message: &Message) {
        let (header, core) = (&message.header, &mut *self.core);
        core.received = header.mseq;
        core.acked = header.mseq_ack;
        core.peer_bufs = header.bufs.into();
        let update = message.body == Body::Data && message.payload_len == 0;
        core.set(flag::LAST_WAS_UPDATE, update);
        if message.payload_len > 0 {
            core.taken_bufs += 1;
        }
        if core.is(flag::CHANGE_UNSEEN) && !seq_before(header.mseq_ack, core.change_mseq) {
            core.set(flag::CHANGE_UNSEEN, false);
        }
        core.in_octets = core.in_octets.wrapping_add(message.payload_len as u64);
        self.count_urgent(header.flags);
    }

    fn dispatch(&mut self, message: &Message) -> Result<Received, Violation> {
        let (header, payload) = (&message.header, message.payload_len);
        let ack = header.mseq_ack;
        match message.body {
            Body::Data => self.take_data(payload, header.flags.contains(Flags::OOB_PRES)),
            Body::SrcAvail { advert } => self.take_src_avail(&advert, payload, ack),
            Body::SinkAvail { advert, non_discards } => {
                self.take_sink_avail(&advert, non_discards, payload, ack)
            }
            Body::RdmaRdCompl { octets } => {
                let wish = header.flags.contains(Flags::REQ_PIPE);
                self.core.set(flag::PEER_PREFERS_PIPELINED, wish);
                self.take_read_report(octets, ack)
            }
            Body::SendSm => self.take_send_sm(ack),
            Body::RdmaWrCompl { octets } => self.take_write_report(octets),
            Body::SrcAvailCancel => Ok(self.take_source_cancel()),
            Body::SinkAvailCancel => Ok(self.take_sink_cancel()),
            Body::SinkCancelAck => self.take_sink_cancel_ack(ack),
            Body::ModeChange { of_receivers_half, mode } => self.take_mode_change(of_receivers_half, mode),
            Body::ChRcvBuf { size } => Ok(self.take_resize(size)),
            Body::ChRcvBufAck { size } => Ok(self.take_resize_ack(size)),
            Body::DisConn => self.take_disconn(),
            Body::AbortConn => self.take_abort(),
            // What these mean is not public: the connection is given up with EPROTO.
            Body::SuspComm { .. } | Body::SuspCommAck => Err(Violation::Suspend),
        }
    }
}
