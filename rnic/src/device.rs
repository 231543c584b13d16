//! The device: state that all protection domains, queues and connections share.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rddp_fault_guard::sockets;
use rddp_rdma::{AsyncEvent, Capabilities, ConnectOptions, CqNum, SrqNum};
use rddp_verbs_device::Device;

use crate::adapter::{Adapter, Running};
use crate::budget::Budget;
use crate::capabilities::CAPABILITIES;
use crate::channel::CompletionChannel;
use crate::config::RnicConfig;
use crate::conn::half_open::HalfOpenSet;
use crate::conn::linger::{self, LingerSet};
use crate::conn::listen::Listener;
use crate::conn::peer_count::PeerCount;
use crate::conn::socket::adopt;
use crate::counters::Counters;
use crate::cq::{CompletionQueue, CqInner, check_capacity};
use crate::error::{Error, NamedBy};
use crate::event::EventQueue;
use crate::home::Home;
use crate::io::driver::Driver;
use crate::io::readers::Readers;
use crate::kernel::{Kernel, LeftToUser};
use crate::mem::{HostDevice, MemLimits, MemTable, PdId, QpNum};
use crate::pd::ProtectionDomain;
use crate::qp::QpInner;
use crate::queues::options::Transport;

/// Limit on the octets of Responses of all QPs together, beyond which fewer are prepared ahead.
const MAX_PROMISED: usize = 64 << 20;

/// A software RNIC. Cloning gives another handle to the same device, which lives as long as
/// anything that was made of it.
///
/// Dropping the last of all these waits for up to a second, until the peers of QPs that were
/// dropped before have closed their ends, too: see [`QueuePair`](crate::QueuePair).
///
/// ```
/// let rnic = rddp_rnic::Rnic::open()?;
/// let pd = rnic.alloc_pd();
/// let region = pd.allocate(4096, rddp_rnic::Access::LOCAL_WRITE)?;
/// assert_eq!(region.len(), 4096);
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rnic(pub(crate) Home<Arc<DeviceInner>>);

impl Rnic {
    /// The abilities and limits of each device, for a program that has none yet. Programs for any
    /// device ask that for its own: [`capabilities`](Self::capabilities).
    pub const CAPABILITIES: Capabilities = CAPABILITIES;

    /// Opens a device with the default limits. Its background thread begins with the first
    /// connection or listener.
    pub fn open() -> Result<Self, Error> {
        Self::with_config(&RnicConfig::default())
    }

    /// Opens a device with these settings, else as [`open`](Self::open) does.
    ///
    /// # Errors
    /// The host has no more descriptors; or its device that was asked for cannot be used, for which
    /// the error names the cause and what helps.
    pub fn with_config(config: &RnicConfig) -> Result<Self, Error> {
        Self::with_device(config, host_device(config)?)
    }

    /// Opens a device by which this library, or a device of the host, moves the octets: for tests,
    /// whose libraries play devices.
    #[doc(hidden)]
    pub fn with_device(config: &RnicConfig, device: Option<Device>) -> Result<Self, Error> {
        let driver = Driver::open().map_err(Error::host("making the device's descriptors"))?;
        Self::make(config, device, Arc::new(Running(driver)), Arc::default())
    }

    /// Opens another device beside this one, with settings of its own: queue pairs of each may
    /// complete into completion queues of the other, and report to its event queues. So a program
    /// that serves peers of software and of devices of the host waits for all of them by one
    /// completion queue. Memory, protection domains, limits and listeners are each device's own;
    /// numbers of queue pairs and completion queues are common, and so is the background thread.
    ///
    /// ```
    /// use rddp_rnic::{QpConfig, Rnic, RnicConfig};
    /// let soft = |config| RnicConfig { device: Some(RnicConfig::SOFTWARE.into()), ..config };
    /// let rnic = Rnic::open()?;
    /// let beside = rnic.open_beside(&soft(RnicConfig::default()))?;
    /// let cq = rnic.create_cq(256)?;
    /// let ours = rnic.alloc_pd().create_qp(&QpConfig::new(&cq))?;
    /// let other = beside.alloc_pd().create_qp(&QpConfig::new(&cq))?;
    /// assert_ne!(ours.num(), other.num());
    /// # Ok::<(), rddp_rnic::Error>(())
    /// ```
    ///
    /// # Errors
    /// As those of [`with_config`](Self::with_config).
    pub fn open_beside(&self, config: &RnicConfig) -> Result<Self, Error> {
        self.beside(config, host_device(config)?)
    }

