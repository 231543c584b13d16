//! Completions: what finished work requests report (draft-hilland-rddp-verbs §8.3).

use core::num::NonZeroU32;

use rddp_ddp::Stag;

use crate::QpNum;

/// The kind of request that completed.
///
/// ```
/// use rddp_rdma::{Completed, Completion};
///
/// /// Returns the message's length, if this is a receive.
/// fn received(completion: &Completion) -> Option<u32> {
///     match completion.completed {
///         Completed::Receive | Completed::ReceiveImmediate => Some(completion.byte_len),
///         _ => None,
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Completed {
    /// A Send, of any variant.
    Send,
    /// Immediate Data sent.
    Immediate,
    /// An RDMA Write, with or without Immediate Data.
    Write,
    /// An RDMA Read.
    Read,
    /// A FetchAdd.
    FetchAdd,
    /// A CmpSwap.
    CmpSwap,
    /// A window was bound.
    Bind,
    /// An STag was invalidated locally.
    Invalidate,
    /// A receive, by a Send.
    Receive,
    /// A receive, by Immediate Data.
    ReceiveImmediate,
}

/// The outcome of a request. At most one completion of a QP is neither `Success` nor `Flushed`,
/// besides messages that are cut to the length of their receives on wires that go on behind that.
///
/// ```
/// use rddp_rdma::{Completion, Status};
///
/// /// Returns whether the connection had ended, for whatever reason, when the request's turn came.
/// fn is_flushed(completion: &Completion) -> bool {
///     completion.status == Status::Flushed
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Status {
    /// The request is done.
    #[error("success")]
    Success,
    /// An SGE names memory that is not registered, has other rights, another PD, or too few octets,
    /// or that has gone bad: a file that was cut short, a range that was unmapped.
    #[error(
        "local protection: an SGE's STag, range, right or protection domain is wrong, or its memory gone"
    )]
    LocalProtection,
    /// The request cannot be carried out on this connection (a Read with ORD 0, a message of 4 GiB
    /// or more).
    #[error("local operation: this connection cannot carry out the request")]
    LocalOperation,
    /// A device of the host takes no requests of this process, which runs for another user, or in
    /// other groups, than when it opened the device.
    #[error("the process has changed its user or groups since it opened the device: open it anew")]
    Credentials,
    /// A bind or a local invalidate was refused.
    #[error("memory window or invalidate refused")]
    MemoryBind,
    /// The message was longer than this receive.
    #[error("the message is longer than the receive")]
    MessageTooLong,
    /// The peer asked to invalidate an STag that it may not.
    #[error("the peer's Send named an STag that it may not invalidate")]
    RemoteInvalidate,
    /// The peer refused access to its memory, and said so in a Terminate.
    #[error("the peer refused access to its memory")]
    RemoteAccess,
    /// The peer refused the request: a Send that is longer than its receive, say. Told where the
    /// wire acknowledges requests.
    #[error("the peer refused the request")]
    RemoteInvalidRequest,
    /// The peer could not carry out the request. Told where the wire acknowledges requests.
    #[error("the peer could not carry out the request")]
    RemoteOperation,
    /// The peer had no receive for the message, try by try. Told where the wire acknowledges
    /// requests.
    #[error("the peer had no receive for the message")]
    ReceiverNotReady,
    /// The peer has gone, or does not answer, and may or may not have carried out the request. Told
    /// where the wire acknowledges requests.
    #[error("the peer does not answer")]
    Unanswered,
    /// The peer ended the stream inside of a message; what had come of it is in the receive.
    #[error("the stream ended inside of a message")]
    EndOfStream,
    /// A device of the host has failed the request for a reason that has no word here. The log has
    /// its numbers: a status with one of them in it would make each poll slower.
    #[error("the device failed the request, for a reason of its own: the log has its numbers")]
    Other,
    /// The connection ended before the request was done.
    #[error("flushed: the connection ended before this request was done")]
    Flushed,
}

