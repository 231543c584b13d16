//! Octets of requests that the device does not take inline: they are copied to registered memory
//! of the connection's own, from which it sends them.

use rddp_rdma::{Access, Sge};
use rddp_verbs_device::{self as verbs, DeviceError, Registration};

use crate::capabilities::CAPABILITIES;

/// Places for inline octets, as many as the device holds requests, which complete in their order.
#[derive(Debug)]
pub(super) struct Bounce {
    places: usize,
    /// Made by the first octets.
    memory: Option<Registration>,
    /// Requests that have got a place.
    used: u64,
}

impl Bounce {
    pub(super) fn new(places: usize) -> Self {
        Bounce { places, memory: None, used: 0 }
    }

    /// Copies octets, and returns where they are as the device names it. The request is then to be
    /// posted and to be [noted](Self::note).
    pub(super) fn copy(&mut self, device: &verbs::Device, octets: &[u8]) -> Result<Sge, DeviceError> {
        const PLACE: usize = CAPABILITIES.max_inline;
        let memory = match self.memory.take() {
            Some(memory) => memory,
            None => Registration::allocate(device.domain(), self.places * PLACE, Access::empty())?,
        };
        let memory = self.memory.insert(memory);
        let at = (self.used % self.places as u64) as usize * PLACE;
        memory.write(at, octets);
        Ok(memory.piece(at, octets.len()))
    }

    /// Notes that the device has taken a request with the octets that were copied last.
    pub(super) fn note(&mut self) {
        self.used += 1;
    }
}