    /// Opens another device beside this one as [`with_device`](Self::with_device) does.
    ///
    /// # Errors
    /// As those of [`with_config`](Self::with_config).
    #[doc(hidden)]
    pub fn beside(&self, config: &RnicConfig, device: Option<Device>) -> Result<Self, Error> {
        let this = self.0.here()?;
        Self::make(config, device, this.running.clone(), this.names.clone())
    }

    fn make(
        config: &RnicConfig,
        device: Option<Device>,
        running: Arc<Running>,
        names: Arc<Names>,
    ) -> Result<Self, Error> {
        // Sockets inherited from the parent process must not be mistaken for this process's own.
        sockets::close_inherited();
        rddp_capture::begin().map_err(Error::host("opening the file of RDDP_CAPTURE"))?;
        let kernel = config.kernel.as_ref().map(Kernel::load).transpose();
        let kernel = kernel.map_err(Error::host("preparing placement in the kernel"))?;
        Ok(Rnic(Home::new(Arc::new(DeviceInner {
            adapter: Arc::new(Adapter {
                driver: running.0.clone(),
                running,
                readers: Readers::default(),
                host: device.map(HostDevice::new),
                mem: MemTable::with_kernel(MemLimits::default(), kernel.clone()),
                kernel,
                events: EventQueue::new()?,
                event_sink: config.event_sink.clone(),
                partial: Budget::new(config.max_partial),
                promised: Budget::new(MAX_PROMISED),
                lingering: LingerSet::new(linger::MAX),
                rejected: LingerSet::new(config.max_half_open),
                qkey_violations: AtomicU32::new(0),
                stat: Arc::default(),
            }),
            relieved: Mutex::new(None),
            half_open_count: PeerCount::new(config.max_half_open, config.max_half_open_per_peer),
            waiting: PeerCount::new(config.max_waiting, config.max_waiting_per_peer),
            half_opens: HalfOpenSet::default(),
            names,
        }))))
    }

    /// Returns the abilities and limits of the device.
    ///
    /// ```
    /// let device = rddp_rnic::Rnic::open()?.capabilities();
    /// assert!(b"hello".len() <= device.max_inline, "what is longer is sent from a region");
    /// # Ok::<(), rddp_rnic::Error>(())
    /// ```
    pub fn capabilities(&self) -> Capabilities {
        self.0.anywhere().host.as_ref().map_or(CAPABILITIES, HostDevice::capabilities)
    }

    /// Makes a protection domain.
    pub fn alloc_pd(&self) -> ProtectionDomain {
        ProtectionDomain::new(&self.0)
    }

    /// Makes a completion queue that holds `capacity` completions: at least as many as there can be
    /// requests outstanding at its QPs, or it may overflow. An event of `tracing` tells of each QP
    /// that may have more, since a program may bound them otherwise, or have most of them make no
    /// completion.
    pub fn create_cq(&self, capacity: usize) -> Result<CompletionQueue, Error> {
        self.make_cq(capacity, None)
    }

    /// Makes a completion queue that reports to a completion channel when it is armed.
    pub fn create_cq_on(
        &self,
        channel: &CompletionChannel,
        capacity: usize,
    ) -> Result<CompletionQueue, Error> {
        self.make_cq(capacity, Some(channel))
    }

    fn make_cq(
        &self,
        capacity: usize,
        channel: Option<&CompletionChannel>,
    ) -> Result<CompletionQueue, Error> {
        check_capacity(capacity)?;
        let device = self.0.here()?;
        let channel = channel.map(|channel| channel.0.here().cloned()).transpose()?;
        let cq = CqInner::new(device.next_cq(), capacity, channel, device.driver.clone());
        Ok(CompletionQueue::new(cq))
    }

    /// Makes a completion channel.
    pub fn create_channel(&self) -> Result<CompletionChannel, Error> {
        self.0.here()?;
        CompletionChannel::new().map_err(Error::host("making a completion channel's descriptor"))
    }

    /// Listens on a TCP address (port 0: any), or at one of the device of the host. Connections are
    /// accepted with `options`.
    ///
    /// # Errors
    /// The host or its device has no such address, something else listens there, or the options
    /// cannot be met.
    pub fn listen(&self, addr: SocketAddr, options: &ConnectOptions) -> Result<Listener, Error> {
        Listener::bind(self.0.here()?, addr, Transport::Iwarp, options)
    }

