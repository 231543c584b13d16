//! Ids: what a connection is to the program, from its address to its end.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use nix::errno::Errno;
use parking_lot::Mutex;
use rddp_rnic::{ConnectRequest, Listener};
use socket2::Socket;

use super::super::abi::{Plain, cm, ibv_qp_init_attr, port_space, qp_type, rdma_cm_id, rdma_event_channel};
use super::super::border::{given, minus};
use super::super::context::Context;
use super::super::device::{DeviceObject, devices};
use super::super::handle::{Object, Shared, Unacknowledged, find, publish, retire};
use super::super::process::process;
use super::super::queue_pair::Qp;
use super::address;
use super::channel::{Channel, acknowledge};
use super::event::{Event, Told};
use super::option::Settings;
use crate::errors::Outcome;
use crate::refusal::because;

/// An id.
#[derive(Debug)]
#[repr(C)]
pub(in crate::c) struct Id {
    c: Shared<IdRoom>,
    pub(super) device: &'static DeviceObject,
    pub(super) state: Mutex<State>,
    pub(super) unacknowledged: Unacknowledged,
}

/// C's part, and zeros behind it, where programs of other releases may look for more.
#[repr(C)]
struct IdRoom {
    c: rdma_cm_id,
    room: [u64; 32],
}

// SAFETY: `repr(C)`, and the first field begins with an `rdma_cm_id`.
unsafe impl Object for Id {
    type C = rdma_cm_id;
}

/// The progress of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Bound,
    AddressResolved,
    RouteResolved,
    Connecting,
    Connected,
    Listening,
    /// Made by a peer's request, which the program has not answered.
    Requested,
    /// The connection, or the attempt, is over.
    Over,
}

/// State of an id that programs do not see.
#[derive(Debug)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) channel: Arc<Channel>,
    /// The channel is the id's own, and each step waits for its event.
    pub(super) waits: bool,
    /// The socket that has the id's address, until it listens or is connected.
    pub(super) socket: Option<Socket>,
    /// The peer, with the port of the server, whichever end that is.
    pub(super) destination: Option<SocketAddr>,
    pub(super) listener: Option<(Listener, u64)>,
    pub(super) request: Option<ConnectRequest>,
    pub(super) qp: Weak<Qp>,
    pub(super) settings: Settings,
    /// Attributes of the queue pairs of requests, for an id made by `rdma_create_ep`.
    pub(super) template: Option<Template>,
}

/// Attributes with pointers of the program's: see [`State::template`].
#[derive(Clone, Copy)]
pub(super) struct Template(pub(super) ibv_qp_init_attr);

// SAFETY: the pointers are handles, which are looked up when they are used.
unsafe impl Send for Template {}

impl std::fmt::Debug for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Template")
    }
}

impl Id {
    /// Makes an id that reports to a channel; without one it gets its own, and waits.
    pub(super) fn new(channel: Option<Arc<Channel>>, context: *mut c_void, space: u32) -> Outcome<Arc<Id>> {
        let device = devices().first().ok_or(Errno::ENODEV)?;
        let waits = channel.is_none();
        let channel = channel.map_or_else(Channel::new, Ok)?;
        let mut c = rdma_cm_id::zeroed();
        (c.channel, c.context, c.ps, c.qp_type) = (channel.handle(), context, space, qp_type::RC);
        let state = State {
            phase: Phase::Idle,
            channel,
            waits,
            socket: None,
            destination: None,
            listener: None,
            request: None,
            qp: Weak::new(),
            settings: Settings::default(),
            template: None,
        };
        Ok(Arc::new(Id {
            c: Shared::new(IdRoom { c, room: [0; 32] }),
            device,
            state: Mutex::new(state),
            unacknowledged: Unacknowledged::default(),
        }))
    }

    /// Returns C's part: see [`Shared::get`].
    pub(super) fn c(&self) -> *mut rdma_cm_id {
        self.handle()
    }

    pub(super) fn space(&self) -> u32 {
        // SAFETY: a field of our own object, which nobody writes.
        unsafe { (*self.c()).ps }
    }

