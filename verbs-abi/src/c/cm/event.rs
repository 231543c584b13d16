//! Events of the connection manager.

use std::sync::Arc;

use nix::errno::Errno;

use super::super::abi::{Plain, cm, rdma_cm_event, rdma_conn_param};
use super::super::handle::{Object, Shared};
use super::id::Id;

/// An event, from when it happens until the program has acknowledged it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Event {
    c: Shared<rdma_cm_event>,
    /// Private data of the peer's program; the length of what a program sees has eight bits.
    data: [u8; 256],
    /// The id that the event counts for: a request counts for the id that listens.
    pub(super) owner: Arc<Id>,
    /// The id that a request has made.
    pub(super) requested: Option<Arc<Id>>,
}

// SAFETY: `repr(C)`, and the first field is an `rdma_cm_event`.
unsafe impl Object for Event {
    type C = rdma_cm_event;
}

/// Details of an event, besides its kind.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) error: Option<Errno>,
    pub(super) data: Vec<u8>,
    /// Reads at a time: `responder_resources` and `initiator_depth`.
    pub(super) responder: u16,
    pub(super) initiator: u16,
}

impl Event {
    pub(super) fn new(owner: Arc<Id>, kind: u32, told: &Told, requested: Option<Arc<Id>>) -> Arc<Event> {
        let mut data = [0; 256];
        let len = told.data.len().min(255);
        data[..len].copy_from_slice(&told.data[..len]);
        let listens = requested.is_some();
        let id = requested.as_ref().unwrap_or(&owner).handle();
        let c = rdma_cm_event {
            id,
            listen_id: if listens { owner.handle() } else { std::ptr::null_mut() },
            event: kind,
            status: told.error.map_or(0, |error| -(error as i32)),
            param: rdma_conn_param {
                private_data: std::ptr::null(),
                private_data_len: len as u8,
                responder_resources: told.responder.min(255) as u8,
                initiator_depth: told.initiator.min(255) as u8,
                flow_control: 0,
                retry_count: 0,
                rnr_retry_count: 0,
                srq: 0,
                qp_num: 0,
            },
            ..rdma_cm_event::zeroed()
        };
        let event = Arc::new(Event { c: Shared::new(c), data, owner, requested });
        if len > 0 {
            // SAFETY: nobody else knows the event yet; the data stay where they are with it.
            unsafe { (*event.c.get()).param.private_data = event.data.as_ptr().cast() };
        }
        event
    }

    pub(super) fn kind(&self) -> u32 {
        // SAFETY: a field of our own object, which nobody writes.
        unsafe { (*self.c.get()).event }
    }

    /// Returns the error that the event tells of, as a call returns it that waits for the event.
    pub(super) fn error(&self) -> Option<Errno> {
        // SAFETY: as above.
        let status = unsafe { (*self.c.get()).status };
        match (self.kind(), status) {
            (_, 0) => None,
            (cm::REJECTED, _) => Some(Errno::ECONNREFUSED),
            (_, status) => Some(Errno::from_raw(status.abs())),
        }
    }
}