    /// Listens as [`listen`](Self::listen) does, for peers of this wire. A peer of plain TCP has
    /// said all there is to say once it is connected.
    ///
    /// ```
    /// use rddp_rnic::{ConnectOptions, Rnic, Transport};
    /// let listener =
    ///     Rnic::open()?.listen_by(Transport::Tcp, "127.0.0.1:0".parse()?, &ConnectOptions::default())?;
    /// let _peer = std::net::TcpStream::connect(listener.local_addr()?)?;
    /// assert!(listener.accept(None)?.is_some_and(|peer| peer.request().is_none()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn listen_by(
        &self,
        transport: Transport,
        addr: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<Listener, Error> {
        Listener::bind(self.0.here()?, addr, transport, options)
    }

    /// Listens on a TCP socket that the program has made and bound, as [`listen`](Self::listen)
    /// does on an address. The kernel keeps up to `backlog` connections, and at most
    /// `net.core.somaxconn`, until the device takes them; it takes them at once as a rule. The
    /// socket becomes non-blocking.
    ///
    /// # Errors
    /// The socket is none of TCP, the kernel refuses to listen on it, or refuses `options.mss`,
    /// `options.congestion` or `options.keepalive`.
    ///
    /// ```
    /// use rddp_rnic::{ConnectOptions, Rnic};
    /// let socket = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let addr = socket.local_addr()?;
    /// let listener = Rnic::open()?.listen_on(socket, 16, &ConnectOptions::default())?;
    /// assert_eq!(listener.local_addr()?, addr);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn listen_on(
        &self,
        socket: impl Into<OwnedFd>,
        backlog: u32,
        options: &ConnectOptions,
    ) -> Result<Listener, Error> {
        let device = self.0.here()?;
        let socket = adopt(socket.into().into(), options).map_err(Error::host("listening"))?;
        Listener::on(device, socket, backlog, Transport::Iwarp, options)
    }

    /// Takes the oldest asynchronous event of the device's QPs, if there is one. Never sleeps.
    pub fn async_event(&self) -> Option<AsyncEvent> {
        self.0.here().ok()?.events.next_event()
    }

    /// Returns an iterator that takes events as [`async_event`](Self::async_event) does, until
    /// there is none.
    pub fn async_events(&self) -> impl Iterator<Item = AsyncEvent> + '_ {
        std::iter::from_fn(|| self.async_event())
    }

    /// Sleeps until there is an asynchronous event, for at most `timeout` (`None`: no limit).
    pub fn wait_async_event(&self, timeout: Option<Duration>) -> std::io::Result<Option<AsyncEvent>> {
        self.0.here()?.events.wait(timeout)
    }

    /// Returns a descriptor that is readable while there are asynchronous events.
    pub fn async_event_fd(&self) -> BorrowedFd<'_> {
        self.0.anywhere().events.as_fd()
    }

    /// Sleeps until the peers of QPs that were dropped, and those that were rejected, have closed
    /// their ends, too, for at most `limit`: what dropping the last handle does, for a program that
    /// ends and keeps handles. QPs that it keeps acknowledge what they have executed.
    pub fn linger(&self, limit: Duration) {
        if let Ok(device) = self.0.here() {
            device.live_qps().iter().for_each(|qp| qp.acknowledge_before_end());
            device.linger(limit);
        }
    }

    /// Returns the sum of the counters of all QPs there are.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        if let Ok(device) = self.0.here() {
            device.live_qps().iter().for_each(|qp| sum += qp.counters());
        }
        sum
    }

    /// Returns the number of datagrams for QPs of [`Transport::Unreliable`](crate::Transport) that
    /// were dropped because they had another `Q_Key`.
    pub fn qkey_violations(&self) -> u32 {
        self.0.here().map_or(0, |device| device.qkey_violations.load(Ordering::Relaxed))
    }

    /// Returns counts of what was to be placed by the kernel, and is placed at user level.
    pub fn left_to_user(&self) -> LeftToUser {
        let kernel = self.0.here().ok().and_then(|device| device.kernel.as_deref());
        kernel.map(Kernel::left).unwrap_or_default()
    }

    /// Returns the number of QPs there are.
    pub fn qp_count(&self) -> usize {
        self.0.here().map_or(0, |device| device.live_qps().len())
    }
}

pub(crate) struct DeviceInner {
    pub(crate) adapter: Arc<Adapter>,
    /// Shared by devices that are beside each other.
    pub(crate) names: Arc<Names>,
    /// Time of the last search for connections that hold partial FPDUs for too long.
    relieved: Mutex<Option<Instant>>,
    /// The number of connections whose Request is still arriving, by peer.
    pub(crate) half_open_count: Arc<PeerCount>,
    /// The number of connections whose Request waits for the program's answer, by peer.
    pub(crate) waiting: Arc<PeerCount>,
    pub(crate) half_opens: HalfOpenSet,
}