/// One entry of a completion queue.
///
/// ```
/// use rddp_rdma::{Completion, CompletionError};
///
/// /// Adds up what was received; the first request that failed ends this.
/// fn total(completions: impl Iterator<Item = Completion>) -> Result<u64, CompletionError> {
///     completions.map(|completion| Ok(u64::from(completion.ok()?.byte_len))).sum()
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The `wr_id` that the program gave the work request.
    pub wr_id: u64,
    /// The outcome of the request.
    pub status: Status,
    /// The kind of request.
    pub completed: Completed,
    /// Octets received, or read; 0 for what was sent. A receive by Immediate Data, whose memory is
    /// left alone: the octets of the peer's last Write before it, 0 if other Immediate Data has
    /// come since.
    pub byte_len: u32,
    /// The QP that the request was posted to (with a shared receive queue: the QP that received).
    pub qp: QpNum,
    /// Receives: the local STag that the peer's Send invalidated.
    pub invalidated: Option<Stag>,
    /// Receives: the Immediate Data.
    pub immediate: Option<[u8; 8]>,
    /// Receives of unreliable datagrams: the number of the QP that has sent it, as the datagram
    /// says.
    pub source: Option<NonZeroU32>,
    /// Receives: the peer asked for a solicited event.
    pub solicited: bool,
}

impl Completion {
    /// Returns the completion if its request was a success.
    ///
    /// # Errors
    /// Any other status, with what names the request.
    #[inline]
    pub fn ok(self) -> Result<Self, CompletionError> {
        if self.status == Status::Success {
            return Ok(self);
        }
        let Completion { wr_id, completed, qp, status, .. } = self;
        Err(CompletionError { wr_id, completed, qp, status })
    }

    /// Returns whether this wakes threads that wait for solicited completions only, as all errors
    /// do.
    #[inline]
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.solicited || self.status != Status::Success
    }

    /// Returns the 32-bit immediate by the convention of cxgb4: big-endian in the first four
    /// octets.
    #[must_use]
    pub fn immediate_u32(&self) -> Option<u32> {
        let [a, b, c, d, ..] = self.immediate?;
        Some(u32::from_be_bytes([a, b, c, d]))
    }
}

/// A request that has completed otherwise than by success: see [`Completion::ok`].
///
/// ```
/// use rddp_rdma::{Completion, CompletionError, Status};
///
/// /// Returns whether the peer refused a request that the program had numbered so.
/// fn was_refused(completion: Completion, wr_id: u64) -> bool {
///     let Err(CompletionError { wr_id: failed, status, .. }) = completion.ok() else { return false };
///     failed == wr_id && status == Status::RemoteAccess
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request {wr_id} ({completed:?}) of {qp}: {status}")]
#[non_exhaustive]
pub struct CompletionError {
    /// The `wr_id` that the program gave the work request.
    pub wr_id: u64,
    /// The kind of request.
    pub completed: Completed,
    /// The QP that the request was posted to.
    pub qp: QpNum,
    /// The outcome of the request.
    pub status: Status,
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECEIVED: Completion = Completion {
        wr_id: 1,
        status: Status::Success,
        completed: Completed::ReceiveImmediate,
        byte_len: 0,
        qp: QpNum(1),
        invalidated: None,
        immediate: Some([0x12, 0x34, 0x56, 0x78, 9, 9, 9, 9]),
        source: None,
        solicited: false,
    };

    #[test]
    fn a_completion_that_is_no_success_is_an_error_that_names_its_request() {
        assert_eq!(RECEIVED.ok(), Ok(RECEIVED));
        let error = Completion { status: Status::Flushed, ..RECEIVED }.ok().unwrap_err();
        assert_eq!(error.status, Status::Flushed);
        assert!(error.to_string().starts_with("request 1 (ReceiveImmediate) of QP 1: flushed"), "{error}");
    }

    #[test]
    fn errors_and_solicited_receives_are_urgent() {
        assert!(!RECEIVED.is_urgent());
        assert!(Completion { solicited: true, ..RECEIVED }.is_urgent());
        assert!(Completion { status: Status::Flushed, ..RECEIVED }.is_urgent());
    }

    #[test]
    fn the_32_bit_immediate_is_the_first_four_octets() {
        assert_eq!(RECEIVED.immediate_u32(), Some(0x1234_5678));
        assert_eq!(Completion { immediate: None, ..RECEIVED }.immediate_u32(), None);
    }
}
