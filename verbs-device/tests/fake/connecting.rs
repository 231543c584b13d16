//! Functions of librdmacm: connections begin and end.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use rddp_verbs_layout::{access, cm, rdma_cm_id, rdma_conn_param};

use crate::manager::{new_id, use_device};
use crate::quirk;
use crate::wire::State;
use crate::world::{CmEvent, World, be_silent, fail, world};

/// Reason of a Reject on InfiniBand: nothing listens, or a program says no.
const NO_LISTENER: i32 = 8;
const BY_PROGRAM: i32 = 28;

/// Octets of private data on InfiniBand, whatever a program says.
const REQUEST: usize = 56;
const REPLY: usize = 196;
const REJECT: usize = 148;

/// # Safety
/// The parameters are NULL, or there with their private data.
unsafe fn said(param: *const rdma_conn_param) -> (Vec<u8>, u8, u8, u8) {
    // SAFETY: promised by the caller.
    let Some(param) = (unsafe { param.as_ref() }) else { return (Vec::new(), 0, 0, 0) };
    // SAFETY: as above.
    let data = unsafe { octets(param.private_data, param.private_data_len) };
    (data, param.responder_resources, param.initiator_depth, param.retry_count)
}

/// # Safety
/// There are as many octets.
unsafe fn octets(data: *const c_void, len: u8) -> Vec<u8> {
    if len == 0 {
        return Vec::new();
    }
    // SAFETY: promised by the caller; there is one at least.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), usize::from(len)) }.to_vec()
}

/// Returns private data as the other end gets it.
fn padded(mut data: Vec<u8>, len: usize, is_iwarp: bool) -> Vec<u8> {
    if !is_iwarp {
        data.resize(len, 0);
    }
    data
}

impl World {
    fn is_iwarp(&self, id: usize) -> bool {
        self.ids.get(&id).and_then(|id| id.device).is_some_and(|device| self.devices[device].is_iwarp())
    }

    /// Tells all ids of a device that it is gone.
    pub(crate) fn remove(&mut self, device: usize) {
        let ids = self.ids.iter().filter(|(_, id)| id.device == Some(device));
        for id in ids.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.tell_of(id, cm::DEVICE_REMOVAL, 0);
        }
    }

    /// Rejects the request of a peer.
    pub(crate) fn say_no(&mut self, id: usize, private_data: Vec<u8>) {
        let (is_iwarp, peer) = (self.is_iwarp(id), self.ids.get(&id).and_then(|id| id.peer));
        let Some(peer) = peer else { return };
        let status = if is_iwarp { -libc::ECONNRESET } else { BY_PROGRAM };
        let private_data = padded(private_data, REJECT, is_iwarp);
        self.tell(CmEvent { id: peer, kind: cm::REJECTED, status, private_data, ..CmEvent::default() });
    }

    /// Ends a connection by one of its ends.
    pub(crate) fn hang_up(&mut self, id: usize) -> bool {
        let is_iwarp = self.is_iwarp(id);
        let Some(found) = self.ids.get(&id) else { return false };
        let (pair, peer, was, device) = (found.pair, found.peer, found.is_connected, found.device);
        if let Some(pair) = pair {
            self.end(pair);
        }
        let other = peer.and_then(|peer| self.ids.get(&peer));
        let (other, is_first) =
            (other.and_then(|peer| peer.pair), other.is_some_and(|peer| peer.is_connected));
        let has = |quirk| device.is_some_and(|device| self.devices[device].has(quirk));
        let (is_told, is_lost) = (!has(quirk::UNTOLD), has(quirk::LOST) && is_first);
        if let (Some(pair), true) = (pair, is_iwarp && is_told) {
            self.tell_of_end(pair);
        }
        match (peer.filter(|_| was), other) {
            (Some(_), Some(other)) if is_iwarp => {
                self.end(other);
                self.tell_of_end(other);
            }
            (Some(peer), _) if is_lost => {
                // This is no answer.
                self.tell_of(id, cm::TIMEWAIT_EXIT, 0);
                tell_again(id, peer);
            }
            // The other end goes on until it disconnects, too; this one hears of it then.
            (Some(peer), _) if !is_iwarp => self.tell_of(peer, cm::DISCONNECTED, 0),
            _ => {}
        }
        if let Some(id) = self.ids.get_mut(&id) {
            id.is_connected = false;
        }
        let peer = peer.filter(|peer| self.ids.get(peer).is_some_and(|peer| !peer.is_connected));
        if let Some(peer) = peer.filter(|_| was && !is_iwarp) {
            // Both have ended it.
            self.tell_of(id, cm::TIMEWAIT_EXIT, 0);
            self.tell_of(peer, cm::TIMEWAIT_EXIT, 0);
        }
        was
    }
}

