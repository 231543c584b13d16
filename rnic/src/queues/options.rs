//! Choices that a queue pair is made with.

use rddp_rdma::{Operation, RecvWr};

/// The wire that messages travel by between a QP and its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// iWARP over TCP: RDMAP over DDP over MPA (RFC 5040, 5041, 5044).
    #[default]
    Iwarp,
    /// iWARP as above, between two ends of this device alone: a request completes when the peer has
    /// executed it, and not when TCP has it, and the first one that the peer refuses has the reason
    /// for its status. Either end acknowledges what the other sends; that it is such a QP is for
    /// the programs to agree on. A message without a receive waits for one
    /// ([`Patience`](crate::Patience)), and the peer's requests behind it, but no answers of its:
    /// unlike with [`NoReceive::Wait`](crate::NoReceive::Wait), which is not to be had here.
    Acknowledged,
    /// TCP's octets as they are, to and from any TCP program. The only requests are Sends, which
    /// are written one behind the other, and receives, which complete with whatever one read
    /// brings, or when they are full ([`RecvWr::full`](crate::RecvWr::full)). Octets without a
    /// receive wait in TCP.
    ///
    /// [`QueuePair::disconnect`](crate::QueuePair::disconnect) ends the direction of this end
    /// behind all that is posted, and receives go on. The peer's FIN
    /// ([`PeerDone`](crate::AsyncEventKind::PeerDone)) ends the receives, which are flushed, and
    /// Sends go on; a receive that was to be full and is not has
    /// [`Status::EndOfStream`](crate::Status::EndOfStream). With both FINs the QP is idle again.
    Tcp,
    /// Records over TCP: each Send is one message with its length in front, 32 bits big-endian, and
    /// completes one receive. Erlang's `{packet, 4}` and the `LengthDelimitedCodec` of tokio-util
    /// are such peers. A message of no octets is one, too. [`RecordOptions`] bound what a peer
    /// sends; else all is as with [`Tcp`](Self::Tcp).
    Record,
    /// UDP: each request is one datagram to an address of its own ([`SendWr::datagram`]), which
    /// arrives once or not at all, to and from any program.
    /// [`QueuePair::bind`](crate::QueuePair::bind) makes the QP ready to send. Each receive has
    /// [`Datagram::LEN`](crate::Datagram::LEN) octets in front of the message, which say where that
    /// came from.
    ///
    /// [`SendWr::datagram`]: crate::SendWr::datagram
    Udp,
    /// Unreliable datagrams between QPs of this device alone, over UDP: as [`Udp`](Self::Udp), but
    /// each request is for one QP of those at an address ([`SendWr::unreliable`]), which takes it
    /// if it has the `Q_Key` ([`QueuePair::set_qkey`](crate::QueuePair::set_qkey)) and a receive,
    /// and else drops and counts it. 16 octets in front of the message say for whom it is, and from
    /// whom. The number of the QP has to be chosen ([`QpConfig::num`](crate::QpConfig::num)) by the
    /// port that it is bound to ([`UdPeer::qp`](crate::UdPeer::qp)).
    ///
    /// [`SendWr::unreliable`]: crate::SendWr::unreliable
    Unreliable,
    /// A device of the host ([`RnicConfig::device`](crate::RnicConfig::device)): all queue pairs of
    /// such an [`Rnic`](crate::Rnic) have this wire in place of [`Iwarp`](Self::Iwarp), and no
    /// others. The device has its own protocol, iWARP or InfiniBand.
    Device,
}

/// Treatment of datagrams for which no receive is posted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithoutReceive {
    /// The socket keeps them, and drops what comes when it is full.
    #[default]
    Keep,
    /// This end drops and counts them ([`Counters::dropped`](crate::Counters::dropped)), so that a
    /// receive gets what comes later than that. So do unreliable datagrams of verbs.
    Drop,
}

/// Settings of a QP over UDP.
///
/// ```
/// use rddp_rnic::{DatagramOptions, WithoutReceive};
/// let as_verbs = DatagramOptions { without_receive: WithoutReceive::Drop, ..Default::default() };
/// assert!(!as_verbs.fragment);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramOptions {
    /// Datagrams that are longer than the path's MTU are cut by IP, and all is lost with one part.
    /// Without, they are refused ([`Status::LocalOperation`](crate::Status::LocalOperation)) and
    /// the QP goes on.
    pub fragment: bool,
    /// Treatment of datagrams for which no receive is posted. A QP of [`Transport::Unreliable`]
    /// drops them in any case.
    pub without_receive: WithoutReceive,
}

/// Bounds of the records that a peer sends.
///
/// ```
/// use rddp_rnic::{QpConfig, RecordOptions, Rnic, Transport};
/// let rnic = Rnic::open()?;
/// let mut config = QpConfig::new(&rnic.create_cq(16)?);
/// (config.transport, config.records) = (Transport::Record, RecordOptions { max_record: 1 << 16, drop_long: true });
/// rnic.alloc_pd().create_qp(&config)?;
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordOptions {
    /// The longest record. A longer one is the peer's fault, and ends the connection.
    pub max_record: u32,
    /// A record that is longer than its receive fills it, which completes with
    /// [`Status::MessageTooLong`](crate::Status::MessageTooLong); what does not fit is dropped, and
    /// the connection goes on. Without, it ends.
    pub drop_long: bool,
}

impl Default for RecordOptions {
    fn default() -> Self {
        RecordOptions { max_record: 16 << 20, drop_long: false }
    }
}

impl Transport {
    /// Returns whether the wire has such a request.
    pub(crate) fn sends(self, operation: &Operation) -> bool {
        match self {
            Transport::Iwarp => !matches!(
                operation,
                Operation::Datagram { .. } | Operation::Unreliable { .. } | Operation::SendImmediate { .. }
            ),
            Transport::Acknowledged => {
                !matches!(operation, Operation::Datagram { .. } | Operation::Unreliable { .. })
            }
            Transport::Unreliable => matches!(operation, Operation::Unreliable { .. }),
            Transport::Udp => matches!(operation, Operation::Datagram { .. }),
            Transport::Tcp | Transport::Record => {
                matches!(operation, Operation::Send { invalidate: None, .. })
            }
            // Each is held against the device's limits.
            Transport::Device => false,
        }
    }

    /// Returns whether the wire has such a receive: most have messages with an end of their own.
    pub(crate) fn receives(self, wr: &RecvWr) -> bool {
        match self {
            Transport::Tcp => true,
            // As above.
            Transport::Device => false,
            _ => !wr.full,
        }
    }

    /// Returns the name, as logs have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Transport::Iwarp => "iwarp",
            Transport::Acknowledged => "acknowledged",
            Transport::Tcp => "tcp",
            Transport::Record => "record",
            Transport::Udp => "udp",
            Transport::Unreliable => "unreliable",
            Transport::Device => "device",
        }
    }

    /// Returns whether the wire is datagrams of UDP: there are no connections.
    pub(crate) fn is_of_datagrams(self) -> bool {
        matches!(self, Transport::Udp | Transport::Unreliable)
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
