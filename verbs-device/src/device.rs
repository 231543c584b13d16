//! The devices of a host, and their limits.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::poll::{PollFd, PollFlags, poll};
use rddp_rdma::{Access, Atomics, Capabilities, Protocol};
use rddp_verbs_layout::{cm, device, device_cap, event, ibv_device_attr, ibv_port_attr};

use crate::error::DeviceError;
use crate::last::Last;
use crate::sys::{Context, DeviceEvent, Domain, Id, Lends, Library, flags_of};

/// The protocol that a device speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// iWARP: an RNIC.
    Iwarp,
    /// InfiniBand, on a network of its own or as RoCE.
    InfiniBand,
}

/// Pieces of memory that a request has at most, whatever a device says.
pub(crate) const MAX_PIECES: usize = 16;

/// Flags of a device that has windows which are for the peer of one queue pair: those of type 2.
const WINDOWS: u32 = device_cap::MEM_WINDOW_TYPE_2A | device_cap::MEM_WINDOW_TYPE_2B;

/// The port of a device that is used.
const PORT: u8 = 1;

/// An RDMA device of this host, and a protection domain of it. Clones are the same device with the
/// same domain.
#[derive(Clone)]
pub struct Device {
    pub(crate) library: &'static Library,
    inner: Arc<Inner>,
    domain: Arc<Domain>,
}

struct Inner {
    name: String,
    context: Context,
    transport: Transport,
    capabilities: Capabilities,
    shared_limits: SharedLimits,
    is_siw: bool,
    last: Last,
}

/// Limits of a shared receive queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedLimits {
    pub(crate) receives: usize,
    pub(crate) pieces: usize,
}

/// Time to look for the device that the way to an address leads through.
const SEARCH: Duration = Duration::from_secs(2);

/// Vendor of Linux's siw, as it tells it.
const SIW: u32 = 0x62_6d74;

impl Device {
    /// Returns the device of this name.
    ///
    /// # Errors
    /// There is none, or the libraries cannot be used.
    pub fn named(name: &str) -> Result<Self, DeviceError> {
        Self::named_in(Library::of_host()?, name)
    }

    /// Returns the device of this name that these libraries have.
    ///
    /// # Errors
    /// As those of [`named`](Self::named).
    pub fn named_in(library: &'static Library, name: &str) -> Result<Self, DeviceError> {
        let contexts = Context::all(library)?;
        match contexts.iter().find(|context| context.name() == name) {
            Some(context) => Self::new(library, *context),
            None => Err(DeviceError::NoDevice {
                name: name.to_owned(),
                there: contexts.iter().map(Context::name).collect(),
            }),
        }
    }

    /// Returns the names of all devices.
    ///
    /// # Errors
    /// The libraries cannot be used.
    pub fn names() -> Result<Vec<String>, DeviceError> {
        Ok(Context::all(Library::of_host()?)?.iter().map(Context::name).collect())
    }

    /// Returns the name of the device that the way to an address leads through, if one is found. To
    /// an address of the loopback it leads through none.
    #[must_use]
    pub fn towards(address: SocketAddr) -> Option<String> {
        // The connection manager gives any device to such an address.
        let is_loopback = address.ip().to_canonical().is_loopback();
        if is_loopback { None } else { Self::towards_in(Library::of_host().ok()?, address) }
    }

    /// Returns what [`towards`](Self::towards) does, of the devices that these libraries have, and
    /// whatever the address is.
    #[must_use]
    pub fn towards_in(library: &'static Library, address: SocketAddr) -> Option<String> {
        let id = Id::new(library).ok()?;
        id.resolve_address(None, address, SEARCH.as_millis() as i32).ok()?;
        if first_event(&id)? != cm::ADDR_RESOLVED {
            return None;
        }
        Context::all(library).ok()?.iter().find(|context| context.is(id.context())).map(Context::name)
    }

    fn new(library: &'static Library, context: Context) -> Result<Self, DeviceError> {
        let name = context.name();
        let failed = |call| {
            let name = &name;
            move |error: io::Error| DeviceError::call(call, name, error)
        };
        let attributes = context.attributes().map_err(failed("ibv_query_device"))?;
        let port = context.port(PORT).map_err(failed("ibv_query_port"))?;
        let transport = match context.transport() {
            device::TRANSPORT_IWARP => Transport::Iwarp,
            _ => Transport::InfiniBand,
        };
        let capabilities = capabilities(transport, &attributes, &port);
        let lends = Lends::of(capabilities.windows, attributes.vendor_id);
        let domain = Domain::new(context, lends).map_err(failed("ibv_alloc_pd"))?;
        let is_siw = attributes.vendor_id == SIW;
        let count = |number: i32| usize::try_from(number).unwrap_or(0);
        let pieces = count(attributes.max_srq_sge).min(capabilities.max_sge);
        let shared_limits = SharedLimits { receives: count(attributes.max_srq_wr), pieces };
        let last = Last::default();
        let inner = Inner { name, context, transport, capabilities, shared_limits, is_siw, last };
        Ok(Device { library, inner: Arc::new(inner), domain: Arc::new(domain) })
    }

