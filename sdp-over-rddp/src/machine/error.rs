//! What a peer may not do, and what our caller may not do now.

/// Breaches of the protocol by the peer. The connection is over, with EPROTO at this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A number that does not follow the one before.
    #[error("message {got} came where {expected} was due")]
    Mseq {
        /// The number that came.
        got: u32,
        /// The number that was due.
        expected: u32,
    },
    /// An acknowledgement of a message that was never sent, or one that goes back.
    #[error("message {0} is acknowledged, and cannot be")]
    MseqAck(u32),
    /// More messages than there were buffers for.
    #[error("a message came without a buffer to hold it")]
    NoBuffer,
    /// A message longer than a buffer.
    #[error("a message of {0} octets does not fit a buffer")]
    TooLong(u32),
    /// A message behind an abort.
    #[error("a message came after the connection was aborted")]
    AfterAbort,
    /// Payload or an advert behind `DisConn`.
    #[error("payload came behind a DisConn")]
    AfterDisConn,
    /// A second `DisConn`.
    #[error("a second DisConn")]
    SecondDisConn,
    /// A `DisConn` while the peer's own `SrcAvail` is out.
    #[error("a DisConn under a SrcAvail")]
    DisConnUnderSource,
    /// An `AbortConn` without a `DisConn` before it.
    #[error("an AbortConn before DisConn")]
    AbortConn,
    /// Payload while the peer's own `SrcAvail` is out.
    #[error("payload under a SrcAvail")]
    PayloadUnderSource,
    /// A `SrcAvail` in Buffered.
    #[error("a SrcAvail in Buffered")]
    SourceMode,
    /// Inline payload that the mode does not allow: none or all in Combined, some in Pipelined.
    #[error("a SrcAvail of {len} octets with {inline} of them inline")]
    SourceInline {
        /// Octets advertised.
        len: u32,
        /// Octets of payload.
        inline: usize,
    },
    /// More adverts than this end takes.
    #[error("more adverts than this end takes")]
    TooManyAdverts,
    /// A `SrcAvail` while the peer's own cancel is unanswered.
    #[error("a SrcAvail during a cancel")]
    SourceDuringCancel,
    /// A `SrcAvail` from a source that holds a `SinkAvail`.
    #[error("a SrcAvail from a source that has a SinkAvail")]
    SourceUnderSink,
    /// An advert of no octets, or one that goes past the end of the address space.
    #[error("an advert of {len} octets at {to:#x}")]
    AdvertRange {
        /// Octets advertised.
        len: u32,
        /// The Tagged Offset.
        to: u64,
    },
    /// A `SinkAvail` outside Pipelined, by a sink that knew.
    #[error("a SinkAvail outside Pipelined")]
    SinkMode,
    /// A `SinkAvail` shorter than one message.
    #[error("a SinkAvail of {0} octets is too short")]
    SinkTooShort(u32),
    /// A `SinkAvail` behind our `DisConn`, by a sink that knew.
    #[error("a SinkAvail after the last octet")]
    SinkAfterDisConn,
    /// A `RdmaRdCompl` without an advert.
    #[error("a RdmaRdCompl without a SrcAvail")]
    NothingToRead,
    /// A `RdmaRdCompl` of more than was advertised.
    #[error("a RdmaRdCompl of {octets} octets, {left} were left")]
    ReadTooMuch {
        /// Octets reported.
        octets: u32,
        /// Octets that were left.
        left: u32,
    },
    /// A `SendSm` in Pipelined that answers no cancel, or one without an advert.
    #[error("a SendSm without cause")]
    UnaskedSendSm,
    /// A `RdmaWrCompl` without an advert.
    #[error("a RdmaWrCompl without a SinkAvail")]
    NothingToWrite,
    /// A `RdmaWrCompl` of more than was advertised.
    #[error("a RdmaWrCompl of {octets} octets into {len}")]
    WroteTooMuch {
        /// Octets reported.
        octets: u32,
        /// Octets advertised.
        len: u32,
    },
    /// A `SinkCancelAck` that answers no cancel.
    #[error("a SinkCancelAck without cause")]
    UnaskedSinkCancelAck,
    /// A `ModeChange` that is no transition, or comes from the wrong side.
    #[error("a ModeChange that does not exist")]
    ModeChange,
    /// A `ModeChange` while adverts forbid it.
    #[error("a ModeChange under a SrcAvail")]
    ModeChangeUnderSource,
    /// `SuspComm` or `SuspCommAck`, which this end refuses.
    #[error("the peer asks to suspend the connection")]
    Suspend,
}

/// Reasons why the caller's message cannot be made now, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Blocked {
    /// The peer has too few buffers: wait for credits.
    #[error("no credits")]
    Credits,
    /// An own `SrcAvail` is out: wait, or cancel.
    #[error("an own advert is out")]
    Source,
    /// Octets of an own advert that came back go first.
    #[error("octets of an own advert go first")]
    Returned,
    /// An own cancel is unanswered.
    #[error("a cancel is unanswered")]
    Cancelling,
    /// A control message goes first: [`next_control`](super::Machine::next_control).
    #[error("a control message goes first")]
    Control,
    /// A `SinkAvail` of the peer is partly written: write on, or complete it.
    #[error("the peer's advert is partly written")]
    PartlyWritten,
    /// The peer has given a place to write into: `SrcAvail` would cross it.
    #[error("the peer has a SinkAvail out")]
    PeerSink,
    /// A `SrcAvail` of the peer is pending.
    #[error("the peer has a SrcAvail out")]
    PeerSource,
    /// As many adverts are out as the peer takes, or as the tables hold.
    #[error("too many adverts are out")]
    Adverts,
    /// The mode does not have that message.
    #[error("not in this mode")]
    Mode,
    /// A length that the rules do not allow.
    #[error("not of this length")]
    Length,
    /// The half is closed, or the connection over.
    #[error("closed")]
    Closed,
    /// There is no memory for adverts: the machine was made without [`Tables`](super::Tables).
    #[error("no tables")]
    NoTables,
    /// There is no such thing to work on.
    #[error("nothing there")]
    Nothing,
}
