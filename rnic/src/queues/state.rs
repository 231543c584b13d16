//! The states of a queue pair (draft-hilland-rddp-verbs §6.2).

/// The state of a QP.
///
/// ```
/// use rddp_rnic::{QpConfig, QpState, Rnic};
/// let rnic = Rnic::open()?;
/// let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16)?);
/// let qp = pd.create_qp(&QpConfig::new(&cq))?;
/// qp.abort();
/// assert_eq!(qp.state(), QpState::Error);
/// assert!(qp.reset() && qp.state() == QpState::Idle);
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QpState {
    /// No connection. Receives may be posted, and sends queued.
    Idle,
    /// Connected ("RTS" in the draft): requests are sent and messages received.
    ReadyToSend,
    /// A request of [`Transport::Unreliable`](crate::Transport::Unreliable) has failed ("SQE" in
    /// InfiniBand's words). Requests are flushed, and messages received, until
    /// [`QueuePair::resume_sends`](crate::QueuePair::resume_sends).
    SendsFailed,
    /// One end has asked for a graceful close; nothing may be outstanding.
    Closing,
    /// A Terminate was sent or received; the connection is being closed.
    Terminate,
    /// No connection any more; everything posted is flushed.
    Error,
}

impl QpState {
    /// Returns whether a receive posted now is kept rather than flushed at once, where its wire has
    /// no half closes.
    pub(crate) fn takes_receives(self) -> bool {
        matches!(self, QpState::Idle | QpState::ReadyToSend | QpState::SendsFailed)
    }

    /// Returns whether messages are received.
    pub(crate) fn is_at_work(self) -> bool {
        matches!(self, QpState::ReadyToSend | QpState::SendsFailed)
    }
}

impl std::fmt::Display for QpState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            QpState::Idle => "idle",
            QpState::ReadyToSend => "ready to send",
            QpState::SendsFailed => "sends failed",
            QpState::Closing => "closing",
            QpState::Terminate => "terminate",
            QpState::Error => "error",
        })
    }
}
