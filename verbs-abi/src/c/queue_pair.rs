//! Queue pairs.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use nix::errno::Errno;
use parking_lot::Mutex;
use rddp_rnic::{QpConfig, QpNum, QpState, QueuePair, SendWr, Transport};

use super::abi::{
    Plain, device, ibv_context, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, qp_init, qp_state, qp_type,
};
use super::border::{given, number, pointer};
use super::cm::Id;
use super::completion::Cq;
use super::context::context;
use super::demanded::Demanded;
use super::extended_qp::{Extended, functions};
use super::gate::pass;
use super::handle::{Held, Object, Shared, Unacknowledged, await_sole, find, find_if, publish, retire};
use super::memory::Pd;
use super::modify::RETRIES;
use super::process::process;
use super::shared::Srq;
use crate::datagrams::Datagrams;
use crate::device::Device;
use crate::engine::Watcher;
use crate::errors::{Outcome, of_device};
use crate::ports::Joint;
use crate::refusal::{Cause, because};

/// A queue pair.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Qp {
    c: Shared<ibv_qp_ex>,
    pub(super) queues: QueuePair,
    pub(super) pd: Held<Pd>,
    pub(super) send_cq: Held<Cq>,
    pub(super) recv_cq: Held<Cq>,
    pub(super) srq: Option<Held<Srq>>,
    pub(super) cap: ibv_qp_cap,
    pub(super) signals_all: bool,
    /// The id of the connection manager that connects it.
    pub(super) id: Mutex<Weak<Id>>,
    /// Attributes that a program may set and ask for, and that have no other effect.
    pub(super) attributes: Mutex<ibv_qp_attr>,
    pub(super) events: Unacknowledged,
    /// The connection may use the extensions of RFC 7306, as far as this end knows.
    extensions: AtomicBool,
    pub(super) extended: Option<Extended>,
    /// The end of a queue pair that is joined by numbers, as on RoCE.
    pub(super) joint: Option<Joint>,
    /// The socket of a queue pair of datagrams.
    pub(super) datagrams: Option<Datagrams>,
    /// Requests that wait, while the queue pair is in SQD.
    pub(super) drain: Mutex<Option<Drain>>,
    /// Faults on demand, where there are rules.
    pub(super) demanded: Option<Arc<Demanded>>,
}

// SAFETY: `repr(C)`, and the first field begins with an `ibv_qp`.
unsafe impl Object for Qp {
    type C = ibv_qp;
}

/// Requests that were posted in SQD.
#[derive(Debug)]
pub(super) struct Drain {
    pub(super) requests: Vec<SendWr>,
    /// The program has asked for `IBV_EVENT_SQ_DRAINED`, which has not come yet.
    pub(super) tells: bool,
}

/// The way in which a queue pair finds its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joins {
    /// By `ibv_modify_qp`, on a device that has that: the wire is the private one.
    ByNumbers,
    /// By the connection manager: the wire is iWARP, whose peer need not be of these devices.
    ByManager,
}

