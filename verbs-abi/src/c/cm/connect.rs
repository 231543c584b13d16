//! Connections: connecting, answering requests, ending.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use rddp_rnic::{ConnectError, ConnectOptions, Negotiated};

use super::super::abi::{access, cm, ibv_qp_attr, qp_mask, qp_state, rdma_cm_id, rdma_conn_param};
use super::super::border::{given, minus};
use super::super::handle::find;
use super::super::process::process;
use super::super::queue_pair::Qp;
use super::event::Told;
use super::id::{Id, Phase, State};
use crate::device::Device;
use crate::errors::{Outcome, of_connect};
use crate::refusal::because;

/// The depth by which a program asks for the most.
const MOST: u8 = 255;

/// Rights that the connection manager gives to the peer of a queue pair (`qp_access_flags`).
pub(super) const RIGHTS: u32 = access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_READ;

/// Time for a server to listen again. perftest's does so for each of its connections: with `-R` it
/// takes one to agree on the test, closes its listener, and opens another, while its client
/// connects already. A network adapter's startup takes longer than that, and TCP's does not.
const RETRY_REFUSED: Duration = Duration::from_millis(100);

/// Parameters of a connection that a program asks for.
#[derive(Debug)]
struct Wanted {
    data: Vec<u8>,
    /// Inbound and outbound Reads at a time; `None`: the most.
    ird: Option<u8>,
    ord: Option<u8>,
    retries: Option<u8>,
    /// The number of a queue pair that the program has made itself.
    qp: Option<u32>,
}

impl Wanted {
    /// # Safety
    /// NULL or a structure, whose private data are as long as it says.
    unsafe fn load(param: *const rdma_conn_param) -> Wanted {
        // SAFETY: promised by the caller.
        let Some(param) = (unsafe { param.as_ref() }) else {
            return Wanted { data: Vec::new(), ird: None, ord: None, retries: None, qp: None };
        };
        let depth = |depth| (depth != MOST).then_some(depth);
        Wanted {
            // SAFETY: as above.
            data: unsafe { octets(param.private_data, param.private_data_len) },
            ird: depth(param.responder_resources),
            ord: depth(param.initiator_depth),
            retries: Some(param.retry_count),
            qp: Some(param.qp_num),
        }
    }

    /// Returns the options of a connection with `peer`, whose port is that of the server.
    fn options(self, device: &Device, peer: SocketAddr) -> Outcome<ConnectOptions> {
        let set = device.settings()?.options(peer, device.limits.depth);
        let depth = |asked: Option<u8>, most: u16| asked.map_or(most, |asked| most.min(asked.into()));
        Ok(ConnectOptions {
            ird: depth(self.ird, set.ird),
            ord: depth(self.ord, set.ord),
            private_data: self.data,
            retry_refused: RETRY_REFUSED,
            ..set
        })
    }
}

/// Returns private data of a program.
///
/// # Safety
/// NULL, or as many octets.
unsafe fn octets(data: *const c_void, len: u8) -> Vec<u8> {
    if data.is_null() {
        return Vec::new();
    }
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), usize::from(len)) }.to_vec()
}

/// Returns what a program is told of a connection. As in the kernel's connection manager for
/// iWARP, the initiator's depth is the IRD of this end.
fn told(negotiated: Option<&Negotiated>, data: Vec<u8>) -> Told {
    let (responder, initiator) = negotiated.map_or((0, 0), |agreed| (agreed.ord, agreed.ird));
    Told { error: None, data, responder, initiator }
}

/// Returns the event of a failure.
fn failed(error: ConnectError) -> (u32, Told) {
    let errno = of_connect(&error);
    let kind = match errno {
        Errno::ECONNREFUSED | Errno::ECONNRESET => cm::REJECTED,
        Errno::ETIMEDOUT => cm::UNREACHABLE,
        _ => cm::CONNECT_ERROR,
    };
    let data = match error {
        ConnectError::Rejected { private_data } => private_data,
        _ => Vec::new(),
    };
    (kind, Told { error: Some(errno), data, ..Told::default() })
}