    /// Returns the same device with a protection domain of its own.
    ///
    /// # Errors
    /// The device has no more domains.
    pub fn with_own_domain(&self) -> Result<Self, DeviceError> {
        let domain = self.domain.another().map_err(|error| self.failed("ibv_alloc_pd", error))?;
        Ok(Device { domain: Arc::new(domain), ..self.clone() })
    }

    /// Returns the libraries that have the device.
    #[must_use]
    pub fn library(&self) -> &'static Library {
        self.library
    }

    /// Returns the device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the protocol that the device speaks.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.inner.transport
    }

    /// Returns whether each request has to be signaled. Of one that is not, siw gives the program's
    /// pages to TCP, and completes a later one while TCP still sends them: what the program stores
    /// there next would be sent in their place.
    pub(crate) fn signals_all(&self) -> bool {
        self.inner.is_siw
    }

    /// Returns the limits. A device does not tell how many octets it takes inline before it has
    /// made a queue pair: [`Endpoint::max_inline`](crate::Endpoint::max_inline).
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    pub(crate) fn shared_limits(&self) -> SharedLimits {
        self.inner.shared_limits
    }

    /// Returns the protection domain of all memory and connections of this object.
    #[must_use]
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Returns whether the device's port is connected to a network.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.inner.context.port(PORT).is_ok_and(|port| port.state == device::PORT_ACTIVE)
    }

    /// Returns the addresses of this host that are the device's.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let found = getifaddrs().into_iter().flatten();
        let found = found.filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
        });
        // To the loopback address the connection manager gives any device.
        found.filter(|address| !address.is_loopback() && self.has_address(*address)).collect()
    }

    /// Returns whether the connection manager gives this device to an address of this host.
    #[must_use]
    pub fn has_address(&self, address: IpAddr) -> bool {
        let Ok(id) = Id::new(self.library) else { return false };
        id.bind(SocketAddr::new(address, 0)).is_ok() && self.is_used_by(&id)
    }

    pub(crate) fn is_used_by(&self, id: &Id) -> bool {
        self.inner.context.is(id.context())
    }

    /// Returns why an id has another device than this one.
    pub(crate) fn elsewhere(&self, address: SocketAddr, id: &Id) -> DeviceError {
        let contexts = Context::all(self.library).unwrap_or_default();
        let other = contexts.iter().find(|context| context.is(id.context())).map(Context::name);
        misrouted(self.name(), address, other, self.addresses())
    }

    /// Returns whether memory may be registered with these rights.
    ///
    /// # Errors
    /// The device does not have a right, or wants another one with it.
    pub fn may_register(&self, rights: Access) -> Result<(), DeviceError> {
        flags_of(rights, self.capabilities().windows, || self.name().to_owned()).map(drop)
    }

    /// Refuses private data beyond the transport: some devices break the connection by it.
    pub(crate) fn refuse_long(&self, private_data: &[u8], max: usize) -> Result<(), DeviceError> {
        let (len, device) = (private_data.len(), self.name());
        if len > max {
            return Err(DeviceError::PrivateData { len, max, device: device.to_owned() });
        }
        Ok(())
    }

    /// Rejects the request of a peer.
    pub(crate) fn reject(&self, id: &Id, private_data: &[u8]) -> Result<(), DeviceError> {
        self.refuse_long(private_data, self.capabilities().max_reject_data)?;
        id.reject(private_data).map_err(|error| self.failed("rdma_reject", error))
    }

    /// Takes the oldest asynchronous event, if there is one. Of objects of one device, each may
    /// take it.
    ///
    /// # Errors
    /// The device is gone.
    pub fn event(&self) -> Result<Option<DeviceEvent>, DeviceError> {
        let event = self.inner.context.event().map_err(|error| self.failed("ibv_get_async_event", error))?;
        if let Some(DeviceEvent { kind: event::QP_LAST_WQE_REACHED, qp: Some(qp) }) = event {
            self.inner.last.note(qp);
        }
        Ok(event)
    }

    /// Returns whether a queue pair that has failed takes nothing more from its shared receive
    /// queue, and what it had taken has completed. siw tells no such thing, and need not: both are
    /// so when it has failed.
    pub(crate) fn has_taken_last(&self, qp: u32) -> bool {
        // Another thread may take the event of this one's.
        loop {
            match self.event() {
                Ok(Some(event)) => tracing::debug!(device = self.name(), ?event, "an event"),
                Ok(None) => break,
                // A device that is gone tells nothing more.
                Err(_) => return true,
            }
        }
        self.inner.is_siw || self.inner.last.has(qp)
    }

    /// Returns what the device has told of last receives.
    pub(crate) fn last(&self) -> &Last {
        &self.inner.last
    }

    /// Returns an error of a call on this device.
    pub(crate) fn failed(&self, call: &'static str, error: io::Error) -> DeviceError {
        DeviceError::call(call, self.name(), error)
    }
}