/// Tells an id of the end that the other one has told before, if that is still there.
fn tell_again(id: usize, peer: usize) {
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        let mut world = world();
        if world.ids.contains_key(&id) {
            world.tell_of(peer, cm::DISCONNECTED, 0);
        }
    });
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    // SAFETY: the caller passes parameters.
    let (private_data, ird, ord, retries) = unsafe { said(param) };
    let mut world = world();
    let is_iwarp = world.is_iwarp(id.addr());
    let (Some(to), Some(device)) = (world.id(id).to, world.id(id).device) else { return fail(libc::EINVAL) };
    if private_data.len() > if is_iwarp { 251 } else { REQUEST } {
        return fail(libc::EINVAL);
    }
    if to.ip().to_string().ends_with(".200") {
        // Of a silent host, no device tells anything in a test's time; siw's driver waits itself.
        let pair = world.id(id).pair;
        drop(world);
        if is_iwarp {
            be_silent();
            // It answers late, and sends at once.
            self::world().receive_late(pair);
        }
        return 0;
    }
    if std::mem::take(&mut world.devices[device].port_taken) {
        return fail(libc::EADDRINUSE);
    }
    let Some(listener) = world.listeners.get(&(device, to.port())).copied() else {
        if is_iwarp {
            return fail(libc::ECONNREFUSED);
        }
        world.tell_of(id.addr(), cm::REJECTED, NO_LISTENER);
        return 0;
    };
    (world.id(id).depths, world.id(id).retries) = ((ird, ord), retries);
    let channel = world.ids[&listener].channel;
    let new = new_id(&mut world, std::ptr::with_exposed_provenance_mut(channel));
    // SAFETY: the id was made above, and the other one is the caller's.
    unsafe {
        use_device(&mut world, new, device);
        (*new).route.src_addr = (*id).route.dst_addr;
        (*new).route.dst_addr = (*id).route.src_addr;
    }
    (world.id(new).peer, world.id(new).is_asked) = (Some(id.addr()), true);
    world.id(id).peer = Some(new.addr());
    world.tell(CmEvent {
        id: new.addr(),
        listener,
        kind: cm::CONNECT_REQUEST,
        private_data: padded(private_data, REQUEST, is_iwarp),
        // What one end asks for, the other end answers.
        responder_resources: ord,
        initiator_depth: ird,
        ..CmEvent::default()
    });
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    // SAFETY: the caller passes parameters.
    let (private_data, ird, ord, _) = unsafe { said(param) };
    let mut world = world();
    let is_iwarp = world.is_iwarp(id.addr());
    let Some(active) = world.id(id).peer else { return fail(libc::ECONNRESET) };
    let (Some(here), Some(there)) = (world.id(id).pair, world.ids[&active].pair) else {
        return fail(libc::EINVAL);
    };
    let (their_ird, their_ord) = world.ids[&active].depths;
    // siw answers as many Reads as the other end wants to ask for, whatever its program says.
    let ird = if is_iwarp { ird.max(their_ord) } else { ird };
    let retries = world.ids[&active].retries;
    let (their_ird, their_ord) = (their_ird.min(ord), their_ord.min(ird));
    for (pair, peer, ord, is_active) in [(here, there, ord, false), (there, here, their_ord, true)] {
        let Some(pair) = world.pairs.get_mut(&pair) else { return fail(libc::EINVAL) };
        (pair.peer, pair.ord, pair.is_active, pair.retries) = (Some(peer), ord, is_active, retries);
        pair.state = State::Ready;
        // All rights of peers, before the program has said which.
        pair.access = access::LOCAL_WRITE
            | access::REMOTE_WRITE
            | access::REMOTE_READ
            | if is_iwarp { 0 } else { access::REMOTE_ATOMIC };
    }
    world.id(id).is_asked = false;
    for id in [id.addr(), active] {
        if let Some(id) = world.ids.get_mut(&id) {
            id.is_connected = true;
        }
    }
    // On InfiniBand the passive end hears of it when the active one has taken its event.
    if is_iwarp {
        world.tell_of(id.addr(), cm::ESTABLISHED, 0);
    }
    // RNICs tell the active end its own depths, in the other's order.
    let (responder_resources, initiator_depth) = if is_iwarp { (their_ord, their_ird) } else { (ord, ird) };
    world.tell(CmEvent {
        id: active,
        kind: cm::ESTABLISHED,
        private_data: padded(private_data, REPLY, is_iwarp),
        responder_resources,
        initiator_depth,
        ..CmEvent::default()
    });
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, len: u8) -> c_int {
    let mut world = world();
    if !std::mem::take(&mut world.id(id).is_asked) {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller passes that many octets.
    let data = unsafe { octets(data, len) };
    world.say_no(id.addr(), data);
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    let mut world = world();
    if world.hang_up(id.addr()) { 0 } else { fail(libc::EINVAL) }
}
