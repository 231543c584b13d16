//! Requests of peers for connections.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rddp_verbs_layout::cm;

use crate::device::{Device, Transport};
use crate::endpoint::{Agreed, Endpoint, Queues};
use crate::error::DeviceError;
use crate::shared::SharedReceives;
use crate::sys::{CmEvent, EventChannel, Id};

/// A listener at an address of a device.
#[derive(Debug)]
pub struct Listener {
    device: Device,
    address: SocketAddr,
    events: Arc<EventChannel>,
    _ids: Vec<Id>,
}

/// The wish of a peer to be connected.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Private data of the peer's program; on InfiniBand with zeros behind it.
    pub private_data: Vec<u8>,
    /// The peer's address.
    pub peer: Option<SocketAddr>,
    /// Reads and atomics that the peer wants to ask for at a time.
    pub ird: u16,
    /// Reads and atomics that the peer answers at a time.
    pub ord: u16,
}

/// A peer's request for a connection, which waits for an answer. Dropped, it is rejected.
#[derive(Debug)]
pub struct Request {
    device: Device,
    id: Id,
    asked: Asked,
}

impl Listener {
    /// Listens at an address of the device, or at all that the device has now: the connection
    /// manager would take an unspecified address for those of all devices.
    ///
    /// # Errors
    /// The device does not have the address, or the port is taken.
    pub fn open(device: &Device, address: SocketAddr, backlog: i32) -> Result<Self, DeviceError> {
        let events = EventChannel::new(device.library);
        let events = Arc::new(events.map_err(|error| device.failed("rdma_create_event_channel", error))?);
        let (mut port, mut ids) = (address.port(), Vec::new());
        for ip in addresses(device, address)? {
            let id = listen(device, &events, SocketAddr::new(ip, port), backlog)?;
            // The port that was chosen for the first address is that of all.
            port = id.addresses().0.map_or(port, |address| address.port());
            ids.push(id);
        }
        let address = SocketAddr::new(address.ip(), port);
        Ok(Listener { device: device.clone(), address, events, _ids: ids })
    }

    /// Returns the device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the address, with the port that it got where 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes the oldest request of a peer, if there is one.
    ///
    /// # Errors
    /// The device is gone.
    pub fn take(&self) -> Result<Option<Request>, DeviceError> {
        loop {
            let event = self.events.event();
            let event = event.map_err(|error| self.device.failed("rdma_get_cm_event", error))?;
            match event {
                None => return Ok(None),
                Some(mut event) if event.kind == cm::CONNECT_REQUEST => {
                    if let Some(id) = Id::of_request(&mut event, &self.events) {
                        return Ok(Some(Request::new(&self.device, id, event)));
                    }
                }
                Some(event) if event.kind == cm::DEVICE_REMOVAL => {
                    return Err(DeviceError::Removed { device: self.device.name().to_owned() });
                }
                // Of a request whose peer has gone: its answer fails.
                Some(_) => {}
            }
        }
    }
}

/// The descriptor that is readable while requests wait.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

impl Request {
    fn new(device: &Device, id: Id, event: CmEvent) -> Self {
        let asked = Asked {
            peer: id.addresses().1,
            ird: event.ird.into(),
            ord: event.ord.into(),
            private_data: event.private_data,
        };
        Request { device: device.clone(), id, asked }
    }

    /// Returns what the peer wants.
    #[must_use]
    pub fn asked(&self) -> &Asked {
        &self.asked
    }

    /// Makes the endpoint that answers, with queues of these lengths and the protection domain of
    /// `device`, which is the listener's. Receives may be posted before it accepts.
    ///
    /// # Errors
    /// The device cannot make a queue pair; the peer is rejected.
    pub fn endpoint(self, device: &Device, queues: Queues) -> Result<Endpoint, DeviceError> {
        self.endpoint_sharing(device, queues, None)
    }

    /// Makes the endpoint as [`endpoint`](Self::endpoint) does, with receives of a shared queue of
    /// the device if there is one.
    ///
    /// # Errors
    /// As those of `endpoint`.
    pub fn endpoint_sharing(
        mut self,
        device: &Device,
        queues: Queues,
        shared: Option<SharedReceives>,
    ) -> Result<Endpoint, DeviceError> {
        self.id.separate().map_err(|error| device.failed("rdma_migrate_id", error))?;
        let agreed = Agreed { private_data: Vec::new(), ird: self.asked.ird, ord: self.asked.ord };
        Endpoint::asked(device, self.id, agreed, queues, shared)
    }

    /// Rejects the request, with private data for the peer's program.
    ///
    /// # Errors
    /// The private data is too long, or the peer has gone.
    pub fn reject(self, private_data: &[u8]) -> Result<(), DeviceError> {
        self.device.reject(&self.id, private_data)
    }
}

/// Returns the addresses at which a listener at this one listens.
fn addresses(device: &Device, at: SocketAddr) -> Result<Vec<IpAddr>, DeviceError> {
    if !at.ip().is_unspecified() {
        return Ok(vec![at.ip()]);
    }
    // An unspecified address of IPv6 stands for both kinds.
    let own: Vec<_> = device.addresses().into_iter().filter(|own| at.is_ipv6() || own.is_ipv4()).collect();
    if own.is_empty() { Err(DeviceError::NoAddress { device: device.name().to_owned() }) } else { Ok(own) }
}

fn listen(
    device: &Device,
    events: &Arc<EventChannel>,
    address: SocketAddr,
    backlog: i32,
) -> Result<Id, DeviceError> {
    let id = Id::on(events).map_err(|error| device.failed("rdma_create_id", error))?;
    let refused = |call, error: io::Error| match error.raw_os_error() {
        Some(libc::EADDRNOTAVAIL | libc::ENODEV) => device.elsewhere(address, &id),
        Some(libc::EADDRINUSE) => {
            let (is_rnic, device) = (device.transport() == Transport::Iwarp, device.name().to_owned());
            DeviceError::AddressInUse { device, address, is_rnic }
        }
        _ => device.failed(call, error),
    };
    id.bind(address).map_err(|error| refused("rdma_bind_addr", error))?;
    if !device.is_used_by(&id) {
        return Err(device.elsewhere(address, &id));
    }
    id.listen(backlog).map_err(|error| refused("rdma_listen", error))?;
    Ok(id)
}
