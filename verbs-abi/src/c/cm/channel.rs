//! Event channels.

use std::ffi::c_int;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

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
    /// The thread that took events last, and whether it is here for another.
    taker: Mutex<Option<(ThreadId, bool)>>,
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
        Ok(Arc::new(Channel { c: Shared::new(c), events, taker: Mutex::default(), users: Users::default() }))
    }

    /// Gives a thread that takes events a moment to come back for the next. rping destroys the
    /// channel while its thread does, which for a device of the kernel is there long before, as
    /// ids are destroyed by system calls.
    fn await_taker(&self) {
        let is_away = || matches!(*self.taker.lock(), Some((id, false)) if id != thread::current().id());
        let until = Instant::now() + COMES_BACK;
        while is_away() && Instant::now() < until {
            thread::sleep(COMES_BACK / 20);
        }
    }
}

const COMES_BACK: Duration = Duration::from_millis(10);

pub(in crate::c) extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    pointer("rdma_create_event_channel", Channel::new().map(|channel| publish(&channel)))
}

/// Destroys a channel. Ids that still use it keep it alive behind the program's back.
pub(in crate::c) extern "C" fn rdma_destroy_event_channel(handle: *mut rdma_event_channel) {
    if let Ok(channel) = find::<Channel>(handle) {
        channel.await_taker();
    }
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
    *channel.taker.lock() = Some((thread::current().id(), true));
    let event = channel.events.pop();
    *channel.taker.lock() = Some((thread::current().id(), false));
    let event = event?;
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