impl Id {
    /// Returns the queue pair to connect: the one that stands in the id, by whatever way, or the
    /// one that the program names.
    fn pair(self: &Arc<Self>, state: &mut State, wanted: &Wanted) -> Outcome<Arc<Qp>> {
        // SAFETY: a field of our own object, which programs may write: some make a queue pair by
        // another id, or by none, and put it here.
        let placed = unsafe { (*self.c()).qp };
        let qp = if placed.is_null() {
            let named = wanted.qp.and_then(|num| process().pair(self.device.device.name, num));
            named.ok_or_else(|| because(Errno::EINVAL, "the id has no queue pair, and none is named"))?
        } else {
            find(placed)?
        };
        // The peer knows nothing of acknowledgements, and need not be of these devices.
        if qp.joint.is_some() {
            qp.queues.set_acknowledged(false).map_err(|error| of_connect(&error))?;
        }
        *qp.id.lock() = Arc::downgrade(self);
        state.qp = Arc::downgrade(&qp);
        Ok(qp)
    }

    fn connect(self: &Arc<Self>, wanted: Wanted) -> Outcome<()> {
        let mut state = self.state.lock();
        if state.phase != Phase::RouteResolved {
            return Err(because(Errno::EINVAL, "the id's route is not resolved, or it has been used"));
        }
        let (qp, to) = (self.pair(&mut state, &wanted)?, state.destination.ok_or(Errno::EINVAL)?);
        let source = state.socket.as_ref().and_then(|socket| socket.local_addr().ok()?.as_socket());
        if let Some(retries) = wanted.retries {
            qp.attributes.lock().retry_cnt = retries;
        }
        let options = ConnectOptions { source, ..wanted.options(&self.device.device, to)? };
        qp.set_extensions(options.extensions);
        match qp.queues.begin_to(to, &options) {
            Ok(()) => state.phase = Phase::Connecting,
            Err(error @ ConnectError::NotIdle(_)) => return Err(of_connect(&error)),
            Err(error) => {
                let (kind, told) = failed(error);
                state.phase = Phase::Over;
                self.tell(&state, kind, &told);
            }
        }
        Ok(())
    }

    /// Notes the end of a startup, with a connection or without one.
    pub(in crate::c) fn startup_over(self: &Arc<Self>, qp: &Qp) {
        let mut state = self.state.lock();
        if state.phase != Phase::Connecting {
            return;
        }
        let begun = qp.queues.begun();
        if begun.is_some() {
            // The connection has the port now, or nobody needs it.
            state.socket = None;
        }
        match begun {
            None => {}
            Some(Ok(connected)) => {
                state.phase = Phase::Connected;
                qp.set_state(qp_state::RTS);
                qp.limit_silence();
                if let Some(source) = qp.queues.local_addr() {
                    self.set_source(source);
                }
                self.tell(
                    &state,
                    cm::ESTABLISHED,
                    &told(connected.negotiated.as_ref(), connected.private_data),
                );
            }
            Some(Err(error)) => {
                state.phase = Phase::Over;
                let (kind, told) = failed(error);
                self.tell(&state, kind, &told);
            }
        }
    }

    /// Accepts the peer's request. The lock is held until the program is told, so that nobody tells
    /// it of the end before.
    fn accept(self: &Arc<Self>, wanted: Wanted) -> Outcome<()> {
        let mut state = self.state.lock();
        if state.phase != Phase::Requested {
            return Err(because(Errno::EINVAL, "the id has no request that waits for an answer"));
        }
        let qp = self.pair(&mut state, &wanted)?;
        let peer = state.destination.ok_or(Errno::EINVAL)?;
        // Its retries are for the peer, which cannot be told of them here.
        let options = wanted.options(&self.device.device, peer)?;
        let request = state.request.take().ok_or(Errno::EINVAL)?;
        qp.set_extensions(options.extensions);
        let negotiated = request.accept_with(&qp.queues, &options).map_err(|error| {
            state.phase = Phase::Over;
            of_connect(&error)
        })?;
        state.phase = Phase::Connected;
        qp.set_state(qp_state::RTS);
        qp.limit_silence();
        if let Some(source) = qp.queues.local_addr() {
            self.set_source(source);
        }
        self.tell(&state, cm::ESTABLISHED, &told(negotiated.as_ref(), Vec::new()));
        Ok(())
    }

    fn reject(&self, data: &[u8]) -> Outcome<()> {
        let mut state = self.state.lock();
        let none = || because(Errno::EINVAL, "the id has no request that waits for an answer");
        let request = state.request.take().ok_or_else(none)?;
        state.phase = Phase::Over;
        request.reject(data).map_err(|error| of_connect(&error))
    }