/// Numbers of objects, by which completions and events name them.
pub(crate) struct Names {
    pub(crate) qps: Mutex<HashMap<QpNum, Weak<QpInner>>>,
    next_qp: AtomicU64,
    next_pd: AtomicU64,
    next_cq: AtomicU64,
    next_srq: AtomicU64,
}

impl Default for Names {
    fn default() -> Self {
        let [next_qp, next_pd, next_cq, next_srq] = [0; 4].map(|_| AtomicU64::new(1));
        Names { qps: Mutex::default(), next_qp, next_pd, next_cq, next_srq }
    }
}

impl Deref for DeviceInner {
    type Target = Adapter;

    fn deref(&self) -> &Adapter {
        &self.adapter
    }
}

impl DeviceInner {
    /// Returns a number that no QP has and no memory is bound to. Numbers come again after 2^32.
    pub(crate) fn next_qp(&self) -> QpNum {
        loop {
            let count = self.names.next_qp.fetch_add(1, Ordering::Relaxed);
            let num = QpNum(count as u32);
            // Programs may choose numbers, too.
            let is_new = count <= u64::from(u32::MAX) && !self.names.qps.lock().contains_key(&num);
            if num.0 != 0 && (is_new || self.free_qp(num).is_ok()) {
                return num;
            }
        }
    }

    /// Returns a number that the program has chosen, if no QP has it and no memory is bound to it.
    pub(crate) fn free_qp(&self, num: QpNum) -> Result<QpNum, Error> {
        if num.0 == 0 || self.names.qps.lock().contains_key(&num) || self.mem.names(num) {
            return Err(Error::Conflict("a queue pair's number is 0, or another's"));
        }
        Ok(num)
    }

    fn live_qps(&self) -> Vec<Arc<QpInner>> {
        let mut all: Vec<_> = self.names.qps.lock().values().filter_map(Weak::upgrade).collect();
        all.retain(|qp| Arc::ptr_eq(&qp.attrs.device, &self.adapter));
        all
    }

    /// Resets connections that hold partial FPDUs for too long. Called when memory for them is
    /// short.
    pub(crate) fn relieve_partial(&self) {
        const PAUSE: Duration = Duration::from_millis(50);
        let now = Instant::now();
        let mut relieved = self.relieved.lock();
        if relieved.is_none_or(|last| now.duration_since(last) >= PAUSE) {
            *relieved = Some(now);
            drop(relieved);
            self.live_qps().iter().for_each(|qp| qp.lose_if_stalled(now));
        }
    }

    pub(crate) fn next_pd(&self) -> PdId {
        PdId(self.names.next_pd.fetch_add(1, Ordering::Relaxed))
    }

    fn next_cq(&self) -> CqNum {
        CqNum(self.names.next_cq.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn next_srq(&self) -> SrqNum {
        SrqNum(self.names.next_srq.fetch_add(1, Ordering::Relaxed))
    }
}

impl std::fmt::Debug for DeviceInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceInner").field("qps", &self.names.qps.lock().len()).finish_non_exhaustive()
    }
}

/// Returns the device of the host that is to move the octets, if this library is not.
fn host_device(config: &RnicConfig) -> Result<Option<Device>, Error> {
    let named = |(name, by): (String, NamedBy)| {
        Device::named(&name).map_err(|error| Error::NamedDevice { error, by })
    };
    config.host_device().map(named).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{Access, RegionOptions};
    use crate::{QpConfig, QueuePair};

    /// RFC 5042 §6.1.1: a QP that had the number of another would reach memory
    /// that was meant for that one.
    #[test]
    fn numbers_of_qps_are_not_given_twice_when_they_begin_anew() {
        let rnic = Rnic::open().unwrap();
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16).unwrap());
        let make = || -> QueuePair { pd.create_qp(&QpConfig::new(&cq)).unwrap() };
        let (_first, gone, third) = (make(), make().num(), make().num());
        let options = RegionOptions { qp: Some(gone), ..RegionOptions::default() };
        let region = pd.allocate_with(8, Access::LOCAL_WRITE, &options).unwrap();
        rnic.0.anywhere().names.next_qp.store(u64::from(u32::MAX), Ordering::Relaxed);
        assert_eq!(make().num(), QpNum(u32::MAX));
        // Not 0, not one that lives, not one that memory is bound to.
        let again = make();
        assert_eq!(again.num(), third);
        drop(region);
        rnic.0.anywhere().names.next_qp.store(1 << 32, Ordering::Relaxed);
        assert_eq!(make().num(), gone);
    }
}
