//! Receives that the messages of several connections take from.
//!
//! Connections of one queue complete in no common order, so that each receive has a number of its
//! owner's, by which its completion names it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rddp_rdma::Sge;
use rddp_verbs_layout::ibv_sge;

use crate::device::{Device, Transport};
use crate::error::{DeviceError, PostError};
use crate::sys::SharedQueue;
use crate::words::{RECEIVE, fill};

/// A shared receive queue of a device. Clones are the same queue.
///
/// [Endpoints](crate::Endpoint) are made with it. The completion of a receive has the number under
/// which it was posted for its `wr_id`, whichever endpoint tells of it.
///
/// A device loses the receive that a message was arriving in when its connection ended, and
/// completions that nobody has looked for by then. An endpoint that is dropped has its device give
/// them up first, and they are [given back](Self::take_returned) to the owner of the queue, who may
/// post them again; so is a receive whose completion says [`Flushed`](rddp_rdma::Status::Flushed).
#[derive(Clone, Debug)]
pub struct SharedReceives(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    device: Device,
    capacity: usize,
    queue: Arc<SharedQueue>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Numbers of receives that connections have given back.
    returned: BTreeSet<u64>,
    /// Memory for the pieces of a receive.
    pieces: Vec<ibv_sge>,
}

impl Device {
    /// Makes a queue for so many receives in the domain of this object, or as many as the device
    /// can have.
    ///
    /// # Errors
    /// The device has no such queues, or no more of them.
    pub fn share_receives(&self, capacity: usize) -> Result<SharedReceives, DeviceError> {
        let limits = self.shared_limits();
        if !self.capabilities().shared_receives {
            let (what, device) = ("shared receive queues", self.name().to_owned());
            return Err(DeviceError::Unsupported { what, device });
        }
        let capacity = capacity.clamp(1, limits.receives.max(1));
        let made = SharedQueue::new(self.domain(), capacity as u32, limits.pieces as u32);
        let queue = Arc::new(made.map_err(|error| self.failed("ibv_create_srq", error))?);
        Ok(SharedReceives(Arc::new(Inner { device: self.clone(), capacity, queue, state: Mutex::default() })))
    }
}

impl SharedReceives {
    /// Returns how many receives the queue holds, those included that have completed and whose
    /// completions no endpoint has been asked for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// Posts a receive under a number below 2^63. `name` makes the device's names of those of its
    /// memory.
    ///
    /// # Errors
    /// The receive has more pieces than the device takes, some memory has no name, or the queue is
    /// full.
    pub fn post(
        &self,
        number: u64,
        scatter: &[Sge],
        name: impl FnMut(Sge) -> Option<Sge>,
    ) -> Result<(), PostError> {
        let device = &self.0.device;
        let (max, wants_one) = (device.shared_limits().pieces, device.transport() == Transport::Iwarp);
        let mut state = self.state();
        let pieces = fill(&mut state.pieces, scatter, max, wants_one, name)?;
        Ok(self.0.queue.post(RECEIVE | number, pieces)?)
    }

    /// Takes the numbers of receives that connections have given back, in their order.
    #[must_use]
    pub fn take_returned(&self) -> BTreeSet<u64> {
        std::mem::take(&mut self.state().returned)
    }

    /// Gives back a receive whose completion nobody is told of.
    pub fn give_back(&self, number: u64) {
        self.state().returned.insert(number);
    }

    pub(crate) fn queue(&self) -> &Arc<SharedQueue> {
        &self.0.queue
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
