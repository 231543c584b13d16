//! Queue pairs of ids, and the completion queues that come with them.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use nix::errno::Errno;

use super::super::abi::{
    ibv_comp_channel, ibv_cq, ibv_pd, ibv_qp, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_srq_init_attr,
    port_space, qp_state, rdma_cm_id,
};
use super::super::border::{given, minus};
use super::super::completion::{self, Channel, Cq};
use super::super::context::context;
use super::super::handle::{find, publish};
use super::super::memory::Pd;
use super::super::process::process;
use super::super::queue_pair::{self as pairs, Joins, Qp};
use super::super::shared;
use super::connect::RIGHTS;
use super::id::Id;
use crate::errors::Outcome;
use crate::refusal::{Cause, because};

/// Makes a completion channel, and a queue on it that the program knows by its id.
fn queue(id: &Id, depth: u32) -> Outcome<(*mut ibv_comp_channel, *mut ibv_cq)> {
    let context = id.bind_device()?;
    let channel = Channel::new(context)?;
    let cqe = c_int::try_from(depth.max(1))
        .map_err(|_| because(Errno::EINVAL, "longer than any completion queue of the device"))?;
    let cq = Cq::new(context, cqe, id.c().cast::<c_void>(), Some(channel.clone()))?;
    Ok((publish(&channel), publish(&cq)))
}

/// Returns the protection domain that a program names, or the one for all that name none.
fn domain(id: &Id, named: *mut ibv_pd) -> Outcome<*mut ibv_pd> {
    // SAFETY: a field of our own object.
    let verbs = unsafe { (*id.c()).verbs };
    if named.is_null() {
        return process().default_pd(id.device.device.name, context(verbs)?);
    }
    let pd = find::<Pd>(named)?;
    if std::ptr::eq(pd.context.handle(), verbs) {
        Ok(named)
    } else {
        Err(because(Errno::EINVAL, "the domain is of another open device than the id"))
    }
}

impl Id {
    /// Refuses queue pairs and port spaces by which nothing is connected.
    pub(super) fn connects(&self, kind: u32) -> Outcome<()> {
        pairs::exists(kind, Joins::ByManager, &self.device.device)?;
        match self.space() {
            port_space::TCP => Ok(()),
            port_space::UDP => Err(Cause::Datagrams.refuse(Errno::EOPNOTSUPP)),
            _ => Err(because(Errno::EOPNOTSUPP, "the device connects in RDMA_PS_TCP alone")),
        }
    }

    /// Makes a queue pair for the id, and completion queues where `attr` names none.
    pub(super) fn create_qp(
        self: &Arc<Self>,
        pd: *mut ibv_pd,
        attr: &mut ibv_qp_init_attr,
        operations: Option<u64>,
    ) -> Outcome<()> {
        let c = self.c();
        // SAFETY: fields of our own object, which programs only read.
        let (verbs, has_qp) = unsafe { ((*c).verbs, !(*c).qp.is_null()) };
        if verbs.is_null() || has_qp {
            return Err(because(Errno::EINVAL, "the id has no device yet, or a queue pair already"));
        }
        self.connects(attr.qp_type)?;
        let pd = domain(self, pd)?;
        self.create_cqs(attr)?;
        let made = find::<Pd>(pd)
            .and_then(|pd| Qp::new(pd, attr, operations, Joins::ByManager))
            .inspect_err(|_| self.destroy_cqs())?;
        made.set_state(qp_state::INIT);
        *made.id.lock() = Arc::downgrade(self);
        self.state.lock().qp = Arc::downgrade(&made);
        let timeout = self.state.lock().settings.timeout;
        {
            // The connection manager has brought it to INIT, with these rights.
            let mut attributes = made.attributes.lock();
            attributes.timeout = timeout.unwrap_or(0);
            attributes.qp_access_flags = RIGHTS;
        }
        // SAFETY: as above.
        unsafe {
            (*c).pd = pd;
            (*c).qp = publish(&made);
        }
        Ok(())
    }

    fn create_cqs(&self, attr: &mut ibv_qp_init_attr) -> Outcome<()> {
        let c = self.c();
        // SAFETY: fields of our own object, which programs only read.
        unsafe {
            if attr.recv_cq.is_null() {
                ((*c).recv_cq_channel, (*c).recv_cq) = queue(self, attr.cap.max_recv_wr)?;
                attr.recv_cq = (*c).recv_cq;
            }
            if attr.send_cq.is_null() {
                ((*c).send_cq_channel, (*c).send_cq) =
                    queue(self, attr.cap.max_send_wr).inspect_err(|_| self.destroy_cqs())?;
                attr.send_cq = (*c).send_cq;
            }
            if attr.srq.is_null() {
                attr.srq = (*c).srq;
            }
        }
        Ok(())
    }

    /// Destroys the completion queues that came with the queue pair.
    fn destroy_cqs(&self) {
        let c = self.c();
        // SAFETY: as above.
        unsafe {
            for cq in [&raw mut (*c).send_cq, &raw mut (*c).recv_cq] {
                let cq = cq.replace(std::ptr::null_mut());
                if !cq.is_null() {
                    completion::ibv_destroy_cq(cq);
                }
            }
            for channel in [&raw mut (*c).send_cq_channel, &raw mut (*c).recv_cq_channel] {
                let channel = channel.replace(std::ptr::null_mut());
                if !channel.is_null() {
                    completion::ibv_destroy_comp_channel(channel);
                }
            }
        }
    }

    pub(super) fn destroy_qp(&self) {
        // SAFETY: a field of our own object.
        let qp = unsafe { (&raw mut (*self.c()).qp).replace(std::ptr::null_mut::<ibv_qp>()) };
        if !qp.is_null() {
            let _ = pairs::destroy(qp);
        }
        self.destroy_cqs();
    }
}

/// # Safety
/// `attr` is NULL or a structure that the program lets be written.
unsafe fn create(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
    operations: Option<u64>,
) -> Outcome<()> {
    let (id, mut attr) = (find::<Id>(id)?, given(attr)?);
    // SAFETY: promised by the caller.
    id.create_qp(pd, unsafe { attr.as_mut() }, operations)
}

pub(in crate::c) unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the function's contract.
    minus("rdma_create_qp", unsafe { create(id, pd, attr, None) })
}

pub(in crate::c) unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    // SAFETY: the function's contract; the plain structure is the beginning of the other.
    minus("rdma_create_qp_ex", unsafe {
        pairs::parts(attr).and_then(|(pd, attr, operations)| create(id, pd, attr, operations))
    })
}

pub(in crate::c) extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    if let Ok(id) = find::<Id>(id) {
        id.destroy_qp();
    }
}

pub(in crate::c) unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    minus(
        "rdma_create_srq",
        find::<Id>(id).and_then(|id| {
            let pd = domain(&id, pd)?;
            // SAFETY: the function's contract.
            let srq = unsafe { shared::create(pd, attr)? };
            // SAFETY: fields of our own object, which programs only read.
            unsafe {
                (*id.c()).pd = pd;
                (*id.c()).srq = publish(&srq);
            }
            Ok(())
        }),
    )
}

pub(super) fn destroy_srq(id: &Id) {
    // SAFETY: a field of our own object.
    let srq = unsafe { (&raw mut (*id.c()).srq).replace(std::ptr::null_mut()) };
    if !srq.is_null() {
        let _ = shared::destroy(srq);
    }
}

pub(in crate::c) extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    if let Ok(id) = find::<Id>(id) {
        destroy_srq(&id);
    }
}
