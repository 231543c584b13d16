//! Functions of libibverbs: devices, domains, regions.

use std::ffi::{c_char, c_int, c_void};

use rddp_verbs_layout::{
    Plain, access, device, device_cap, ibv_async_event, ibv_context, ibv_device, ibv_device_attr, ibv_mr,
    ibv_pd, ibv_port_attr,
};

use crate::quirk;
use crate::world::{Kind, Region, fail, null, world};

/// Vendor that siw tells.
const SIW: u32 = 0x62_6d74;

/// Vendor of Linux's rxe.
const RXE: u32 = 0xff_ffff;

/// Octets that may be registered where that is limited.
const LOCKED: usize = 64 * 1024;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    let mut world = world();
    world.make_asked_for();
    let context = |device: &crate::world::Device| std::ptr::with_exposed_provenance_mut(device.context);
    let mut list: Vec<*mut ibv_context> = world.devices.iter().map(context).collect();
    list.push(std::ptr::null_mut());
    // SAFETY: the caller has room for the count.
    unsafe { count.write(list.len() as c_int - 1) };
    let list = Box::leak(list.into_boxed_slice()).as_mut_ptr();
    world.lists += 1;
    list
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    world().lists -= 1;
    let mut len = 1;
    // SAFETY: a list of ours, with NULL at its end.
    while unsafe { !(*list.add(len - 1)).is_null() } {
        len += 1;
    }
    // SAFETY: made by `rdma_get_devices`, with that length.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, len)) });
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: a device of ours.
    unsafe { (&raw const (*device).name).cast() }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_fork_init() -> c_int {
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    let world = world();
    let found = &world.devices[world.device_of(context.addr())];
    let is_iwarp = found.is_iwarp();
    let told = ibv_device_attr {
        vendor_id: match found.kind {
            Kind::Siw => SIW,
            Kind::Rxe => RXE,
            Kind::Adapter => 0,
        },
        max_qp: 1 << 16,
        max_srq: if found.has(quirk::UNSHARED) { 0 } else { 1 << 10 },
        max_srq_wr: if found.has(quirk::SHORT) { 8 } else { 1 << 12 },
        max_srq_sge: found.max_pieces() as c_int,
        max_qp_wr: found.max_requests() as c_int,
        max_sge: found.max_pieces() as c_int,
        max_sge_rd: if is_iwarp { 1 } else { 32 },
        max_cq: 1 << 16,
        max_cqe: 1 << 15,
        max_mr: 1 << 16,
        max_qp_rd_atom: 128,
        max_qp_init_rd_atom: 128,
        atomic_cap: if is_iwarp { device::ATOMIC_NONE } else { 1 },
        device_cap_flags: if is_iwarp {
            device_cap::MEM_MGT_EXTENSIONS
        } else {
            device_cap::MEM_WINDOW | device_cap::MEM_WINDOW_TYPE_2B
        },
        phys_port_cnt: 1,
        ..ibv_device_attr::zeroed()
    };
    // SAFETY: the caller has room for the structure.
    unsafe { attr.write(told) };
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    _port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    let world = world();
    let ethernet = device::LINK_LAYER_ETHERNET as u8;
    let (max_msg_sz, link_layer) = match world.devices[world.device_of(context.addr())].kind {
        Kind::Siw => (u32::MAX, ethernet),
        Kind::Rxe => (8 << 20, ethernet),
        Kind::Adapter => (1 << 30, 1),
    };
    let state = device::PORT_ACTIVE;
    let told = ibv_port_attr { max_msg_sz, state, link_layer, ..ibv_port_attr::default() };
    // SAFETY: the caller has room for the structure.
    unsafe { attr.write(told) };
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    let mut world = world();
    let device = world.device_of(context.addr());
    let Some((kind, element)) = world.devices[device].events.pop() else { return fail(libc::EAGAIN) };
    let element = std::ptr::with_exposed_provenance_mut(element);
    // SAFETY: the caller has room for an event.
    unsafe { event.write(ibv_async_event { element, event_type: kind }) };
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_ack_async_event(_event: *mut ibv_async_event) {}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    Box::into_raw(Box::new(ibv_pd { context, handle: 0 }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: made by `ibv_alloc_pd`.
    drop(unsafe { Box::from_raw(pd) });
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    flags: c_int,
) -> *mut ibv_mr {
    let flags = flags as u32;
    if length == 0 {
        return null(libc::EINVAL);
    }
    if flags & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0 && flags & access::LOCAL_WRITE == 0 {
        return null(libc::EINVAL);
    }
    let mut world = world();
    // SAFETY: a domain of ours.
    let context = unsafe { (*pd).context };
    let device = world.device_of(context.addr());
    if world.devices[device].has(quirk::LOCKED_MEMORY) && length > LOCKED {
        return null(libc::ENOMEM);
    }
    let key = world.number() << 8 | 0x5a;
    let addr_number = addr.addr() as u64;
    world
        .regions
        .insert(key, Region { device, domain: pd.addr(), addr: addr_number, len: length as u64, flags });
    Box::into_raw(Box::new(ibv_mr { context, pd, addr, length, handle: key, lkey: key, rkey: key }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    let mut world = world();
    // SAFETY: made by `ibv_reg_mr`.
    if world.is_lent(unsafe { (*mr).lkey }) {
        return libc::EINVAL;
    }
    // SAFETY: as above.
    let mr = unsafe { Box::from_raw(mr) };
    world.regions.remove(&mr.lkey);
    0
}
