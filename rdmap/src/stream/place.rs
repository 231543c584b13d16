//! What a stream tells its driver: where a payload goes, and what a message means.

use rddp_ddp::Stag;

use crate::TerminateRepr;

/// Where the payload of a segment goes. The driver checks the memory and copies; then it calls
/// [`commit`](crate::Stream::commit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// There is none, and no STag or buffer to check for it (RFC 5041 §5.2).
    Nothing,
    /// To memory that the peer names: it needs the right to write there.
    Write {
        /// The buffer.
        stag: Stag,
        /// Where in it.
        to: u64,
    },
    /// Into the receive that the stream was told of when this message began. It fits.
    Receive {
        /// Where in it.
        mo: u32,
    },
    /// Into the sink of a Read of ours. It fits.
    Sink {
        /// As given to [`issue_read`](crate::Stream::issue_read).
        id: u64,
        /// The sink.
        stag: Stag,
        /// Where in it by TO.
        to: u64,
        /// Where in it by octets from the first one that the Read asked for.
        offset: u32,
    },
    /// Nowhere: it is RDMAP's own, of no more than [`CONTROL_MAX`](crate::CONTROL_MAX) octets. Keep
    /// it for `commit`.
    Control,
    /// Nowhere: the stream is dead, and every segment is dropped without a word (RFC 5041 §7.1).
    Dropped,
}

/// What the segment just committed has brought about. Of a message in several segments only the
/// last one brings anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing.
    None,
    /// A Write is complete. It is nobody's business but the engine's (RFC 5040 §5.1).
    WriteDone,
    /// A Send is complete, and the receive with it.
    Received {
        /// Octets of the message.
        length: u32,
        /// To be invalidated before the receive completes; a failure is
        /// [`Fault::invalidate`](crate::Fault::invalidate).
        invalidate: Option<Stag>,
        /// Wakes those who wait for solicited completions only.
        solicited: bool,
    },
    /// Immediate Data. It completes a receive and leaves its memory alone.
    Immediate {
        /// The data.
        data: [u8; 8],
        /// Wakes those who wait for solicited completions only.
        solicited: bool,
    },
    /// A Read or an atomic operation of the peer's was queued: see
    /// [`next_response`](crate::Stream::next_response).
    InboundRequest,
    /// A Read of ours is complete.
    ReadDone {
        /// As given to [`issue_read`](crate::Stream::issue_read).
        id: u64,
    },
    /// An atomic operation of ours is complete.
    AtomicDone {
        /// As given to [`issue_atomic`](crate::Stream::issue_atomic).
        id: u64,
        /// What the target held before.
        original: u64,
    },
    /// The peer has ended the stream. It is dead now, and nothing is sent any more.
    Terminated(TerminateRepr),
}
