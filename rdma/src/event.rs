//! Asynchronous events: what happens to a QP and is told by no completion
//! (draft-hilland-rddp-verbs §8.3.3).

use rddp_rdmap::{Fault, TerminateCode};

use crate::QpNum;

/// The number of a completion queue, which no other of its device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CqNum(pub u64);

/// The number of a shared receive queue, which no other of its device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SrqNum(pub u64);

/// The object that an event is about.
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AsyncEvent {
    /// The QP that reports it.
    pub qp: QpNum,
    /// The object that it is about.
    pub element: Element,
    /// What happened.
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEventKind {
    /// The passive side has received the first FPDU: what it posts is sent from now on.
    Established,
    /// The graceful close is complete; the QP is idle again.
    CloseComplete,
    /// The peer closed, or this side was told to, while work was outstanding.
    BadClose,
    /// TCP lost the connection.
    ConnectionLost,
    /// The peer sent a Terminate.
    TerminateReceived(TerminateCode),
    /// The peer broke a rule, or this side could not go on: a Terminate was sent (if one could be),
    /// and why.
    Fault(Fault),
    /// A completion queue of this QP has overflowed.
    CqOverflow,
    /// A peer that took part in a shared receive queue has driven it to its limit.
    SrqLimit,
    /// A QP with a shared receive queue is in Error and takes no more receives: those that it had
    /// taken have completed.
    LastWqeReached,
    /// The Request has come that `begin_asking` waits for: the program is to `answer` it.
    Requested,
    /// What `begin` or `begin_to` began has come about: the QP is connected.
    Connected,
    /// What `begin` or `begin_to` began has failed: the QP is not connected, and `begun` says why.
    NotConnected,
    /// A defect of the device: its background thread panicked over this QP. Its connection
    /// was reset and all that was posted flushed; the other QPs go on. Where panics abort
    /// (`panic = "abort"`), the process ends instead.
    QpFailed,
    /// The background thread cannot go on, mostly because the program has closed a descriptor that
    /// is not its own. All connections of the device were reset, and none can be made any more.
    DeviceFailed,
}
