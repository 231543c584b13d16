//! Choices that a queue pair is made with.

use rddp_rdma::{Operation, RecvWr};

/// The wire that messages travel by between a QP and its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// iWARP over TCP: RDMAP over DDP over MPA (RFC 5040, 5041, 5044).
    #[default]
    Iwarp,
    /// TCP's octets as they are, to and from any TCP program. The only requests are Sends, which
    /// are written one behind the other, and receives, which complete with whatever one read
    /// brings, or when they are full ([`RecvWr::full`](crate::RecvWr::full)). Octets without a
    /// receive wait in TCP.
    ///
    /// [`QueuePair::disconnect`](crate::QueuePair::disconnect) ends the direction of this end
    /// behind all that is posted, and receives go on. The peer's FIN ends the receives, which are
    /// flushed (one that was being filled says how far), and Sends go on. With both FINs the QP is
    /// idle again.
    Tcp,
}

impl Transport {
    /// Returns whether the wire has such a request.
    pub(crate) fn sends(self, operation: &Operation) -> bool {
        match self {
            Transport::Iwarp => true,
            Transport::Tcp => matches!(operation, Operation::Send { invalidate: None, .. }),
        }
    }

    /// Returns whether the wire has such a receive. Messages of iWARP have an end of their own.
    pub(crate) fn receives(self, wr: &RecvWr) -> bool {
        match self {
            Transport::Iwarp => !wr.full,
            Transport::Tcp => true,
        }
    }
}

/// Treatment of a Send, or of Immediate Data, for which no receive is posted.
///
/// A setting of the software device alone, which is why it is not among the words of `rddp-rdma`:
/// other devices have no choice.
///
/// ```
/// use rddp_rnic::{NoReceive, QpConfig, Rnic};
/// let rnic = Rnic::open()?;
/// let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16)?);
/// let mut config = QpConfig { no_receive: NoReceive::Wait, ..QpConfig::new(&cq) };
/// assert!(pd.create_qp(&config).is_err(), "such a QP serves no Reads");
/// config.inbound_read = false;
/// pd.create_qp(&config)?;
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoReceive {
    /// The connection ends with a Terminate (RFC 5041 §7.2).
    #[default]
    Terminate,
    /// The message waits until a receive is posted. Nothing more is read meanwhile, so TCP's window
    /// holds the peer.
    ///
    /// Everything that arrives later waits behind that message, Responses too. So such a QP has no
    /// Reads and atomics either way: IRD and ORD are 0, `inbound_read` has to be off, and its
    /// receives are its own. What was read behind the message counts as partial FPDUs do
    /// ([`RnicConfig::max_partial`](crate::RnicConfig::max_partial)): when memory for those is
    /// short, a QP that has kept some for seconds is reset.
    Wait,
}
