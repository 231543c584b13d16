//! The receives of a shared queue that a device of the host has.
//!
//! The device's queue pairs take receives from a queue of the device's own, in an order that nobody
//! is told: each receive has a number there, by which a completion names it.

use std::collections::{BTreeMap, VecDeque};

use rddp_rdma::{RecvWr, Sge, Stag};
use rddp_verbs_device::{Device, DeviceError, PostError, SharedReceives};

use crate::mem::HostDevice;

/// The device's queue, and what it has.
#[derive(Debug, Default)]
pub(super) struct Given {
    queue: Option<SharedReceives>,
    receives: BTreeMap<u64, RecvWr>,
    /// The number of the next receive.
    next: u64,
}

impl Given {
    pub(super) fn len(&self) -> usize {
        self.receives.len()
    }

    /// Returns the device's queue, which is made now if there is none yet.
    pub(super) fn open(&mut self, device: &Device, capacity: usize) -> Result<SharedReceives, DeviceError> {
        let queue = match self.queue.take() {
            Some(queue) => queue,
            None => device.share_receives(capacity)?,
        };
        Ok(self.queue.insert(queue).clone())
    }

    /// Takes the receive of this number, which a message has got.
    pub(super) fn take(&mut self, number: u64) -> Option<RecvWr> {
        self.receives.remove(&number)
    }

    /// Hands receives over, as many as the device takes: in front of the others those that ended
    /// connections have given back.
    pub(super) fn fill(&mut self, posted: &mut VecDeque<RecvWr>, host: &HostDevice) {
        let Some(queue) = &self.queue else { return };
        for number in queue.take_returned().iter().rev() {
            self.receives.remove(number).into_iter().for_each(|wr| posted.push_front(wr));
        }
        while self.receives.len() < queue.capacity()
            && let Some(wr) = posted.pop_front()
        {
            match queue.post(self.next, &wr.scatter, |sge| Some(named(host, sge))) {
                Ok(()) => {
                    self.receives.insert(self.next, wr);
                    self.next += 1;
                }
                Err(error) => {
                    if !matches!(error, PostError::QueueFull { .. }) {
                        tracing::warn!(%error, "the device refuses a shared receive");
                    }
                    return posted.push_front(wr);
                }
            }
        }
    }
}

/// Names memory as the device does. Of a region that is gone there is no name: the device finds
/// that when a message comes, as software does.
fn named(host: &HostDevice, sge: Sge) -> Sge {
    host.piece(sge).unwrap_or(Sge { stag: Stag(0), ..sge })
}
