//! Asynchronous events: what happens to an object and no completion tells.

use std::ffi::{c_int, c_void};

use nix::errno::Errno;

use super::abi::{event, ibv_async_event, ibv_context};
use super::border::{given, minus};
use super::completion::Cq;
use super::context::{Context, context};
use super::handle::find;
use super::queue_pair::Qp;
use super::shared::Srq;
use crate::errors::Outcome;
use crate::refusal::because;

/// An event that the program has not taken yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Happened {
    /// Address of the object's handle.
    element: usize,
    /// `enum ibv_event_type`
    kind: u32,
}

impl Context {
    /// Queues an event about an object.
    pub(super) fn report<T>(&self, element: *mut T, kind: u32) {
        if let Some(events) = self.events() {
            events.push(Happened { element: element.expose_provenance(), kind });
        }
    }

    /// Removes the events about an object that is being destroyed.
    pub(super) fn forget<T>(&self, element: *mut T) {
        if let Some(events) = self.events() {
            events.remove(|event| event.element == element.addr());
        }
    }
}

/// Notes that the program has an event (`more`), or has done with one.
fn count(element: *mut c_void, kind: u32, more: bool) {
    let note =
        |events: &super::handle::Unacknowledged| if more { events.given() } else { events.acknowledge(1) };
    // An object that is gone has no events to wait for.
    let _ = match kind {
        event::CQ_ERR => find::<Cq>(element.cast()).map(|cq| note(&cq.events)),
        event::SRQ_ERR | event::SRQ_LIMIT_REACHED => find::<Srq>(element.cast()).map(|srq| note(&srq.events)),
        event::DEVICE_FATAL | event::PORT_ACTIVE | event::PORT_ERR | event::GID_CHANGE => Ok(()),
        _ => find::<Qp>(element.cast()).map(|qp| note(&qp.events)),
    };
}

/// # Safety
/// An event can be stored at `to`.
unsafe fn take(handle: *mut ibv_context, to: *mut ibv_async_event) -> Outcome<()> {
    let (context, to) = (context(handle)?, given(to)?);
    let happened = context
        .events()
        .ok_or_else(|| because(Errno::EINVAL, "the device is closed, or a parent process has opened it"))?
        .pop()?;
    let element = std::ptr::with_exposed_provenance_mut(happened.element);
    count(element, happened.kind, true);
    // SAFETY: promised by the caller.
    unsafe { to.write(ibv_async_event { element, event_type: happened.kind }) };
    Ok(())
}

pub(super) unsafe extern "C-unwind" fn ibv_get_async_event(
    handle: *mut ibv_context,
    to: *mut ibv_async_event,
) -> c_int {
    // SAFETY: the function's contract.
    minus("ibv_get_async_event", unsafe { take(handle, to) })
}

pub(super) unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the program passes an event that it was given.
    let event = unsafe { event.as_ref() }.ok_or(Errno::EINVAL);
    if let Ok(event) = event {
        count(event.element, event.event_type, false);
    }
}
