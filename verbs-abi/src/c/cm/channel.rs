//! Event channels.

use std::ffi::c_int;
use std::sync::Arc;

use super::super::abi::{rdma_cm_event, rdma_event_channel};
use super::super::border::{given, minus, pointer};
use super::super::handle::{Object, Shared, Used, Users, find, publish, retire};
use super::event::Event;
use crate::errors::Outcome;
use crate::fifo::Fifo;

/// An event channel.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Channel {
    c: Shared<rdma_event_channel>,
    pub(super) events: Fifo<Arc<Event>>,
    users: Users,
}

// SAFETY: `repr(C)`, and the first field is an `rdma_event_channel`.
unsafe impl Object for Channel {
    type C = rdma_event_channel;
}

impl Used for Channel {
    fn users(&self) -> &Users {
        &self.users
    }
}

impl Channel {
    pub(super) fn new() -> Outcome<Arc<Channel>> {
        let events = Fifo::new()?;
        let c = rdma_event_channel { fd: events.raw_fd() };
        Ok(Arc::new(Channel { c: Shared::new(c), events, users: Users::default() }))
    }
}

pub(in crate::c) extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    pointer("rdma_create_event_channel", Channel::new().map(|channel| publish(&channel)))
}

/// Destroys a channel. Ids that still use it keep it alive behind the program's back.
pub(in crate::c) extern "C" fn rdma_destroy_event_channel(handle: *mut rdma_event_channel) {
    drop(retire::<Channel>(handle));
}

/// Gives an event to the program, which acknowledges it later.
pub(super) fn give(event: &Arc<Event>) -> *mut rdma_cm_event {
    event.owner.unacknowledged.given();
    publish(event)
}

/// Takes an event back.
pub(super) fn acknowledge(handle: *mut rdma_cm_event) -> Outcome<()> {
    let event = retire::<Event>(handle)?;
    event.owner.unacknowledged.acknowledge(1);
    Ok(())
}

/// # Safety
/// A pointer can be stored at `to`.
unsafe fn take(handle: *mut rdma_event_channel, to: *mut *mut rdma_cm_event) -> Outcome<()> {
    let to = given(to)?;
    // The channel stays for as long as a thread sleeps here, also where another destroys it, as
    // rping does. A thread that is cancelled leaves it behind.
    let channel = find::<Channel>(handle)?;
    let event = channel.events.pop()?;
    // SAFETY: promised by the caller.
    unsafe { to.write(give(&event)) };
    Ok(())
}

pub(in crate::c) unsafe extern "C-unwind" fn rdma_get_cm_event(
    handle: *mut rdma_event_channel,
    to: *mut *mut rdma_cm_event,
) -> c_int {
    // SAFETY: the function's contract.
    minus("rdma_get_cm_event", unsafe { take(handle, to) })
}

pub(in crate::c) extern "C" fn rdma_ack_cm_event(handle: *mut rdma_cm_event) -> c_int {
    minus("rdma_ack_cm_event", acknowledge(handle))
}
