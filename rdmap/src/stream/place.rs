//! Answers of a stream to its driver: the place of a payload, and the meaning of a message.

use rddp_ddp::Stag;

use crate::TerminateRepr;

/// The place of a segment's payload. The driver checks the memory and copies; then it calls
/// [`commit`](crate::Stream::commit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The segment has no payload, and no STag or buffer to check (RFC 5041 §5.2).
    Nothing,
    /// Memory that the peer names, for which it needs the right to write.
    Write {
        /// The buffer.
        stag: Stag,
        /// Tagged Offset of the payload.
        to: u64,
    },
    /// The receive that was taken when this message began. The payload fits.
    Receive {
        /// Message Offset of the payload.
        mo: u32,
    },
    /// The sink of a Read of this end. The payload fits.
    Sink {
        /// The id given to [`issue_read`](crate::Stream::issue_read).
        id: u64,
        /// The sink's STag.
        stag: Stag,
        /// Tagged Offset of the payload.
        to: u64,
        /// Offset of the payload from the first octet of the Read.
        offset: u32,
    },
    /// Memory of the driver's: a message to RDMAP itself, of at most
    /// [`CONTROL_MAX`](crate::CONTROL_MAX) octets. Keep it for `commit`.
    Control,
    /// No place: the stream has ended, and every segment is dropped without a word (RFC 5041 §7.1).
    Dropped,
}

/// The effect of the segment just committed. Of a message in several segments only the last one has
/// an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// No effect.
    None,
    /// A Write is complete. The program is not told (RFC 5040 §5.1).
    WriteDone,
    /// A Send is complete, and the receive with it.
    Received {
        /// Octets of the message.
        length: u32,
        /// The STag to be invalidated before the receive completes; a failure is
        /// [`Fault::invalidate`](crate::Fault::invalidate).
        invalidate: Option<Stag>,
        /// True if the completion wakes threads that wait for solicited completions only.
        solicited: bool,
    },
    /// Immediate Data. It completes a receive and leaves its memory alone.
    Immediate {
        /// The data.
        data: [u8; 8],
        /// True if the completion wakes threads that wait for solicited completions only.
        solicited: bool,
    },
    /// A Read or an atomic operation of the peer's was queued: see
    /// [`next_response`](crate::Stream::next_response).
    InboundRequest,
    /// A Read of this end is complete.
    ReadDone {
        /// The id given to [`issue_read`](crate::Stream::issue_read).
        id: u64,
    },
    /// An atomic operation of this end is complete.
    AtomicDone {
        /// The id given to [`issue_atomic`](crate::Stream::issue_atomic).
        id: u64,
        /// The target's value before the operation.
        original: u64,
    },
    /// The peer has ended the stream by a Terminate. Nothing more is received or sent.
    Terminated(TerminateRepr),
}
