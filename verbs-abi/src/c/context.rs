//! Contexts: open devices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use parking_lot::Mutex;
use rddp_fault_guard::fork::Origin;

use super::abi::{Empty, ibv_context, ibv_context_ops, verbs_context};
use super::asynchronous::Happened;
use super::device::DeviceObject;
use super::handle::Shared;
use super::process::process;
use super::{completion, extended_cq, post, query, queue_pair, shared, trouble, unfinished, window};
use crate::engine::Engine;
use crate::errors::Outcome;
use crate::fifo::Fifo;
use crate::refusal::because;

/// An open device. Programs know the last field of the first one; what is before it, they find by
/// its distance. It is never freed, so that one that was closed is recognised, and so is one that
/// a child of `fork` has inherited.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Context {
    c: Shared<verbs_context>,
    magic: u64,
    pub(super) device: &'static DeviceObject,
    /// Events that the program has not taken; none once the context is closed.
    events: Mutex<Option<Arc<Fifo<Happened>>>>,
    closed: AtomicBool,
    /// The process that has the descriptor of the events for itself.
    origin: Origin,
}

const MAGIC: u64 = u64::from_be_bytes(*b"rddpverb");
const NONE: Empty = None;

/// Distance of what programs know from the beginning of a context.
const OFFSET: usize = std::mem::offset_of!(verbs_context, context);

impl Context {
    pub(super) fn open(device: &'static DeviceObject) -> Outcome<&'static Context> {
        use super::handle::Object;
        device.device.settings()?;
        let events = Arc::new(Fifo::new()?);
        let c = ibv_context {
            device: device.handle(),
            ops: OPS,
            cmd_fd: -1,
            async_fd: events.raw_fd(),
            num_comp_vectors: 1,
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            abi_compat: usize::MAX,
        };
        let c = verbs_context {
            empty_368: [NONE; 6],
            query_port: query::query_port,
            from_advise_mr: unfinished::from_advise_mr(),
            create_cq_ex: extended_cq::create_cq_ex,
            private: std::ptr::null_mut(),
            query_device_ex: query::query_device_ex,
            from_destroy_flow: unfinished::from_destroy_flow(),
            create_qp_ex: queue_pair::create_qp_ex,
            get_srq_num: unfinished::get_srq_num,
            create_srq_ex: unfinished::create_srq_ex,
            from_open_xrcd: unfinished::from_open_xrcd(),
            abi_placeholder: 0,
            sz: size_of::<verbs_context>(),
            context: c,
        };
        let closed = AtomicBool::new(false);
        let context: &'static Context = Box::leak(Box::new(Context {
            c: Shared::new(c),
            magic: MAGIC,
            device,
            events: Mutex::new(Some(events)),
            closed,
            origin: Origin::here(),
        }));
        // An event of a port has its number for an address.
        let report = |kind| context.report(std::ptr::without_provenance_mut::<u8>(1), kind);
        trouble::begin(std::ptr::from_ref(context).addr(), report, fail);
        Ok(context)
    }

    /// Returns the pointer by which programs know the context.
    pub(super) fn handle(&self) -> *mut ibv_context {
        // SAFETY: the context is a field of what the pointer names.
        unsafe { &raw mut (*self.c.get()).context }
    }

    /// Returns the events that the program has not taken. A child of `fork` has none from a context
    /// of its parent's, who sleeps on the same descriptor, and may have held the lock.
    pub(super) fn events(&self) -> Option<Arc<Fifo<Happened>>> {
        if self.origin.is_here() { self.events.lock().clone() } else { None }
    }

    pub(super) fn close(&self) -> Outcome<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Err(because(Errno::EINVAL, "the device is closed already"));
        }
        if self.origin.is_here() {
            trouble::forget(std::ptr::from_ref(self).addr());
            // The descriptor goes when no thread sleeps on it any more.
            drop(self.events.lock().take());
        }
        Ok(())
    }

    pub(super) fn engine(&self) -> Outcome<Arc<Engine>> {
        self.device.engine()
    }
}

/// Ends all that the program has, as a device does that has to be reset.
fn fail() {
    for qp in process().all_pairs() {
        qp.queues.abort();
        qp.end();
    }
}

/// Looks a context up: `EINVAL` if it is NULL, closed, or none of ours.
pub(super) fn context(handle: *mut ibv_context) -> Outcome<&'static Context> {
    if handle.is_null() {
        return Err(because(Errno::EINVAL, "an argument is NULL"));
    }
    // SAFETY: a context of ours is preceded by this much, and lives for ever.
    let context = unsafe { &*handle.byte_sub(OFFSET).cast::<Context>() };
    let is_ours = context.magic == MAGIC && !context.closed.load(Ordering::Acquire);
    is_ours
        .then_some(context)
        .ok_or_else(|| because(Errno::EINVAL, "the device is closed, or is none of rddp"))
}

const OPS: ibv_context_ops = ibv_context_ops {
    empty_0: [NONE; 7],
    alloc_mw: window::alloc_mw,
    bind_mw: window::bind_mw,
    dealloc_mw: window::dealloc_mw,
    empty_10: [NONE; 1],
    poll_cq: completion::poll_cq,
    req_notify_cq: completion::req_notify_cq,
    empty_13: [NONE; 7],
    post_srq_recv: shared::post_srq_recv,
    empty_21: [NONE; 4],
    post_send: post::post_send,
    post_recv: post::post_recv,
    empty_27: [NONE; 5],
};
