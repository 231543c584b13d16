//! A watch over a device, for who has neither listener nor connection by which to notice its end.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use rddp_verbs_layout::cm;

use crate::device::Device;
use crate::error::DeviceError;
use crate::sys::Id;

/// A watch over a device, which tells when the device is removed.
#[derive(Debug)]
pub struct Presence {
    device: Device,
    id: Id,
}

impl Presence {
    /// Watches a device by the first address of this host that is the device's.
    ///
    /// # Errors
    /// It has none.
    pub fn of(device: &Device) -> Result<Self, DeviceError> {
        let address = device.addresses().first().copied();
        Self::at(device, address.ok_or_else(|| DeviceError::NoAddress { device: device.name().to_owned() })?)
    }

    /// Watches a device by one of its addresses.
    ///
    /// # Errors
    /// The address is not the device's.
    pub fn at(device: &Device, address: IpAddr) -> Result<Self, DeviceError> {
        let id = Id::new(device.library).map_err(|error| device.failed("rdma_create_id", error))?;
        let address = SocketAddr::new(address, 0);
        id.bind(address).map_err(|error| device.failed("rdma_bind_addr", error))?;
        if !device.is_used_by(&id) {
            return Err(device.elsewhere(address, &id));
        }
        Ok(Presence { device: device.clone(), id })
    }

    /// Returns the device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Looks whether the device is still there.
    ///
    /// # Errors
    /// The device is gone. This is told once.
    pub fn check(&self) -> Result<(), DeviceError> {
        let event = self.id.events.event();
        let event = event.map_err(|error| self.device.failed("rdma_get_cm_event", error))?;
        if event.is_some_and(|event| event.kind == cm::DEVICE_REMOVAL) {
            return Err(DeviceError::Removed { device: self.device.name().to_owned() });
        }
        Ok(())
    }
}

/// The descriptor that is readable when the device may be gone.
impl AsFd for Presence {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.events.as_fd()
    }
}