impl Qp {
    /// Makes a queue pair. `attr.cap` is what the program gets; `operations` are those of an
    /// extended one.
    pub(super) fn new(
        pd: Arc<Pd>,
        attr: &mut ibv_qp_init_attr,
        operations: Option<u64>,
        joins: Joins,
    ) -> Outcome<Arc<Qp>> {
        let has_extensions = pd.context.device.device.has_atomics();
        let extended = operations.map(|bits| Extended::new(bits, has_extensions)).transpose()?;
        exists(attr.qp_type, joins, &pd.context.device.device)?;
        let (send_cq, recv_cq) = (find::<Cq>(attr.send_cq)?, find::<Cq>(attr.recv_cq)?);
        let srq = find_if::<Srq>(attr.srq)?;
        attr.cap = granted(&attr.cap, srq.is_some(), &pd.context.device.device)?;
        let (place, datagrams) = match pd.context.device.device.roce {
            Some(address) if attr.qp_type == qp_type::UD => (None, Some(Datagrams::open(address)?)),
            Some(address) if joins == Joins::ByNumbers => {
                (Some(process().place(&pd.context.device.device, address, &pd.context.engine()?)?), None)
            }
            _ => (None, None),
        };
        let (transport, number) = match (&place, &datagrams) {
            (Some(place), _) => (Transport::Acknowledged, Some(place.number())),
            (_, Some(datagrams)) => (Transport::Unreliable, Some(datagrams.number())),
            _ => (Transport::Iwarp, None),
        };
        let config = QpConfig {
            recv_cq: recv_cq.queue.clone(),
            srq: srq.as_ref().map(|srq| srq.queue.clone()),
            max_send: attr.cap.max_send_wr as usize,
            max_recv: attr.cap.max_recv_wr as usize,
            // As the libraries of RNICs count: programs post until the queue is full, and then poll
            // a completion queue that is no longer.
            until_polled: true,
            quiet_until_polled: pd.context.device.device.strict,
            forgets_completions: true,
            transport,
            num: number.map(QpNum),
            ..QpConfig::new(&send_cq.queue)
        };
        let queues = pd.domain.create_qp(&config).map_err(of_device)?;
        let mut c = ibv_qp_ex::zeroed();
        c.qp = ibv_qp {
            context: pd.context.handle(),
            qp_context: attr.qp_context,
            pd: pd.handle(),
            send_cq: attr.send_cq,
            recv_cq: attr.recv_cq,
            srq: attr.srq,
            handle: queues.num().0,
            qp_num: queues.num().0,
            state: qp_state::RESET,
            qp_type: attr.qp_type,
            ..c.qp
        };
        if extended.is_some() {
            c.functions = functions();
        }
        let demanded = Demanded::of(&queues);
        let qp = Arc::new(Qp {
            c: Shared::new(c),
            queues,
            send_cq: Held::new(send_cq),
            recv_cq: Held::new(recv_cq),
            srq: srq.map(Held::new),
            cap: attr.cap,
            signals_all: attr.sq_sig_all != 0,
            id: Mutex::default(),
            attributes: Mutex::new(ibv_qp_attr {
                path_mtu: device::MTU_1024,
                port_num: 1,
                retry_cnt: RETRIES,
                rnr_retry: RETRIES,
                ..ibv_qp_attr::default()
            }),
            events: Unacknowledged::default(),
            extensions: AtomicBool::new(false),
            joint: place.map(Joint::new),
            datagrams,
            drain: Mutex::default(),
            demanded,
            extended,
            pd: Held::new(pd),
        });
        let watcher: Weak<dyn Watcher> = Arc::<Qp>::downgrade(&qp);
        qp.pd.context.engine()?.watch(qp.queues.num(), watcher);
        process().add_pair(&qp);
        Ok(qp)
    }

    /// Notes whether the connection that is about to begin may use the extensions of RFC 7306.
    pub(super) fn set_extensions(&self, allowed: bool) {
        self.extensions.store(allowed, Ordering::Relaxed);
    }

    /// Returns whether requests of RFC 7306 may be posted: the setting is on, and for a connection.
    pub(super) fn has_extensions(&self) -> bool {
        self.extensions.load(Ordering::Relaxed)
    }

    /// Returns whether the connection manager alone connects it: its states are those of iWARP.
    pub(super) fn is_connected_by_manager(&self) -> bool {
        self.joint.is_none() && self.datagrams.is_none()
    }

    /// Refuses requests without a connection, which nothing would ever end (siw's answer). A
    /// connection may stand before its event has come here.
    pub(super) fn takes_requests(&self) -> Outcome<()> {
        if !self.is_connected_by_manager() {
            return match self.state() {
                qp_state::RTS | qp_state::SQD | qp_state::SQE | qp_state::ERR => Ok(()),
                _ => Err(because(Errno::EINVAL, "the queue pair is not ready to send (IBV_QPS_RTS)")),
            };
        }
        let is_idle = || self.queues.state() == QpState::Idle;
        if matches!(self.state(), qp_state::RESET | qp_state::INIT | qp_state::RTR) && is_idle() {
            let why = "the queue pair has no connection: only receives may be posted before it has";
            return Err(because(Errno::ENOTCONN, why));
        }
        Ok(())
    }

    /// Refuses receives of a queue pair in RESET, where adapters keep none.
    #[inline]
    pub(super) fn takes_receives(&self) -> Outcome<()> {
        if self.state() == qp_state::RESET && self.pd.context.device.device.strict {
            return Err(because(Errno::EINVAL, "the queue pair is in RESET: receives need INIT at least"));
        }
        Ok(())
    }

    /// Returns the device and the number, which tell the queue pair from all others.
    pub(super) fn key(&self) -> (&'static str, u32) {
        (self.pd.context.device.device.name, self.queues.num().0)
    }

    /// Returns the state that the program sees.
    pub(super) fn state(&self) -> u32 {
        // SAFETY: a field of our own object, which programs only read.
        unsafe { (*self.c.get()).qp.state }
    }

    /// Returns the type that the program has asked for.
    pub(super) fn kind(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.c.get()).qp.qp_type }
    }

    pub(super) fn set_state(&self, state: u32) {
        // SAFETY: as above.
        unsafe { (*self.c.get()).qp.state = state };
    }
}

/// Refuses types of queue pairs that the device lacks.
pub(super) fn exists(kind: u32, joins: Joins, device: &Device) -> Outcome<()> {
    match kind {
        qp_type::RC => Ok(()),
        // What is reliable serves those who do not need it.
        qp_type::UC if device.roce.is_some() => Ok(()),
        qp_type::UD if device.roce.is_some() && joins == Joins::ByNumbers => Ok(()),
        qp_type::UD => Err(Cause::Datagrams.refuse(Errno::EOPNOTSUPP)),
        qp_type::XRC_SEND | qp_type::XRC_RECV => Err(Cause::Xrc.refuse(Errno::EOPNOTSUPP)),
        _ => Err(because(Errno::EOPNOTSUPP, "the device has queue pairs of type RC alone")),
    }
}

