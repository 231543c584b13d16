//! Functions of librdmacm.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::ptr::null_mut;
use std::time::Duration;

use rddp_verbs_layout::{
    Plain, cm, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_ex, ibv_qp_init_attr, qp_mask, qp_state, rdma_cm_event,
    rdma_cm_id, rdma_event_channel,
};
use socket2::{SockAddr, SockAddrStorage};

use crate::queues::Events;
use crate::quirk;
use crate::wire::{Pair, State};
use crate::world::{CmEvent, Id, World, blocked, fail, world};

/// # Safety
/// The address is one of a socket, or NULL.
unsafe fn address(raw: *const libc::sockaddr) -> Option<SocketAddr> {
    if raw.is_null() {
        return None;
    }
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: promised by the caller; the tests use addresses of IPv4.
    unsafe {
        *storage.view_as::<libc::sockaddr_in>() = raw.cast::<libc::sockaddr_in>().read();
        SockAddr::new(storage, size_of::<libc::sockaddr_in>() as libc::socklen_t).as_socket()
    }
}

/// # Safety
/// The place has room for an address.
unsafe fn set_address(place: *mut libc::sockaddr_storage, address: SocketAddr) {
    let address = SockAddr::from(address);
    // SAFETY: promised by the caller.
    unsafe { place.cast::<u8>().copy_from(address.as_ptr().cast(), address.len() as usize) };
}

impl World {
    pub(crate) fn id(&mut self, id: *mut rdma_cm_id) -> &mut Id {
        self.ids.get_mut(&id.addr()).expect("an id of ours")
    }

    pub(crate) fn tell(&mut self, event: CmEvent) {
        // A request comes by the channel of the listener, which its id has, too.
        let Some(channel) = self.ids.get(&event.id).map(|id| id.channel) else { return };
        if let Some(channel) = self.cm_channels.get_mut(&channel) {
            channel.push(event);
        }
    }

    pub(crate) fn tell_of(&mut self, id: usize, kind: u32, status: i32) {
        self.tell(CmEvent { id, kind, status, ..CmEvent::default() });
    }

    /// Tells the passive end on InfiniBand that the active one has its reply.
    fn hears_of_reply(&mut self, id: usize) {
        let Some(id) = self.ids.get(&id) else { return };
        let is_told =
            |device: usize| !self.devices[device].is_iwarp() && !self.devices[device].has(quirk::NO_WORD);
        if let (Some(peer), true, true) = (id.peer, id.to.is_some(), id.device.is_some_and(is_told)) {
            self.tell_of(peer, cm::ESTABLISHED, 0);
        }
    }

