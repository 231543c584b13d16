//! Asynchronous events: changes of a QP that no completion reports
//! (draft-hilland-rddp-verbs §8.3.3).

use core::net::SocketAddr;

use rddp_rdmap::{Fault, TerminateCode};

use crate::QpNum;

/// The number of a completion queue, which no other of its device has.
///
/// ```
/// use rddp_rdma::{CqNum, Element};
/// assert_ne!(Element::Cq(CqNum(1)), Element::Cq(CqNum(2)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CqNum(pub u64);

/// The number of a shared receive queue, which no other of its device has.
///
/// ```
/// use rddp_rdma::{Element, SrqNum};
/// assert_ne!(Element::Srq(SrqNum(1)), Element::Srq(SrqNum(2)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SrqNum(pub u64);

/// The object that an event is about.
///
/// ```
/// use rddp_rdma::{AsyncEvent, Element, SrqNum};
///
/// /// Returns the shared receive queue that an event is about.
/// fn shared_queue(event: &AsyncEvent) -> Option<SrqNum> {
///     match event.element {
///         Element::Srq(num) => Some(num),
///         _ => None,
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Element {
    /// The QP that reports it.
    Qp(QpNum),
    /// A completion queue of that QP.
    Cq(CqNum),
    /// The shared receive queue of that QP.
    Srq(SrqNum),
}

/// An event of a QP, or of what it uses.
///
/// ```
/// use rddp_rdma::{AsyncEvent, AsyncEventKind, Element, QpNum};
/// let event = AsyncEvent::new(QpNum(1), Element::Qp(QpNum(1)), AsyncEventKind::ConnectionLost);
/// assert!(event.kind.is_end());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AsyncEvent {
    /// The QP that reports it.
    pub qp: QpNum,
    /// The object that the event concerns.
    pub element: Element,
    /// The kind of event.
    pub kind: AsyncEventKind,
}

impl AsyncEvent {
    /// Creates the event that `qp` reports of `element`.
    #[must_use]
    pub fn new(qp: QpNum, element: Element, kind: AsyncEventKind) -> Self {
        Self { qp, element, kind }
    }
}

/// The kinds of asynchronous events.
///
/// ```
/// use rddp_rdma::AsyncEventKind;
///
/// /// Returns the reason why a connection is over, for a log; `None` while it is not, or in order.
/// fn trouble(kind: &AsyncEventKind) -> Option<String> {
///     match kind {
///         AsyncEventKind::CloseComplete => None,
///         AsyncEventKind::TerminateReceived(code) => Some(format!("the peer sent Terminate {code}")),
///         AsyncEventKind::Fault(fault) => Some(fault.to_string()),
///         kind => kind.is_end().then(|| format!("{kind:?}")),
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEventKind {
    /// The passive side has received the first FPDU: requests posted to it are sent from now on.
    Established,
    /// The graceful close is complete; the QP is idle again.
    CloseComplete,
    /// The peer closed, or this end's program did, while work was outstanding.
    BadClose,
    /// TCP lost the connection.
    ConnectionLost,
    /// The peer sends nothing more, and this end may go on: plain TCP has half closes.
    PeerDone,
    /// The peer's record is longer than any may be, or than the receive that it found.
    RecordTooLong {
        /// The length of the record.
        len: u32,
    },
    /// The peer sent a Terminate.
    TerminateReceived(TerminateCode),
    /// The peer broke a rule, or this end could not go on: the fault for which a Terminate was
    /// sent, if one could be.
    Fault(Fault),
    /// The network says that datagrams do not reach this address: nobody has its port, or there is
    /// no way to it. Who says so is not checked. Of many such events in a row some are left out.
    Unreachable(SocketAddr),
    /// A completion queue of this QP has overflowed.
    CqOverflow,
    /// Messages of a peer have taken receives of a shared receive queue down to its limit.
    SrqLimit,
    /// A QP with a shared receive queue is in Error and takes no more receives: those that it had
    /// taken have completed.
    LastWqeReached,
    /// The Request for which `begin_asking` waits has arrived: the program has to `answer` it.
    Requested,
    /// The startup that `begin` or `begin_to` began has succeeded: the QP is connected.
    Connected,
    /// The startup that `begin` or `begin_to` began has failed: the QP is not connected, and
    /// `begun` returns the reason.
    NotConnected,
    /// A defect of the device: its background thread panicked while it worked on this QP. The
    /// connection was reset and all that was posted flushed; other QPs go on. Where panics abort
    /// (`panic = "abort"`), the process ends instead.
    QpFailed,
    /// The background thread cannot go on, mostly because the program has closed a descriptor that
    /// is not its own. All connections of the device were reset, and none can be made any more.
    DeviceFailed,
}

impl AsyncEventKind {
    /// Returns whether the event tells that a connection is over, or was not made. Completions of
    /// what was posted may follow, and [`LastWqeReached`](Self::LastWqeReached).
    #[must_use]
    pub fn is_end(&self) -> bool {
        match self {
            AsyncEventKind::CloseComplete
            | AsyncEventKind::BadClose
            | AsyncEventKind::ConnectionLost
            | AsyncEventKind::RecordTooLong { .. }
            | AsyncEventKind::TerminateReceived(_)
            | AsyncEventKind::Fault(_)
            | AsyncEventKind::CqOverflow
            | AsyncEventKind::NotConnected
            | AsyncEventKind::QpFailed
            | AsyncEventKind::DeviceFailed => true,
            AsyncEventKind::Established
            | AsyncEventKind::Unreachable(_)
            | AsyncEventKind::PeerDone
            | AsyncEventKind::SrqLimit
            | AsyncEventKind::LastWqeReached
            | AsyncEventKind::Requested
            | AsyncEventKind::Connected => false,
        }
    }
}