/// Returns what a queue pair gets of what a program asks for.
fn granted(asked: &ibv_qp_cap, has_srq: bool, device: &Device) -> Outcome<ibv_qp_cap> {
    let limits = &device.limits;
    let too_much = asked.max_send_wr > limits.requests
        || asked.max_recv_wr > limits.requests
        || asked.max_send_sge > limits.sge
        || asked.max_recv_sge > limits.sge
        || asked.max_inline_data > limits.inline;
    if too_much {
        return Err(because(
            Errno::EINVAL,
            "longer queues, more elements or more inline data than the device has",
        ));
    }
    Ok(ibv_qp_cap {
        max_recv_wr: if has_srq { 0 } else { asked.max_recv_wr },
        max_send_sge: asked.max_send_sge.max(1),
        max_recv_sge: if has_srq { 0 } else { asked.max_recv_sge.max(1) },
        max_send_wr: asked.max_send_wr,
        // Some programs take a 0 for "no inline data at all".
        max_inline_data: asked.max_inline_data.max(if device.strict { 0 } else { 64 }),
    })
}

/// Destroys a queue pair: the connection ends in order, behind the program's back. Programs
/// disconnect, destroy the queue pair and then wait for the event: so this is the end for the id.
pub(super) fn destroy(handle: *mut ibv_qp) -> Outcome<()> {
    let qp = find::<Qp>(handle)?;
    if let Ok(engine) = qp.pd.context.engine() {
        engine.unwatch(qp.queues.num());
    }
    process().remove_pair(&qp);
    qp.give_up_drain();
    qp.pd.context.forget(handle);
    qp.end();
    // Threads that acknowledge events find the queue pair until then.
    qp.events.wait();
    drop(retire::<Qp>(handle)?);
    await_sole(&qp);
    Ok(())
}

/// # Safety
/// `attr` is NULL or a structure that the program lets be written.
unsafe fn create(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
    operations: Option<u64>,
) -> Outcome<*mut ibv_qp> {
    let (pd, mut attr) = (find::<Pd>(pd)?, given(attr)?);
    // SAFETY: promised by the caller.
    Qp::new(pd, unsafe { attr.as_mut() }, operations, Joins::ByNumbers).map(|qp| publish(&qp))
}

pub(super) unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the function's contract.
    pointer("ibv_create_qp", unsafe { create(pd, attr, None) })
}

/// Attributes of which a queue pair is made: its domain, which may be NULL; the plain attributes;
/// and the operations, if it is an extended one.
type Parts = (*mut ibv_pd, *mut ibv_qp_init_attr, Option<u64>);

/// Takes extended attributes apart: `EOPNOTSUPP` if there are some that this device lacks.
///
/// # Safety
/// `attr` is NULL or a structure.
pub(super) unsafe fn parts(attr: *mut ibv_qp_init_attr_ex) -> Outcome<Parts> {
    let attr = given(attr)?.as_ptr();
    // SAFETY: promised by the caller.
    let (mask, pd, operations) = unsafe { ((*attr).comp_mask, (*attr).pd, (*attr).send_ops_flags) };
    // SAFETY: as above.
    let flags = if mask & qp_init::CREATE_FLAGS == 0 { 0 } else { unsafe { (*attr).create_flags } };
    if mask & qp_init::XRCD != 0 {
        return Err(Cause::Xrc.refuse(Errno::EOPNOTSUPP));
    }
    if flags != 0 || mask & !(qp_init::PD | qp_init::CREATE_FLAGS | qp_init::SEND_OPS_FLAGS) != 0 {
        return Err(because(Errno::EOPNOTSUPP, "extended attributes that the device does not have"));
    }
    let pd = if mask & qp_init::PD == 0 { std::ptr::null_mut() } else { pd };
    Ok((pd, attr.cast(), (mask & qp_init::SEND_OPS_FLAGS != 0).then_some(operations)))
}

pub(super) unsafe extern "C" fn create_qp_ex(
    handle: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the function's contract; the plain structure is the beginning of the other.
    pointer("ibv_create_qp_ex", unsafe {
        context(handle)
            .and_then(|_| pass("ibv_create_qp_ex"))
            .and_then(|()| parts(attr))
            .and_then(|(pd, attr, operations)| create(pd, attr, operations))
    })
}

pub(super) extern "C" fn ibv_destroy_qp(handle: *mut ibv_qp) -> c_int {
    number("ibv_destroy_qp", destroy(handle))
}