/// The descriptor that is readable while there are asynchronous events.
impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.context.as_fd()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { name, transport, last, .. } = &*self.inner;
        f.debug_tuple("Device").field(name).field(transport).field(last).finish()
    }
}

/// Waits for the first event of an id that looks for its way, and returns its kind.
fn first_event(id: &Id) -> Option<u32> {
    let until = Instant::now() + SEARCH;
    loop {
        if let Some(event) = id.events.event().ok()? {
            return Some(event.kind);
        }
        let left = until.checked_duration_since(Instant::now())?;
        let mut fds = [PollFd::new(id.events.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, left.as_millis() as u16 + 1) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
    }
}

fn misrouted(device: &str, address: SocketAddr, other: Option<String>, own: Vec<IpAddr>) -> DeviceError {
    let device = device.to_owned();
    if own.is_empty() {
        return DeviceError::NoAddress { device };
    }
    let other = other.unwrap_or_else(|| "no RDMA device".to_owned());
    DeviceError::Elsewhere { device, address, other, own }
}

/// Returns a device's atomics. By the words that rdma-core has, answers are in this host's order of
/// octets; a device with another word, as those whose answers are big-endian, has none here.
fn atomics(word: i32) -> Atomics {
    match word {
        device::ATOMIC_HCA | device::ATOMIC_GLOB => Atomics::Plain,
        _ => Atomics::None,
    }
}

fn capabilities(transport: Transport, device: &ibv_device_attr, port: &ibv_port_attr) -> Capabilities {
    let count = |number: i32| usize::try_from(number).unwrap_or(0);
    // Depths are told to peers in an octet, of which 255 means something else.
    let depth = |number: i32| number.clamp(0, 254) as u16;
    let is_iwarp = transport == Transport::Iwarp;
    let is_ethernet = i32::from(port.link_layer) == device::LINK_LAYER_ETHERNET;
    Capabilities {
        protocol: match (is_iwarp, is_ethernet) {
            (true, _) => Protocol::Iwarp,
            (false, true) => Protocol::Roce,
            (false, false) => Protocol::InfiniBand,
        },
        max_qps: Some(count(device.max_qp)),
        max_requests: Some(count(device.max_qp_wr)),
        max_cqes: count(device.max_cqe),
        max_stags: count(device.max_mr),
        max_sge: count(device.max_sge).min(MAX_PIECES),
        max_inline: 0,
        max_message: u64::from(port.max_msg_sz),
        max_ird: depth(device.max_qp_rd_atom),
        max_ord: depth(device.max_qp_init_rd_atom),
        max_request_data: if is_iwarp { 251 } else { 56 },
        max_reply_data: if is_iwarp { 251 } else { 196 },
        max_reject_data: if is_iwarp { 251 } else { 148 },
        atomics: atomics(device.atomic_cap),
        immediate_len: if is_iwarp { 0 } else { 4 },
        read_sink: Access::LOCAL_WRITE | if is_iwarp { Access::REMOTE_WRITE } else { Access::empty() },
        windows: device.device_cap_flags & WINDOWS != 0,
        send_invalidate: is_iwarp,
        shared_receives: device.max_srq > 0 && device.max_srq_wr > 0,
        zero_based: false,
        data_in_order: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomics_whose_answers_are_of_another_order_are_none() {
        let found = [0, 1, 2, 3].map(atomics);
        assert_eq!(found, [Atomics::None, Atomics::Plain, Atomics::Plain, Atomics::None]);
    }

    #[test]
    fn a_device_without_an_address_is_told_from_a_wrong_one() {
        let (to, other) = ("192.0.2.1:5000".parse().unwrap(), || Some("rxe0".to_owned()));
        let none = misrouted("siw0", to, other(), Vec::new());
        assert!(matches!(none, DeviceError::NoAddress { .. }), "{none}");
        let own = vec!["198.51.100.1".parse().unwrap()];
        let wrong = misrouted("siw0", to, other(), own).to_string();
        assert!(wrong.contains("rxe0") && wrong.contains("198.51.100.1"), "{wrong}");
    }
}
