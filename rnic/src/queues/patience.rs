//! The patience of a queue pair whose requests are acknowledged with a peer that has no receive for
//! a message, or does not answer.

use std::time::Duration;

use crate::deadline::Deadline;

/// The patience of a QP whose requests are acknowledged ([`Transport::Acknowledged`]), in the terms
/// of InfiniBand.
///
/// [`Transport::Acknowledged`]: crate::Transport::Acknowledged
///
/// ```
/// use rddp_rnic::{Patience, QpConfig, Rnic};
/// let rnic = Rnic::open()?;
/// let qp = rnic.alloc_pd().create_qp(&QpConfig::new(&rnic.create_cq(16)?))?;
/// qp.set_patience(Patience { rnr_retries: Some(3), ..Patience::default() });
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Time in which a peer has to answer, or to show at least that octets move, while a request is
    /// outstanding; behind it the request has [`Status::Unanswered`](crate::Status::Unanswered). It
    /// counts from the first request on, whether or not the QP is connected by then. `None`: the
    /// end of the connection alone tells.
    pub answers: Option<Duration>,
    /// Time between two tries of a peer's message for which this QP has no receive.
    pub rnr_timer: Duration,
    /// Number of tries of a message for which the peer has no receive, besides the first; `None`
    /// for tries without an end. Behind the last the request has
    /// [`Status::ReceiverNotReady`](crate::Status::ReceiverNotReady).
    pub rnr_retries: Option<u8>,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { answers: None, rnr_timer: Duration::from_micros(640), rnr_retries: None }
    }
}

impl Patience {
    /// Returns the end of the tries of a message for which the receiver, which tries again after
    /// `timer`, has no receive now.
    pub(crate) fn end_of_tries(&self, timer: Duration) -> Deadline {
        Deadline::after_any(self.rnr_retries.map(|tries| timer * tries.into()))
    }
}