    /// Gives the id its device, and the protection domain of all ids that have no other.
    pub(super) fn bind_device(&self) -> Outcome<&'static Context> {
        let context = self.device.shared_context()?;
        let pd = process().default_pd(self.device.device.name, context)?;
        // SAFETY: fields of our own object, which programs only read.
        unsafe {
            (*self.c()).verbs = context.handle();
            (*self.c()).port_num = 1;
            if (*self.c()).pd.is_null() {
                (*self.c()).pd = pd;
            }
        }
        Ok(context)
    }

    pub(super) fn set_source(&self, addr: SocketAddr) {
        // SAFETY: as above.
        unsafe { address::store(addr, &raw mut (*self.c()).route.src_addr) };
    }

    pub(super) fn set_destination(&self, addr: SocketAddr) {
        // SAFETY: as above.
        unsafe { address::store(addr, &raw mut (*self.c()).route.dst_addr) };
    }

    /// Tells the program of an event. The state is locked meanwhile, so that events keep order.
    pub(super) fn tell(self: &Arc<Self>, state: &State, kind: u32, told: &Told) {
        state.channel.events.push(Event::new(self.clone(), kind, told, None));
    }

    /// Notes the end of the connection, of which the program is told once.
    pub(in crate::c) fn disconnected(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.phase == Phase::Connected {
            state.phase = Phase::Over;
            self.tell(&state, cm::DISCONNECTED, &Told::default());
        }
    }

    /// Ends what the id is doing, and drops the events that the program has not taken.
    fn end(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let phase = std::mem::replace(&mut state.phase, Phase::Over);
        let listener = state.listener.take();
        let (request, qp) = (state.request.take(), std::mem::take(&mut state.qp));
        let channel = state.channel.clone();
        drop(state);
        if let (Some((listener, key)), Ok(engine)) = (listener, self.device.engine()) {
            engine.forget(&listener, key);
        }
        if let Some(request) = request {
            let _ = request.reject(b"");
        }
        // The program may have moved the queue pair to another id.
        let is_own = |qp: &Arc<Qp>| qp.id.lock().ptr_eq(&Arc::downgrade(self));
        if let Some(qp) = qp.upgrade().filter(is_own) {
            *qp.id.lock() = Weak::new();
            self.abandon(&qp, phase);
        }
        for event in channel.events.remove(|event| Arc::ptr_eq(&event.owner, self)) {
            // A request that the program never saw is answered by a rejection.
            if let Some(requested) = &event.requested {
                drop(retire::<Id>(requested.handle()));
                requested.end();
            }
        }
    }

    /// Moves the id, and the events that wait for the program, to another channel.
    fn migrate(self: &Arc<Self>, channel: Option<Arc<Channel>>) -> Outcome<()> {
        let waits = channel.is_none();
        let channel = channel.map_or_else(Channel::new, Ok)?;
        let mut state = self.state.lock();
        for event in state.channel.events.remove(|event| Arc::ptr_eq(&event.owner, self)) {
            // The program learns of a request's id by this event: from the new channel.
            if let Some(requested) = &event.requested {
                requested.report_to(&mut requested.state.lock(), channel.clone(), waits);
            }
            channel.events.push(event);
        }
        self.report_to(&mut state, channel, waits);
        Ok(())
    }

    fn report_to(&self, state: &mut State, channel: Arc<Channel>, waits: bool) {
        // SAFETY: a field of our own object, which programs only read.
        unsafe { (*self.c()).channel = channel.handle() };
        (state.channel, state.waits) = (channel, waits);
    }
}

pub(super) fn find_channel(handle: *mut rdma_event_channel) -> Outcome<Option<Arc<Channel>>> {
    super::super::handle::find_if(handle)
}

/// # Safety
/// A pointer can be stored at `to`.
unsafe fn create(
    channel: *mut rdma_event_channel,
    to: *mut *mut rdma_cm_id,
    context: *mut c_void,
    space: u32,
) -> Outcome<()> {
    let (to, channel) = (given(to)?, find_channel(channel)?);
    match space {
        port_space::TCP | port_space::UDP => {}
        _ => return Err(because(Errno::EPROTONOSUPPORT, "the port spaces are RDMA_PS_TCP and RDMA_PS_UDP")),
    }
    let id = Id::new(channel, context, space)?;
    // SAFETY: promised by the caller.
    unsafe { to.write(publish(&id)) };
    Ok(())
}

pub(in crate::c) unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    to: *mut *mut rdma_cm_id,
    context: *mut c_void,
    space: u32,
) -> c_int {
    // SAFETY: the function's contract.
    minus("rdma_create_id", unsafe { create(channel, to, context, space) })
}

/// Destroys an id once the program has acknowledged its events. Its queue pair stays.
pub(super) fn destroy(handle: *mut rdma_cm_id) -> Outcome<()> {
    let id = retire::<Id>(handle)?;
    id.end();
    // SAFETY: a field of our own object; a step that has waited for its event has left it there.
    let kept = unsafe { (*id.c()).event };
    if !kept.is_null() {
        let _ = acknowledge(kept);
    }
    id.unacknowledged.wait();
    Ok(())
}

pub(in crate::c) extern "C" fn rdma_destroy_id(handle: *mut rdma_cm_id) -> c_int {
    minus("rdma_destroy_id", destroy(handle))
}

pub(in crate::c) extern "C" fn rdma_migrate_id(
    handle: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    minus("rdma_migrate_id", find::<Id>(handle).and_then(|id| id.migrate(find_channel(channel)?)))
}
