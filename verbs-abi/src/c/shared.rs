//! Shared receive queues.

use std::ffi::c_int;
use std::sync::Arc;

use nix::errno::Errno;
use rddp_rnic::{RecvWr, SharedReceiveQueue, SrqConfig};

use super::abi::{Plain, ibv_pd, ibv_recv_wr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, srq_mask};
use super::border::{given, number, pointer};
use super::demanded::post_shared_recv;
use super::gate::pass;
use super::handle::{
    Held, Object, Shared, Unacknowledged, Used, Users, find, find_unused, follow, publish, retire_unused,
};
use super::memory::Pd;
use super::post::{answer, post_receives};
use crate::errors::{Outcome, of_device, of_post};
use crate::refusal::because;

/// A shared receive queue.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Srq {
    c: Shared<ibv_srq>,
    pub(super) queue: SharedReceiveQueue,
    pd: Held<Pd>,
    max_sge: u32,
    users: Users,
    pub(super) events: Unacknowledged,
}

// SAFETY: `repr(C)`, and the first field is an `ibv_srq`.
unsafe impl Object for Srq {
    type C = ibv_srq;
}

impl Used for Srq {
    fn users(&self) -> &Users {
        &self.users
    }
}

impl Srq {
    pub(super) fn new(pd: Arc<Pd>, init: &mut ibv_srq_init_attr) -> Outcome<Arc<Srq>> {
        let limits = &pd.context.device.device.limits;
        if init.attr.max_wr == 0 || init.attr.max_wr > limits.requests || init.attr.max_sge > limits.sge {
            return Err(because(
                Errno::EINVAL,
                "a queue of no requests, or of more requests or elements than the device has",
            ));
        }
        init.attr.max_sge = init.attr.max_sge.max(1);
        let config = SrqConfig { max_recv: init.attr.max_wr as usize, ..SrqConfig::default() };
        let queue = pd.domain.create_srq(config);
        let mut c = ibv_srq::zeroed();
        (c.context, c.pd, c.srq_context) = (pd.context.handle(), pd.handle(), init.srq_context);
        c.handle = queue.num().0 as u32;
        let (users, events) = Default::default();
        let max_sge = init.attr.max_sge;
        Ok(Arc::new(Srq { c: Shared::new(c), queue, pd: Held::new(pd), max_sge, users, events }))
    }

    /// Changes the size, the limit, or both: if either value is wrong, none.
    fn modify(&self, wanted: &ibv_srq_attr, mask: u32) -> Outcome<()> {
        let has = |bit| mask & bit != 0;
        let max_wr = if has(srq_mask::MAX_WR) { wanted.max_wr } else { self.queue.capacity() as u32 };
        let limit = if has(srq_mask::LIMIT) { wanted.srq_limit } else { self.queue.limit() as u32 };
        let most = self.pd.context.device.device.limits.requests;
        let is_known = mask & !(srq_mask::MAX_WR | srq_mask::LIMIT) == 0;
        if !is_known || max_wr == 0 || max_wr > most || limit > max_wr {
            return Err(because(Errno::EINVAL, "a size that the device does not have, or a limit above it"));
        }
        if has(srq_mask::MAX_WR) {
            self.queue.resize(max_wr as usize).map_err(of_device)?;
        }
        if has(srq_mask::LIMIT) {
            self.queue.arm_limit(limit as usize);
        }
        Ok(())
    }

    /// Posts a receive. On a strict device each has its place until its completion is polled.
    fn post(&self, wr: RecvWr) -> Outcome<()> {
        let device = &self.pd.context.device.device;
        if device.strict && self.queue.outstanding() >= self.queue.capacity() {
            return Err(because(Errno::ENOMEM, "the queue is full until the program polls (max_wr)"));
        }
        post_shared_recv(&self.queue, wr).map_err(of_post)
    }

    fn attributes(&self) -> ibv_srq_attr {
        let (max_wr, srq_limit) = (self.queue.capacity() as u32, self.queue.limit() as u32);
        ibv_srq_attr { max_wr, max_sge: self.max_sge, srq_limit }
    }
}

/// # Safety
/// `init` is NULL or a structure that the program lets be written.
pub(super) unsafe fn create(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> Outcome<Arc<Srq>> {
    let (pd, mut init) = (find::<Pd>(pd)?, given(init)?);
    // SAFETY: promised by the caller.
    Srq::new(pd, unsafe { init.as_mut() })
}

pub(super) unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: the function's contract.
    pointer("ibv_create_srq", unsafe { create(pd, init) }.map(|srq| publish(&srq)))
}

pub(super) fn destroy(handle: *mut ibv_srq) -> Outcome<()> {
    let srq = find_unused::<Srq>(handle)?;
    srq.pd.context.forget(handle);
    // Threads that acknowledge events find the queue until then.
    srq.events.wait();
    retire_unused::<Srq>(handle).map(drop)
}

pub(super) extern "C" fn ibv_destroy_srq(handle: *mut ibv_srq) -> c_int {
    number("ibv_destroy_srq", destroy(handle))
}

pub(super) unsafe extern "C" fn ibv_modify_srq(
    handle: *mut ibv_srq,
    attr: *const ibv_srq_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: NULL or the program's structure.
    let attr = unsafe { attr.as_ref() }.ok_or_else(|| because(Errno::EINVAL, "an argument is NULL"));
    number("ibv_modify_srq", find::<Srq>(handle).and_then(|srq| srq.modify(attr?, mask as u32)))
}

pub(super) unsafe extern "C" fn ibv_query_srq(handle: *mut ibv_srq, to: *mut ibv_srq_attr) -> c_int {
    number(
        "ibv_query_srq",
        find::<Srq>(handle).and_then(|srq| {
            let to = given(to)?;
            // SAFETY: the program has room for the structure.
            unsafe { to.write(srq.attributes()) };
            Ok(())
        }),
    )
}

pub(super) unsafe extern "C" fn post_srq_recv(
    handle: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut failed = first;
    // SAFETY: the function's contract.
    let posted = unsafe {
        pass("ibv_post_srq_recv")
            .and_then(|()| follow::<Srq>(handle))
            .and_then(|srq| post_receives(first, srq.max_sge, &mut failed, |wr| srq.post(wr)))
    };
    // SAFETY: the program has room for a pointer there.
    unsafe { answer("ibv_post_srq_recv", posted, failed, bad) }
}
