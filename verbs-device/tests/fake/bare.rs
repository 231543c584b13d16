//! A program that calls the functions of a context by its table, and does nothing beside: what
//! others do is measured beside it.

use std::ffi::c_int;
use std::ptr::{null_mut, with_exposed_provenance_mut};

use rddp_verbs_layout::{Plain, ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc, send, wr};

use crate::wire::State;
use crate::world::world;

/// The active end of a device's connection, and memory of its domain.
pub(crate) struct Bare {
    pair: *mut ibv_qp,
    queue: *mut ibv_cq,
    piece: ibv_sge,
}

/// Finds the connection of a device, and so many octets that are registered for it. They are never
/// freed.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fake_bare(device: c_int, len: u32) -> *const Bare {
    let world = world();
    let is_it = |pair: &crate::wire::Pair| {
        pair.device == device as usize && pair.is_active && pair.state == State::Ready
    };
    let (address, pair) = world.pairs.iter().find(|(_, pair)| is_it(pair)).expect("a connection");
    let fits = |region: &crate::world::Region| region.domain == pair.domain && region.len >= len.into();
    let (key, region) = world.regions.iter().find(|(_, region)| fits(region)).expect("memory");
    Box::into_raw(Box::new(Bare {
        pair: with_exposed_provenance_mut(*address),
        queue: with_exposed_provenance_mut(pair.queue),
        piece: ibv_sge { addr: region.addr, length: len, lkey: *key },
    }))
}

/// Posts a Send that is signaled.
///
/// # Safety
/// The connection is there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fake_bare_send(bare: *const Bare) -> c_int {
    // SAFETY: promised by the caller.
    let bare = unsafe { &*bare };
    let (mut piece, mut bad) = (bare.piece, null_mut());
    let (opcode, send_flags, num_sge) = (wr::SEND, send::SIGNALED, 1);
    let mut request =
        ibv_send_wr { opcode, send_flags, num_sge, sg_list: &raw mut piece, ..ibv_send_wr::zeroed() };
    // SAFETY: as above, and the request is there during the call.
    unsafe { ((*(*bare.pair).context).ops.post_send)(bare.pair, &raw mut request, &raw mut bad) }
}

/// Posts a receive.
///
/// # Safety
/// The connection is there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fake_bare_receive(bare: *const Bare) -> c_int {
    // SAFETY: promised by the caller.
    let bare = unsafe { &*bare };
    let (mut piece, mut bad) = (bare.piece, null_mut());
    let mut request = ibv_recv_wr { wr_id: 0, next: null_mut(), sg_list: &raw mut piece, num_sge: 1 };
    // SAFETY: as above, and the request is there during the call.
    unsafe { ((*(*bare.pair).context).ops.post_recv)(bare.pair, &raw mut request, &raw mut bad) }
}

/// Takes one completion. Returns how many there were.
///
/// # Safety
/// The connection is there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fake_bare_poll(bare: *const Bare) -> c_int {
    // SAFETY: promised by the caller.
    let bare = unsafe { &*bare };
    let mut completion = ibv_wc::default();
    // SAFETY: as above, and there is room for one.
    unsafe { ((*(*bare.queue).context).ops.poll_cq)(bare.queue, 1, &raw mut completion) }
}
