//! Events that a connection returns to its queue pair.

use rddp_iwarp::Trouble;
use rddp_rdma::{AsyncEventKind, Status};
use rddp_rdmap::{Fault, Offending, TerminateRepr};

/// A change of the queue pair's state that its connection has found necessary: see
/// [`QpInner::on_event`](crate::qp::QpInner::on_event).
#[derive(Debug)]
pub(crate) enum WireEvent {
    /// The peer has broken a rule, or this side cannot go on; and the first faulty segment.
    Fault(Fault, Option<Offending>),
    /// The peer has sent a Terminate; and the status that the oldest request ends with that the
    /// peer has not answered, if the Terminate refuses it.
    Terminated(TerminateRepr, Option<Status>),
    /// The graceful close that had to wait for this connection can go on.
    Close,
    /// The peer has sent its FIN.
    Fin,
    /// The peer has sent its FIN, and this end may go on sending: the wire has half closes.
    HalfClosed,
    /// Both FINs have been seen.
    Closed,
    /// A request has failed on this side, of datagrams without a connection: receives go on.
    SendsFailed,
    /// There has been no receive for the oldest request at the end of its tries.
    NoReceive,
    /// TCP no longer sends or receives, or has to be reset.
    Lost(AsyncEventKind),
}

impl From<Trouble> for WireEvent {
    fn from(trouble: Trouble) -> Self {
        WireEvent::Fault(trouble.fault, trouble.offending)
    }
}

impl From<Fault> for WireEvent {
    fn from(fault: Fault) -> Self {
        WireEvent::Fault(fault, None)
    }
}
