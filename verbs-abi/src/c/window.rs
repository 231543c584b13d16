//! Memory windows.

use std::ffi::c_int;
use std::sync::{Arc, Weak};

use nix::errno::Errno;
use parking_lot::Mutex;
use rddp_rnic::{Access, MemoryWindow, Operation, SendWr, Sge, Stag};

use super::abi::{
    access, ibv_mr, ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_pd, ibv_qp, mw_type, qp_state, send,
};
use super::border::{number, pointer};
use super::gate::pass;
use super::handle::{Held, Object, Shared, await_sole, find, publish, retire};
use super::memory::{Mr, Pd};
use super::queue_pair::Qp;
use crate::errors::{Outcome, of_device, of_post};
use crate::refusal::because;
use crate::words::rights;

/// A memory window.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Mw {
    c: Shared<ibv_mw>,
    window: MemoryWindow,
    kind: u32,
    pd: Held<Pd>,
    posted: Mutex<Posted>,
}

/// The last bind that was posted: the STag it gives to the window, and where it was posted.
#[derive(Debug, Default)]
struct Posted {
    stag: u32,
    qp: Weak<Qp>,
}

// SAFETY: `repr(C)`, and the first field is an `ibv_mw`.
unsafe impl Object for Mw {
    type C = ibv_mw;
}

impl Mw {
    fn new(pd: Arc<Pd>, kind: u32) -> Outcome<Arc<Mw>> {
        let window = match kind {
            mw_type::TYPE_1 => pd.domain.allocate_rebindable_window(),
            mw_type::TYPE_2 => pd.domain.allocate_window(),
            _ => return Err(because(Errno::EINVAL, "windows are of type 1 or 2")),
        };
        let window = window.map_err(of_device)?;
        let rkey = window.stag().0;
        let c = ibv_mw { context: pd.context.handle(), pd: pd.handle(), rkey, handle: rkey, kind };
        let posted = Mutex::default();
        Ok(Arc::new(Mw { c: Shared::new(c), window, kind, pd: Held::new(pd), posted }))
    }

    /// Returns the STag that the window has once all binds that were posted are done. Those of a
    /// queue pair that has ended never are, as far as the window does not show it.
    fn stag(&self) -> u32 {
        let posted = self.posted.lock();
        match posted.qp.upgrade() {
            Some(qp) if qp.state() != qp_state::ERR => posted.stag,
            _ => self.window.stag().0,
        }
    }

    /// Returns the operation that binds the window, whose STag is `stag` then, under the STag
    /// `rkey`.
    fn bind(&self, stag: u32, rkey: u32, info: &ibv_mw_bind_info) -> Outcome<Operation> {
        let is_zero_based = info.mw_access_flags & access::ZERO_BASED != 0;
        if (stag ^ rkey) & !0xff != 0 || (is_zero_based && self.kind == mw_type::TYPE_1) {
            return Err(because(Errno::EINVAL, "a key of another window, or a zero-based window of type 1"));
        }
        let region = match info.mr.is_null() {
            true if info.addr == 0 && info.length == 0 => Stag(0),
            true => return Err(because(Errno::EINVAL, "a window is bound to a region, or to nothing")),
            false => {
                let mr = find::<Mr>(info.mr.cast::<ibv_mr>())?;
                if !std::ptr::eq(mr.pd(), self.pd.handle()) {
                    return Err(because(Errno::EPERM, "the region is of another protection domain"));
                }
                mr.stag()
            }
        };
        // A window grants its peer rights alone: that of this end is the region's, and adapters
        // take it here as well.
        let mut access = rights(info.mw_access_flags & !access::LOCAL_WRITE)?;
        // A window of type 1 is not invalidated: a bind of no octets unbinds it.
        access.set(Access::REMOTE_INVALIDATE, self.kind == mw_type::TYPE_2 && !access.is_empty());
        let range = Sge { stag: region, addr: info.addr, len: info.length };
        Ok(Operation::Bind { window: Stag(stag), range, access, key: Some(rkey as u8) })
    }
}

/// Makes the operation of `IBV_WR_BIND_MW`, for a window of type 2. `key` is what earlier requests
/// that are posted together with it make the window's key.
pub(super) fn operation(
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
    key: Option<u32>,
) -> Outcome<Operation> {
    let mw = find::<Mw>(mw)?;
    if mw.kind != mw_type::TYPE_2 {
        return Err(because(Errno::EINVAL, "requests bind windows of type 2 alone"));
    }
    mw.bind(key.unwrap_or_else(|| mw.stag()), rkey, info)
}

/// Notes that a bind was posted, for the next one.
pub(super) fn note(qp: *mut ibv_qp, mw: *mut ibv_mw, rkey: u32) {
    if let (Ok(qp), Ok(mw)) = (find::<Qp>(qp), find::<Mw>(mw)) {
        *mw.posted.lock() = Posted { stag: rkey, qp: Arc::downgrade(&qp) };
    }
}

pub(super) extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: u32) -> *mut ibv_mw {
    pointer(
        "ibv_alloc_mw",
        pass("ibv_alloc_mw")
            .and_then(|()| find::<Pd>(pd))
            .and_then(|pd| Mw::new(pd, kind))
            .map(|mw| publish(&mw)),
    )
}

pub(super) extern "C" fn dealloc_mw(handle: *mut ibv_mw) -> c_int {
    number(
        "ibv_dealloc_mw",
        pass("ibv_dealloc_mw").and_then(|()| retire::<Mw>(handle)).map(|mw| await_sole(&mw)),
    )
}

/// # Safety
/// `from` is NULL or the program's structure.
unsafe fn bind(pair: *mut ibv_qp, handle: *mut ibv_mw, from: *const ibv_mw_bind) -> Outcome<()> {
    pass("ibv_bind_mw")?;
    let (qp, mw) = (find::<Qp>(pair)?, find::<Mw>(handle)?);
    // SAFETY: promised by the caller.
    let from = unsafe { from.as_ref() }.ok_or_else(|| because(Errno::EINVAL, "an argument is NULL"))?;
    if mw.kind != mw_type::TYPE_1 {
        return Err(because(Errno::EINVAL, "ibv_bind_mw binds windows of type 1 alone"));
    }
    qp.takes_requests()?;
    let stag = mw.stag();
    let rkey = stag & !0xff | (stag.wrapping_add(1) & 0xff);
    let operation = mw.bind(stag, rkey, &from.bind_info)?;
    let request = SendWr {
        wr_id: from.wr_id,
        operation,
        signaled: qp.signals_all || from.send_flags & send::SIGNALED != 0,
        solicited: false,
        read_fence: false,
        local_fence: from.send_flags & send::FENCE != 0,
    };
    qp.queues.post_send(&request).map_err(of_post)?;
    note(pair, handle, rkey);
    // SAFETY: a field of our own object, which programs only read.
    unsafe { (*mw.c.get()).rkey = rkey };
    Ok(())
}

/// Binds a window of type 1, whose key of the peer is `rkey` of the structure from now on.
pub(super) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, from: *const ibv_mw_bind) -> c_int {
    // SAFETY: the function's contract.
    number("ibv_bind_mw", unsafe { bind(qp, mw, from) })
}
