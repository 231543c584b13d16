//! Sends and receives under way, and how they end.

use core::time::Duration;
use std::collections::VecDeque;

use crate::machine::{SinkId, SourceId, Violation};
use crate::transport::{Memory, Transport};
use crate::wire::FormatError;

/// The number of an operation of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(pub u64);

/// The end of an operation. From then on nobody touches its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The operation.
    pub id: OperationId,
    /// Octets sent or received. Some may have been so before an error.
    pub octets: usize,
    /// Reason why there are no more; `None` also at the end of the stream.
    pub error: Option<Error>,
}

/// Reasons why an operation, or a connection, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not without waiting (EAGAIN).
    #[error("not without waiting")]
    WouldBlock,
    /// The operation was taken back before any octet of it was sent or received (EINTR).
    #[error("taken back")]
    Cancelled,
    /// Memory of the program cannot be used (EFAULT).
    #[error("bad address")]
    Address,
    /// There is no urgent octet to receive apart from the stream (EINVAL).
    #[error("no urgent octet")]
    NoUrgent,
    /// This half was closed before (EPIPE).
    #[error("this half of the connection is closed")]
    Closed,
    /// The connection was reset (ECONNRESET).
    #[error("the connection was reset")]
    Reset,
    /// This end aborted the connection (ECONNABORTED).
    #[error("the connection was aborted")]
    Aborted,
    /// The peer did not answer a cancel, or a close, in time (ETIMEDOUT).
    #[error("the peer did not answer in time")]
    TimedOut,
    /// A message of the peer had no form of SDP (EPROTO).
    #[error("bad message: {0}")]
    Format(FormatError),
    /// A message of the peer came where it may not (EPROTO).
    #[error("the peer broke a rule: {0}")]
    Violation(Violation),
}

/// Options of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Ends at once, with what is possible without waiting; never uses RDMA on the program's
    /// memory.
    pub non_blocking: bool,
    /// Receives: leaves the octets where they are (`MSG_PEEK`).
    pub peek: bool,
    /// Receives: waits until the memory is full (`MSG_WAITALL`).
    pub wait_all: bool,
    /// Sends: the last octet is urgent (`MSG_OOB`).
    pub urgent: bool,
}

pub(super) struct Sending<T: Transport> {
    pub(super) id: OperationId,
    pub(super) memory: T::Memory,
    pub(super) options: Options,
    /// Octets that were given to the peer, or offered.
    pub(super) sent: usize,
    /// Adverts that the peer may read from, oldest first.
    pub(super) adverts: VecDeque<Offered<T>>,
    /// Writes that have not completed yet.
    pub(super) writes: VecDeque<(u64, T::Region)>,
    /// The rest is sent as Data, since an advert was taken back or refused.
    pub(super) copies: bool,
    pub(super) is_stopped: bool,
    pub(super) error: Option<Error>,
}

/// An advert of a part of a send.
pub(super) struct Offered<T: Transport> {
    pub(super) source: SourceId,
    pub(super) at: usize,
    /// Octets that the peer has: those that went with the advert and those that it has read.
    pub(super) taken: usize,
    pub(super) region: T::Region,
    /// The time of the last progress.
    pub(super) since: Duration,
}

impl<T: Transport> Sending<T> {
    pub(super) fn left(&self) -> usize {
        if self.is_stopped { 0 } else { self.memory.len() - self.sent }
    }

    /// Returns the octets that the peer has, or that lie in private memory on the way there.
    pub(super) fn accepted(&self) -> usize {
        self.adverts.front().map_or(self.sent, |advert| advert.at + advert.taken)
    }

    pub(super) fn is_over(&self) -> bool {
        self.left() == 0 && self.adverts.is_empty() && self.writes.is_empty()
    }
}

pub(super) struct Receiving<T: Transport> {
    pub(super) id: OperationId,
    pub(super) memory: T::Memory,
    pub(super) options: Options,
    pub(super) filled: usize,
    /// The advert of the rest of the memory.
    pub(super) sink: Option<(SinkId, T::Region)>,
    /// A Read into the memory: its length and the registration.
    pub(super) reading: Option<(u64, usize, T::Region)>,
    pub(super) is_stopped: bool,
    pub(super) error: Option<Error>,
}

impl<T: Transport> Receiving<T> {
    pub(super) fn room(&self) -> usize {
        self.memory.len() - self.filled
    }

    pub(super) fn is_lent(&self) -> bool {
        self.sink.is_some() || self.reading.is_some()
    }
}

/// Octets of the stream that lie in private memory.
pub(super) struct Piece<T: Transport> {
    pub(super) storage: Storage<T>,
    pub(super) from: usize,
    pub(super) to: usize,
    /// The last octet is urgent.
    pub(super) urgent: bool,
}

pub(super) enum Storage<T: Transport> {
    Buffer(crate::transport::Buffer),
    /// Octets of an advert of the peer that were read ahead.
    Read(T::Memory),
}

/// A Read into private memory.
pub(super) struct ReadAhead<T: Transport> {
    pub(super) id: u64,
    pub(super) len: usize,
    pub(super) memory: T::Memory,
    pub(super) region: T::Region,
}
