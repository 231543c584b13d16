//! Requests of peers for connections.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use rddp_verbs_layout::cm;

use crate::device::Device;
use crate::endpoint::{Agreed, Endpoint, Queues};
use crate::error::DeviceError;
use crate::sys::{CmEvent, Id};

/// A listener at an address of a device.
#[derive(Debug)]
pub struct Listener {
    device: Device,
    id: Id,
    queues: Queues,
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

impl Listener {
    /// Listens at an address. Endpoints of its connections get queues of these lengths.
    ///
    /// # Errors
    /// The device does not have the address, or the port is taken.
    pub fn open(
        device: &Device,
        address: SocketAddr,
        queues: Queues,
        backlog: i32,
    ) -> Result<Self, DeviceError> {
        let id = Id::new(device.library).map_err(|error| device.failed("rdma_create_id", error))?;
        id.bind(address).map_err(|error| device.failed("rdma_bind_addr", error))?;
        if !address.ip().is_unspecified() && !device.is_used_by(&id) {
            return Err(device.elsewhere(address, &id));
        }
        id.listen(backlog).map_err(|error| device.failed("rdma_listen", error))?;
        Ok(Listener { device: device.clone(), id, queues })
    }

    /// Returns the device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the address, with the port that it got where 0 was asked for.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.id.addresses().0
    }

    /// Takes the oldest request of a peer, if there is one, with the endpoint that answers it.
    ///
    /// # Errors
    /// The device is gone, or could not make a queue pair; the peer is rejected then.
    pub fn accept(&self) -> Result<Option<(Endpoint, Asked)>, DeviceError> {
        loop {
            let event = self.id.events.event();
            let event = event.map_err(|error| self.device.failed("rdma_get_cm_event", error))?;
            match event {
                None => return Ok(None),
                Some(mut event) if event.kind == cm::CONNECT_REQUEST => {
                    if let Some(asked) = self.take(&mut event)? {
                        return Ok(Some(asked));
                    }
                }
                Some(event) if event.kind == cm::DEVICE_REMOVAL => {
                    return Err(DeviceError::Removed { device: self.device.name().to_owned() });
                }
                Some(_) => {}
            }
        }
    }

    fn take(&self, event: &mut CmEvent) -> Result<Option<(Endpoint, Asked)>, DeviceError> {
        let id = Id::of_request(event, &self.id);
        let id = id.map_err(|error| self.device.failed("rdma_migrate_id", error))?;
        // A listener at no address in particular hears of other devices, too.
        let Some(id) = id.filter(|id| self.device.is_used_by(id)) else { return Ok(None) };
        let asked = Asked {
            private_data: std::mem::take(&mut event.private_data),
            peer: id.addresses().1,
            ird: event.ird.into(),
            ord: event.ord.into(),
        };
        let agreed = Agreed { private_data: Vec::new(), ird: asked.ird, ord: asked.ord };
        let endpoint = Endpoint::asked(&self.device, id, agreed, self.queues)?;
        Ok(Some((endpoint, asked)))
    }
}

/// The descriptor that is readable while requests wait.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.events.as_fd()
    }
}
