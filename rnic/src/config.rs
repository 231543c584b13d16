//! Settings of a device and of a QP. No setting is process-wide.

use std::sync::Arc;

use crate::cq::CompletionQueue;
use crate::error::NamedBy;
use crate::event::{EventQueue, EventSink};
use crate::kernel::{KernelPlacement, Placement};
use crate::mem::{Access, QpNum};
use crate::queues::options::{NoReceive, RecordOptions, Transport};
use crate::srq::SharedReceiveQueue;

/// Settings of a device: limits for the memory and the sockets that peers make it keep, and a sink
/// for its events.
///
/// ```
/// use rddp_rnic::{Rnic, RnicConfig};
/// let rnic = Rnic::with_config(&RnicConfig { max_waiting: 16, ..Default::default() })?;
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RnicConfig {
    /// The greatest number of connections, of all listeners together, whose Request has not come
    /// whole yet. For one more, the oldest from the address (or network) with the most of them is
    /// closed. As many that were rejected are kept until their peers have closed them, for two
    /// seconds at most; for one more the oldest of those is closed.
    pub max_half_open: usize,
    /// The greatest number of such connections from one IPv4 address, or from one /64 network of
    /// IPv6 addresses.
    pub max_half_open_per_peer: usize,
    /// The greatest number of connections, of all listeners together, whose Request waits for the
    /// program's answer. Each holds a descriptor. One more is closed.
    pub max_waiting: usize,
    /// The greatest number of such connections from one IPv4 address, or from one /64 network of
    /// IPv6 addresses.
    pub max_waiting_per_peer: usize,
    /// The octets of partly received FPDUs that all QPs together may keep. A QP with more is not
    /// read until others have finished, and a QP that keeps others waiting for seconds is reset.
    /// Octets that a QP over plain TCP has read ahead of its receives count, too; it reads none
    /// ahead while half of the limit is taken.
    pub max_partial: usize,
    /// A receiver for the asynchronous events of all QPs as they happen, besides the queue and the
    /// sink of each QP. Numbers of QPs are a device's own: see [`EventSink`].
    pub event_sink: Option<Arc<dyn EventSink>>,
    /// The RDMA device of the host by which connections are made, such as `siw0` or `mlx5_0`;
    /// `soft` is this library itself. Without a name here, the variable `RDDP_DEVICE` names it, and
    /// without that it is this library. docs/device.md says what such a device has.
    pub device: Option<String>,
    /// Placement in the kernel, for QPs that choose it ([`QpConfig::placement`]). Needs the feature
    /// `kernel`, and rights.
    pub kernel: Option<KernelPlacement>,
}

impl Default for RnicConfig {
    fn default() -> Self {
        RnicConfig {
            max_half_open: 1024,
            max_half_open_per_peer: 512,
            max_waiting: 4096,
            max_waiting_per_peer: 1024,
            max_partial: 256 << 20,
            event_sink: None,
            device: None,
            kernel: None,
        }
    }
}

impl RnicConfig {
    /// The name that stands for this library itself in [`device`](Self::device).
    pub const SOFTWARE: &str = "soft";

    /// Returns the name of the device of the host, if there is to be one, and who gives it.
    pub(crate) fn host_device(&self) -> Option<(String, NamedBy)> {
        let by_program = self.device.clone().map(|name| (name, NamedBy::Program));
        let by_variable = || Some((std::env::var("RDDP_DEVICE").ok()?, NamedBy::Variable));
        let named = by_program.or_else(by_variable);
        named.filter(|(name, _)| !matches!(name.as_str(), "" | Self::SOFTWARE))
    }
}

/// Settings of a QP.
///
/// ```
/// use rddp_rnic::{Access, QpConfig, Rnic};
/// let rnic = Rnic::open()?;
/// let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16)?);
/// let config = QpConfig { max_send: 8, inbound_write: false, ..QpConfig::new(&cq) };
/// assert!(!pd.create_qp(&config)?.inbound().contains(Access::REMOTE_WRITE));
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct QpConfig {
    /// The completion queue of the send queue.
    pub send_cq: CompletionQueue,
    /// The completion queue of the receives.
    pub recv_cq: CompletionQueue,
    /// The shared receive queue that the QP takes its receives from; `None` gives it a receive
    /// queue of its own.
    pub srq: Option<SharedReceiveQueue>,
    /// The number of requests that the send queue can hold; 0 for a QP that only receives.
    pub max_send: usize,
    /// The number of receives that the QP's own receive queue can hold; may be 0.
    pub max_recv: usize,
    /// A request keeps its place in its queue until its completion has been polled, if it makes
    /// one, so that a completion queue which is as long as the queues cannot overflow. Without, it
    /// has its place until it completes. Receives of a shared queue have theirs until they are
    /// taken.
    pub until_polled: bool,
    /// With `until_polled`: a request that makes no completion keeps its place, too, until the
    /// completion of a later one of its queue has been polled, as with adapters.
    pub quiet_until_polled: bool,
    /// Completions that the program has not polled leave their queues when the QP is reset or
    /// dropped, as with adapters.
    pub forgets_completions: bool,
    /// Allows the peer to Read, and to use atomic operations, where regions allow that, too.
    pub inbound_read: bool,
    /// Allows the peer to Write where regions allow that, too.
    pub inbound_write: bool,
    /// Treatment of a Send for which no receive is posted.
    pub no_receive: NoReceive,
    /// The queue of asynchronous events; the device's own when `None`. One that QPs of another
    /// device use is refused, unless the devices are [beside](crate::Rnic::open_beside) each other.
    pub events: Option<EventQueue>,
    /// A receiver for each asynchronous event as it happens, besides the queue.
    pub event_sink: Option<Arc<dyn EventSink>>,
    /// The level at which the peer's Writes are placed. Where the kernel cannot (link-local IPv6,
    /// markers, large FPDUs, a device without [`RnicConfig::kernel`]) that is the user level all
    /// the same, and [`Rnic::left_to_user`](crate::Rnic::left_to_user) counts it.
    pub placement: Placement,
    /// The wire that messages travel by.
    pub transport: Transport,
    /// Bounds of the peer's records, where the wire is [`Transport::Record`].
    pub records: RecordOptions,
    /// The number that completions and events name the QP by, for programs whose numbers mean
    /// something to others; `None` has the device choose one. A number that another QP has is
    /// refused.
    pub num: Option<QpNum>,
}

impl QpConfig {
    /// Settings for a QP with one completion queue for both directions.
    pub fn new(cq: &CompletionQueue) -> Self {
        QpConfig {
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            max_send: 128,
            max_recv: 128,
            until_polled: false,
            quiet_until_polled: false,
            forgets_completions: false,
            inbound_read: true,
            inbound_write: true,
            no_receive: NoReceive::Terminate,
            events: None,
            event_sink: None,
            placement: Placement::User,
            transport: Transport::default(),
            records: RecordOptions::default(),
            num: None,
        }
    }

    /// Returns the rights that `inbound_read` and `inbound_write` leave to the peer.
    pub(crate) fn inbound(&self) -> Access {
        let mut rights = Access::empty();
        rights.set(Access::REMOTE_WRITE, self.inbound_write);
        rights.set(Access::REMOTE_READ | Access::REMOTE_ATOMIC, self.inbound_read);
        rights
    }
}
