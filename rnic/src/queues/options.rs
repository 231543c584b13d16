//! Choices that a queue pair is made with.

/// The wire that messages travel by between a QP and its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// iWARP over TCP: RDMAP over DDP over MPA (RFC 5040, 5041, 5044).
    #[default]
    Iwarp,
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