    /// Tells the id of a queue pair that its connection is over.
    pub(crate) fn tell_of_end(&mut self, pair: usize) {
        let found = self.ids.iter_mut().find(|(_, id)| id.pair == Some(pair) && id.is_connected);
        if let Some((address, id)) = found {
            id.is_connected = false;
            let address = *address;
            self.tell_of(address, cm::DISCONNECTED, 0);
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    let Some(events) = Events::new() else { return null_mut() };
    let channel = Box::into_raw(Box::new(rdma_event_channel { fd: events.fd }));
    world().cm_channels.insert(channel.addr(), events);
    channel
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    world().cm_channels.remove(&channel.addr());
    // SAFETY: made by `rdma_create_event_channel`.
    drop(unsafe { Box::from_raw(channel) });
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    to: *mut *mut rdma_cm_event,
) -> c_int {
    let mut world = world();
    let Some(event) = world.cm_channels.get_mut(&channel.addr()).and_then(Events::pop) else {
        return fail(libc::EAGAIN);
    };
    let of_request = |address: usize| std::ptr::with_exposed_provenance_mut(address);
    let mut raw = Box::new(rdma_cm_event::zeroed());
    (raw.id, raw.listen_id) = (of_request(event.id), of_request(event.listener));
    (raw.event, raw.status) = (event.kind, event.status);
    raw.param.private_data = event.private_data.as_ptr().cast();
    raw.param.private_data_len = event.private_data.len() as u8;
    raw.param.responder_resources = event.responder_resources;
    raw.param.initiator_depth = event.initiator_depth;
    let raw = Box::into_raw(raw);
    if let Some(id) = world.ids.get_mut(&event.id) {
        id.unacknowledged += 1;
    }
    if event.kind == cm::ESTABLISHED {
        world.hears_of_reply(event.id);
    }
    world.taken.insert(raw.addr(), (event.id, event.private_data));
    // SAFETY: the caller has room for a pointer.
    unsafe { to.write(raw) };
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    let mut world = world();
    let Some((id, _)) = world.taken.remove(&event.addr()) else { return fail(libc::EINVAL) };
    if let Some(id) = world.ids.get_mut(&id) {
        id.unacknowledged -= 1;
    }
    // SAFETY: made by `rdma_get_cm_event`.
    drop(unsafe { Box::from_raw(event) });
    0
}

pub(crate) fn new_id(world: &mut World, channel: *mut rdma_event_channel) -> *mut rdma_cm_id {
    let mut c = Box::new(rdma_cm_id::zeroed());
    c.channel = channel;
    let id = Box::into_raw(c);
    let made = Id {
        device: None,
        channel: channel.addr(),
        pair: None,
        peer: None,
        port: None,
        to: None,
        is_asked: false,
        is_connected: false,
        depths: (0, 0),
        unacknowledged: 0,
        retries: 0,
    };
    world.ids.insert(id.expose_provenance(), made);
    id
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    to: *mut *mut rdma_cm_id,
    _context: *mut c_void,
    _space: u32,
) -> c_int {
    let id = new_id(&mut world(), channel);
    // SAFETY: the caller has room for a pointer.
    unsafe { to.write(id) };
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    let mut world = world();
    world.hang_up(id.addr());
    if world.id(id).is_asked {
        world.say_no(id.addr(), Vec::new());
    }
    let Some(gone) = world.ids.remove(&id.addr()) else { return fail(libc::EINVAL) };
    if gone.unacknowledged > 0 {
        blocked("an event of an id was not acknowledged");
    }
    world.listeners.retain(|_, listener| *listener != id.addr());
    if let Some(channel) = world.cm_channels.get_mut(&gone.channel) {
        channel.take(|event| event.id == id.addr());
    }
    for other in world.ids.values_mut() {
        other.peer = other.peer.filter(|peer| *peer != id.addr());
    }
    // SAFETY: made by `new_id`.
    drop(unsafe { Box::from_raw(id) });
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    let mut world = world();
    let before = std::mem::replace(&mut world.id(id).channel, channel.addr());
    let moved = world.cm_channels.get_mut(&before).map(|events| events.take(|event| event.id == id.addr()));
    for event in moved.unwrap_or_default() {
        world.tell(event);
    }
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn rdma_set_option(
    _id: *mut rdma_cm_id,
    _level: c_int,
    _option: c_int,
    _value: *mut c_void,
    _len: usize,
) -> c_int {
    0
}

/// # Safety
/// The id is one of ours.
pub(crate) unsafe fn use_device(world: &mut World, id: *mut rdma_cm_id, device: usize) {
    world.id(id).device = Some(device);
    // SAFETY: promised by the caller.
    unsafe {
        (*id).verbs = std::ptr::with_exposed_provenance_mut(world.devices[device].context);
        (*id).port_num = 1;
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, to: *mut libc::sockaddr) -> c_int {
    let mut world = world();
    // SAFETY: the caller passes an address.
    let Some(mut to) = (unsafe { address(to) }) else { return fail(libc::EINVAL) };
    let Some(device) = world.device_at(to.ip()) else { return fail(libc::EADDRNOTAVAIL) };
    if to.port() == 0 {
        to.set_port(20_000 + world.number() as u16);
    }
    world.id(id).port = Some(to.port());
    // SAFETY: the id is the caller's.
    unsafe {
        use_device(&mut world, id, device);
        set_address(&raw mut (*id).route.src_addr, to);
    }
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn rdma_listen(id: *mut rdma_cm_id, _backlog: c_int) -> c_int {
    let mut world = world();
    let (Some(device), Some(port)) = (world.id(id).device, world.id(id).port) else {
        return fail(libc::EINVAL);
    };
    if world.listeners.contains_key(&(device, port)) {
        return fail(libc::EADDRINUSE);
    }
    world.listeners.insert((device, port), id.addr());
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    from: *mut libc::sockaddr,
    to: *mut libc::sockaddr,
    _milliseconds: c_int,
) -> c_int {
    let mut world = world();
    // SAFETY: the caller passes an address.
    let Some(to) = (unsafe { address(to) }) else { return fail(libc::EINVAL) };
    let Some(device) = world.device_at(to.ip()) else {
        world.tell_of(id.addr(), cm::ADDR_ERROR, -libc::ENODEV);
        return 0;
    };
    world.id(id).to = Some(to);
    // SAFETY: the caller passes an address, or none.
    let from = unsafe { address(from) }.map_or(to.ip(), |from| from.ip());
    let from = SocketAddr::new(from, 0x8000 | world.number() as u16);
    // SAFETY: the id is the caller's.
    unsafe {
        use_device(&mut world, id, device);
        set_address(&raw mut (*id).route.src_addr, from);
        set_address(&raw mut (*id).route.dst_addr, to);
    }
    if world.devices[device].has(quirk::SIGNAL) {
        resolve_behind_signal(id.addr());
    } else {
        world.tell_of(id.addr(), cm::ADDR_RESOLVED, 0);
    }
    0
}

/// Sends a signal to the thread that waits for an address, and then the answer.
fn resolve_behind_signal(id: usize) {
    // SAFETY: this thread's own name.
    let waits = unsafe { libc::pthread_self() };
    std::thread::spawn(move || {
        let pause = Duration::from_millis(20);
        std::thread::sleep(pause);
        // SAFETY: the thread waits for the answer.
        unsafe { libc::pthread_kill(waits, libc::SIGUSR1) };
        std::thread::sleep(pause);
        world().tell_of(id, cm::ADDR_RESOLVED, 0);
    });
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, _milliseconds: c_int) -> c_int {
    world().tell_of(id.addr(), cm::ROUTE_RESOLVED, 0);
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    let mut world = world();
    let Some(device) = world.id(id).device else { return fail(libc::EINVAL) };
    // SAFETY: the caller passes attributes.
    let attr = unsafe { &*attr };
    let (cap, limits) = (attr.cap, &world.devices[device]);
    let pieces = cap.max_send_sge.max(cap.max_recv_sge);
    // A device does not tell how much it takes inline: it refuses more.
    if cap.max_inline_data > limits.max_inline()
        || pieces > limits.max_pieces()
        || cap.max_send_wr.max(cap.max_recv_wr) > limits.max_requests()
    {
        return fail(libc::EINVAL);
    }
    let mut c = ibv_qp_ex::zeroed();
    let number = world.number();
    // SAFETY: the domain is the caller's.
    (c.qp.context, c.qp.pd, c.qp.qp_num) = (unsafe { (*pd).context }, pd, number);
    let pair: *mut ibv_qp = Box::into_raw(Box::new(c)).cast();
    // SAFETY: the id is the caller's.
    unsafe { (*id).qp = pair };
    world.id(id).pair = Some(pair.expose_provenance());
    let made = Pair {
        device,
        domain: pd.addr(),
        queue: attr.send_cq.addr(),
        number,
        state: State::Unconnected,
        access: 0,
        rnr_timer: 0,
        retries: 0,
        ord: 0,
        inline: cap.max_inline_data,
        depth: cap.max_send_wr.into(),
        peer: None,
        is_active: false,
        has_heard: false,
        receives: Default::default(),
        shared: (!attr.srq.is_null()).then(|| attr.srq.addr()),
        under_way: None,
        outgoing: Default::default(),
        pending: Default::default(),
        reads: Default::default(),
        late: Vec::new(),
        posted: 0,
        freed: 0,
    };
    world.pairs.insert(pair.addr(), made);
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    let device = world().id(id).device;
    if device.is_some_and(|device| world().devices[device].has(quirk::SLOW)) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut world = world();
    world.hang_up(id.addr());
    if let Some(pair) = world.id(id).pair.take() {
        if world.lends_to_peer_of(pair) {
            blocked("a window is bound to a queue pair that is destroyed");
        }
        world.pairs.remove(&pair);
        // Those that nobody has taken go with what they are about.
        world.devices.iter_mut().for_each(|device| drop(device.events.take(|(_, about)| *about == pair)));
        // SAFETY: made by `rdma_create_qp`.
        drop(unsafe { Box::from_raw((*id).qp.cast::<ibv_qp_ex>()) });
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_qp(
    pair: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    let mut world = world();
    // SAFETY: the caller passes attributes.
    let attr = unsafe { &*attr };
    let address = pair.addr();
    let Some(pair) = world.pairs.get_mut(&address) else { return libc::EINVAL };
    if mask as u32 & qp_mask::ACCESS_FLAGS != 0 {
        pair.access = attr.qp_access_flags;
    }
    if mask as u32 & qp_mask::MIN_RNR_TIMER != 0 {
        pair.rnr_timer = attr.min_rnr_timer;
    }
    if mask as u32 & qp_mask::STATE != 0 && attr.qp_state == qp_state::ERR {
        world.fail(address);
    }
    0
}