    /// Begins to close the connection. Returns whether an event tells of its end, or will.
    fn disconnect(&self) -> Outcome<bool> {
        let state = self.state.lock();
        let qp = state.qp.upgrade();
        match (state.phase, qp) {
            (Phase::Connected, Some(qp)) => {
                drop(state);
                qp.set_state(qp_state::SQD);
                qp.queues.disconnect();
                Ok(true)
            }
            // As with the kernel's iWARP devices, there is nothing to do and that is no error. The
            // program may have had the event.
            (Phase::Over, _) => Ok(!state.channel.events.is_empty()),
            _ => Err(because(Errno::EINVAL, "the id is not connected")),
        }
    }

    /// Ends the connection of an id that the program destroys while its queue pair lives on, as
    /// the kernel's connection manager does.
    pub(super) fn abandon(&self, qp: &Qp, phase: Phase) {
        match phase {
            Phase::Connecting => qp.queues.abort(),
            Phase::Connected => {
                qp.set_state(qp_state::ERR);
                qp.queues.disconnect();
            }
            _ => {}
        }
    }
}

pub(in crate::c) unsafe extern "C-unwind" fn rdma_connect(
    handle: *mut rdma_cm_id,
    param: *const rdma_conn_param,
) -> c_int {
    // SAFETY: the function's contract.
    let wanted = unsafe { Wanted::load(param) };
    minus(
        "rdma_connect",
        find::<Id>(handle).and_then(|id| {
            id.connect(wanted)?;
            id.complete()
        }),
    )
}

pub(in crate::c) unsafe extern "C-unwind" fn rdma_accept(
    handle: *mut rdma_cm_id,
    param: *const rdma_conn_param,
) -> c_int {
    // SAFETY: the function's contract.
    let wanted = unsafe { Wanted::load(param) };
    minus(
        "rdma_accept",
        find::<Id>(handle).and_then(|id| {
            id.accept(wanted)?;
            id.complete()
        }),
    )
}

pub(in crate::c) unsafe extern "C" fn rdma_reject(
    handle: *mut rdma_cm_id,
    data: *const c_void,
    len: u8,
) -> c_int {
    // SAFETY: the function's contract.
    let data = unsafe { octets(data, len) };
    minus("rdma_reject", find::<Id>(handle).and_then(|id| id.reject(&data)))
}

pub(in crate::c) extern "C-unwind" fn rdma_disconnect(handle: *mut rdma_cm_id) -> c_int {
    minus(
        "rdma_disconnect",
        find::<Id>(handle).and_then(|id| if id.disconnect()? { id.complete() } else { Ok(()) }),
    )
}

/// Refused, as by the kernel's iWARP devices: an id is established by its queue pair alone.
pub(in crate::c) extern "C" fn rdma_establish(handle: *mut rdma_cm_id) -> c_int {
    let why = "an iWARP id is established by its queue pair alone";
    minus("rdma_establish", find::<Id>(handle).and_then(|_| Err(because(Errno::EINVAL, why))))
}

/// Events of a queue pair reach its id anyway.
pub(in crate::c) extern "C" fn rdma_notify(handle: *mut rdma_cm_id, _event: u32) -> c_int {
    minus("rdma_notify", find::<Id>(handle).map(drop))
}

/// Says which attributes bring a queue pair, that the program has made itself, to a state.
pub(in crate::c) unsafe extern "C" fn rdma_init_qp_attr(
    handle: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    minus(
        "rdma_init_qp_attr",
        find::<Id>(handle).and_then(|id| {
            let (mut attr, mask) = (given(attr)?, given(mask)?);
            let is_roce = id.device.device.roce.is_some();
            // SAFETY: the program's structure, in which it names the state, and a number's room.
            unsafe {
                let attr = attr.as_mut();
                let wanted = match attr.qp_state {
                    qp_state::INIT if is_roce => {
                        qp_mask::STATE | qp_mask::ACCESS_FLAGS | qp_mask::PKEY_INDEX | qp_mask::PORT
                    }
                    qp_state::INIT | qp_state::RTR => qp_mask::STATE | qp_mask::ACCESS_FLAGS,
                    qp_state::RTS => 0,
                    _ => return Err(because(Errno::EINVAL, "a state to which no id brings a queue pair")),
                };
                attr.qp_access_flags = RIGHTS;
                (attr.port_num, attr.pkey_index) = (1, 0);
                mask.write(wanted as c_int);
            }
            Ok(())
        }),
    )
}
