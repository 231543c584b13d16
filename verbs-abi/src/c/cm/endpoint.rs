//! Ids without a channel, whose steps wait for their end, and the calls made for them.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use nix::errno::Errno;

use super::super::abi::{cm, ibv_context, ibv_pd, ibv_qp_init_attr, rai, rdma_addrinfo, rdma_cm_id};
use super::super::border::{given, minus, pointer};
use super::super::device::{devices, list};
use super::super::handle::{find, publish};
use super::address::{load, rdma_bind_addr, rdma_resolve_addr, rdma_resolve_route};
use super::channel::{acknowledge, give};
use super::event::Event;
use super::id::{Id, Template, destroy};
use super::queue_pair::destroy_srq;
use crate::errors::Outcome;
use crate::refusal::because;

impl Id {
    /// Waits for the event of a step, if the id has no channel of the program's. The event stays at
    /// the id until the next step.
    pub(super) fn complete(self: &Arc<Self>) -> Outcome<()> {
        if !self.state.lock().waits {
            return Ok(());
        }
        self.wait()?.error().map_or(Ok(()), Err)
    }

    /// Waits for the next event, and leaves it at the id.
    fn wait(self: &Arc<Self>) -> Outcome<Arc<Event>> {
        let channel = self.state.lock().channel.clone();
        // SAFETY: a field of our own object, which programs only read.
        let place = unsafe { &raw mut (*self.c()).event };
        // SAFETY: as above.
        let last = unsafe { place.replace(std::ptr::null_mut()) };
        if !last.is_null() {
            let _ = acknowledge(last);
        }
        let event = channel.events.pop()?;
        // SAFETY: as above.
        unsafe { place.write(give(&event)) };
        Ok(event)
    }

    /// Waits for a request, and returns its id, with a queue pair if the listening id was made with
    /// the attributes for one.
    fn next_request(self: &Arc<Self>) -> Outcome<*mut rdma_cm_id> {
        if !self.state.lock().waits {
            return Err(because(Errno::EINVAL, "the id has an event channel: requests are its events"));
        }
        let channel = self.state.lock().channel.clone();
        let event = channel.events.pop()?;
        if let Some(error) = event.error() {
            return Err(error);
        }
        let requested = event.requested.as_ref().filter(|_| event.kind() == cm::CONNECT_REQUEST);
        let id = requested.ok_or_else(|| because(Errno::EINVAL, "another event than a request came"))?;
        let template = self.state.lock().template;
        if let Some(Template(mut attr)) = template {
            // SAFETY: a field of our own object.
            let pd = unsafe { (*self.c()).pd };
            if let Err(error) = id.create_qp(pd, &mut attr, None) {
                let _ = destroy(id.c());
                return Err(error);
            }
        }
        // SAFETY: a field of our own object, which programs only read.
        unsafe { (*id.c()).event = give(&event) };
        Ok(id.c())
    }
}

pub(in crate::c) unsafe extern "C-unwind" fn rdma_get_request(
    listen: *mut rdma_cm_id,
    to: *mut *mut rdma_cm_id,
) -> c_int {
    minus(
        "rdma_get_request",
        find::<Id>(listen).and_then(|id| {
            let to = given(to)?;
            let requested = id.next_request()?;
            // SAFETY: the program has room for a pointer.
            unsafe { to.write(requested) };
            Ok(())
        }),
    )
}

/// Makes an id of what `rdma_getaddrinfo` has found.
///
/// # Safety
/// The pointers are those of the C function.
unsafe fn create(
    to: *mut *mut rdma_cm_id,
    info: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Outcome<()> {
    let to = given(to)?;
    // SAFETY: promised by the caller.
    let info = unsafe { given(info)?.as_ref() };
    let id = Id::new(None, std::ptr::null_mut(), info.ai_port_space as u32)?;
    // SAFETY: a field of our own object.
    unsafe { (*id.c()).qp_type = info.ai_qp_type as u32 };
    let handle = publish(&id);
    // SAFETY: as above.
    let made = unsafe { prepare(&id, info, pd, attr) };
    if let Err(error) = made {
        id.destroy_qp();
        let _ = destroy(handle);
        return Err(error);
    }
    // SAFETY: as above.
    unsafe { to.write(handle) };
    Ok(())
}

/// # Safety
/// As for [`create`].
unsafe fn prepare(
    id: &Arc<Id>,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Outcome<()> {
    let done = |status: c_int| if status == 0 { Ok(()) } else { Err(Errno::last()) };
    let (source, destination) = (info.ai_src_addr, info.ai_dst_addr);
    // SAFETY: promised by the caller.
    let mut attr = unsafe { attr.as_mut() };
    if let Some(attr) = &mut attr {
        attr.qp_type = info.ai_qp_type as u32;
    }
    // SAFETY: as above.
    unsafe {
        if info.ai_flags & rai::PASSIVE != 0 {
            load(source)?;
            done(rdma_bind_addr(id.c(), source))?;
            if !pd.is_null() {
                (*id.c()).pd = pd;
            }
            id.state.lock().template = attr.map(|attr| Template(*attr));
            return Ok(());
        }
        done(rdma_resolve_addr(id.c(), source, destination, 2000))?;
    }
    done(rdma_resolve_route(id.c(), 2000))?;
    attr.map_or(Ok(()), |attr| id.create_qp(pd, attr, None))
}

pub(in crate::c) unsafe extern "C-unwind" fn rdma_create_ep(
    to: *mut *mut rdma_cm_id,
    info: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the function's contract.
    minus("rdma_create_ep", unsafe { create(to, info, pd, attr) })
}

pub(in crate::c) extern "C" fn rdma_destroy_ep(handle: *mut rdma_cm_id) {
    if let Ok(id) = find::<Id>(handle) {
        id.destroy_qp();
        destroy_srq(&id);
        drop(id);
        let _ = destroy(handle);
    }
}

pub(in crate::c) unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    let contexts =
        devices().iter().map(|device| device.shared_context().map(|context| context.handle().cast()));
    let contexts: Outcome<Vec<*mut c_void>> = contexts.collect();
    // SAFETY: the function's contract.
    pointer("rdma_get_devices", contexts.and_then(|contexts| unsafe { list(&contexts, count) })).cast()
}

pub(in crate::c) unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: the program passes what `rdma_get_devices` has returned.
    unsafe { libc::free(list.cast()) };
}
