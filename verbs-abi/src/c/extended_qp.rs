//! Extended queue pairs: a program makes a batch of requests by one function call each and posts
//! it as a whole (`ibv_wr_post(3)`).
//!
//! Each call notes a request as `ibv_post_send` knows it. What is wrong with one, the call that
//! ends the batch tells, and then nothing of the batch is posted.

use std::ffi::{c_int, c_void};

use nix::errno::Errno;
use parking_lot::Mutex;

use super::abi::{
    Empty, Plain, ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_qp_ex, ibv_send_wr, ibv_sge,
    send, wr,
};
use super::border::{number, slots};
use super::gate::pass;
use super::handle::{Object, find, follow};
use super::post::{NO_OPERATION, TOO_LONG_INLINE, elements, request};
use super::queue_pair::Qp;
use super::window;
use crate::errors::{Outcome, of_post};
use crate::refusal::{Cause, because};

/// The part of an extended queue pair that a plain one has not.
#[derive(Debug)]
pub(super) struct Extended {
    /// The operations that the program may use. The bits of `enum ibv_qp_create_send_ops_flags` are
    /// those of the opcodes.
    operations: u64,
    /// Locked from `wr_start` to `wr_complete` or `wr_abort`.
    batch: Mutex<Batch>,
}

/// The requests since `wr_start`, and the first error in making them.
#[derive(Debug, Default)]
struct Batch {
    drafts: Vec<Draft>,
    failed: Option<Errno>,
}

/// A request in the making, whose list names elements and inline octets of the draft's own.
struct Draft {
    wr: ibv_send_wr,
    list: Vec<ibv_sge>,
    octets: Vec<u8>,
}

// SAFETY: the pointers are into the draft's own vectors, or are handles.
unsafe impl Send for Draft {}

/// The operations that the device always has.
const OPERATIONS: u64 = 1 << wr::SEND
    | 1 << wr::SEND_WITH_INV
    | 1 << wr::RDMA_WRITE
    | 1 << wr::RDMA_READ
    | 1 << wr::LOCAL_INV
    | 1 << wr::BIND_MW;

/// The operations of RFC 7306, which the device has by a setting.
const EXTENSIONS: u64 = 1 << wr::SEND_WITH_IMM
    | 1 << wr::RDMA_WRITE_WITH_IMM
    | 1 << wr::ATOMIC_CMP_AND_SWP
    | 1 << wr::ATOMIC_FETCH_AND_ADD;

impl Extended {
    /// Makes what a queue pair for these operations needs: `EOPNOTSUPP` if the device lacks them
    /// all. Programs ask for more than they use: where the device lacks some, posting those is
    /// refused.
    pub(super) fn new(operations: u64, has_extensions: bool) -> Outcome<Self> {
        let has = if has_extensions { OPERATIONS | EXTENSIONS } else { OPERATIONS };
        if operations == 0 || operations & has != 0 {
            return Ok(Extended { operations, batch: Mutex::default() });
        }
        Err(match operations & EXTENSIONS {
            0 => because(Errno::EOPNOTSUPP, NO_OPERATION),
            _ => Cause::Extensions.refuse(Errno::EOPNOTSUPP),
        })
    }

    /// Begins a batch. The lock stays when the guard has gone.
    fn start(&self) {
        let mut batch = self.batch.lock();
        *batch = Batch::default();
        std::mem::forget(batch);
    }

    /// Changes the batch, if one has begun.
    fn change<T>(&self, change: impl FnOnce(&mut Batch) -> T) -> Option<T> {
        // SAFETY: locked by `start`, and only the thread that did so comes here (`ibv_wr_post(3)`).
        self.batch.is_locked().then(|| change(unsafe { &mut *self.batch.data_ptr() }))
    }

    /// Ends the batch with a call of `last`, still within the lock, so that batches are posted in
    /// the order in which they began.
    fn end(&self, last: impl FnOnce(&Batch) -> Outcome<()>) -> Outcome<()> {
        let none = || because(Errno::EINVAL, "no batch has begun");
        let result = self.change(|batch| last(&std::mem::take(batch))).ok_or_else(none)?;
        // SAFETY: locked by `start`, whose guard was forgotten.
        unsafe { self.batch.force_unlock() };
        result
    }
}

impl Batch {
    fn fail(&mut self, error: Errno) {
        self.failed.get_or_insert(error);
    }

    /// Gives data to the last request.
    fn set(&mut self, give: impl FnOnce(&mut Draft) -> Outcome<()>) {
        let none = || because(Errno::EINVAL, "there is no request to which the data belong");
        let given = self.drafts.last_mut().ok_or_else(none).and_then(give);
        given.unwrap_or_else(|error| self.fail(error));
    }

    /// Posts all requests, or none.
    fn post(&self, qp: &Qp) -> Outcome<()> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        qp.takes_requests()?;
        let mut list = Vec::with_capacity(self.drafts.len());
        for (index, draft) in self.drafts.iter().enumerate() {
            let before = self.drafts[..index].iter().rev();
            let key = before.filter_map(Draft::bind).find_map(|(mw, key)| (mw == draft.wr.mw).then_some(key));
            // SAFETY: see `Draft`.
            list.push(unsafe { request(qp, &draft.wr, key)? });
        }
        qp.post_batch(&list).map_err(of_post)?;
        for (mw, key) in self.drafts.iter().filter_map(Draft::bind) {
            window::note(qp.handle(), mw, key);
        }
        Ok(())
    }
}

impl Draft {
    /// Returns the window that the request binds, with its new key.
    fn bind(&self) -> Option<(*mut ibv_mw, u32)> {
        (self.wr.opcode == wr::BIND_MW).then_some((self.wr.mw, self.wr.mw_rkey))
    }

    fn set_list(&mut self, list: Vec<ibv_sge>) -> Outcome<()> {
        if matches!(self.wr.opcode, wr::LOCAL_INV | wr::BIND_MW) {
            return Err(because(Errno::EINVAL, "the operation has no data"));
        }
        self.list = list;
        self.wr.send_flags &= !send::INLINE;
        (self.wr.sg_list, self.wr.num_sge) = (self.list.as_mut_ptr(), self.list.len() as c_int);
        Ok(())
    }

    /// Copies at most `most` octets of the program's.
    ///
    /// # Safety
    /// The buffers may be read.
    unsafe fn set_inline(&mut self, buffers: &[ibv_data_buf], most: u32) -> Outcome<()> {
        if matches!(self.wr.opcode, wr::RDMA_READ | wr::ATOMIC_CMP_AND_SWP | wr::ATOMIC_FETCH_AND_ADD) {
            return Err(because(Errno::EINVAL, "the operation takes no inline data"));
        }
        let total = buffers.iter().try_fold(0_usize, |total, buffer| total.checked_add(buffer.length));
        let fits = total.filter(|total| *total <= most as usize);
        let length = fits.ok_or_else(|| because(Errno::ENOMEM, TOO_LONG_INLINE))?;
        let mut octets = Vec::with_capacity(length);
        for buffer in buffers.iter().filter(|buffer| buffer.length > 0) {
            // SAFETY: promised by the caller.
            octets.extend_from_slice(unsafe {
                std::slice::from_raw_parts(buffer.addr.cast::<u8>(), buffer.length)
            });
        }
        self.octets = octets;
        let addr = self.octets.as_ptr().expose_provenance() as u64;
        self.set_list(vec![ibv_sge { addr, length: length as u32, lkey: 0 }])?;
        self.wr.send_flags |= send::INLINE;
        Ok(())
    }
}

impl std::fmt::Debug for Draft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Draft").field("wr_id", &self.wr.wr_id).finish_non_exhaustive()
    }
}

/// Follows a handle of an extended queue pair.
///
/// # Safety
/// As [`follow`] says.
unsafe fn extended<'a>(handle: *mut ibv_qp_ex) -> Outcome<(&'a Qp, &'a Extended)> {
    // SAFETY: promised by the caller; the plain structure is the beginning of the other.
    let qp = unsafe { follow::<Qp>(handle.cast::<ibv_qp>())? };
    let plain = || because(Errno::EINVAL, "the queue pair is not an extended one");
    qp.extended.as_ref().map(|extended| (qp, extended)).ok_or_else(plain)
}

/// Notes a request, whose further fields `fill` sets.
///
/// # Safety
/// As [`follow`] says.
unsafe fn draft(handle: *mut ibv_qp_ex, opcode: u32, fill: impl FnOnce(&mut ibv_send_wr)) {
    // SAFETY: promised by the caller.
    let Ok((_, extended)) = (unsafe { extended(handle) }) else { return };
    // SAFETY: fields of our own object, which this thread has set.
    let (wr_id, flags) = unsafe { ((*handle).wr_id, (*handle).wr_flags) };
    let mut wr = ibv_send_wr { wr_id, opcode, send_flags: flags & !send::INLINE, ..ibv_send_wr::zeroed() };
    fill(&mut wr);
    extended.change(|batch| match extended.operations & 1 << opcode {
        0 => batch.fail(because(Errno::EOPNOTSUPP, "an operation that the queue pair was not made for")),
        _ => batch.drafts.push(Draft { wr, list: Vec::new(), octets: Vec::new() }),
    });
}

/// Makes functions that note a request.
macro_rules! builders {
    ($($name:ident: $opcode:ident ($($argument:ident: $type:ty),*) |$wr:ident| $fill:expr;)*) => { $(
        unsafe extern "C" fn $name(handle: *mut ibv_qp_ex, $($argument: $type),*) {
            // SAFETY: the function's contract.
            unsafe { draft(handle, wr::$opcode, |$wr| $fill) };
        }
    )* };
}
builders! {
    wr_send: SEND () |_wr| ();
    wr_send_imm: SEND_WITH_IMM (imm: u32) |wr| wr.imm_data = imm;
    wr_send_inv: SEND_WITH_INV (stag: u32) |wr| wr.imm_data = stag;
    wr_local_inv: LOCAL_INV (stag: u32) |wr| wr.imm_data = stag;
    wr_rdma_read: RDMA_READ (rkey: u32, to: u64) |wr| (wr.rkey, wr.remote_addr) = (rkey, to);
    wr_rdma_write: RDMA_WRITE (rkey: u32, to: u64) |wr| (wr.rkey, wr.remote_addr) = (rkey, to);
    wr_atomic_cmp_swp: ATOMIC_CMP_AND_SWP (rkey: u32, to: u64, compare: u64, swap: u64)
        |wr| wr.set_atomic(rkey, to, compare, swap);
    wr_atomic_fetch_add: ATOMIC_FETCH_AND_ADD (rkey: u32, to: u64, add: u64)
        |wr| wr.set_atomic(rkey, to, add, 0);
    wr_rdma_write_imm: RDMA_WRITE_WITH_IMM (rkey: u32, to: u64, imm: u32)
        |wr| (wr.rkey, wr.remote_addr, wr.imm_data) = (rkey, to, imm);
}

unsafe extern "C" fn wr_bind_mw(
    handle: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: the function's contract: NULL or the program's structure.
    unsafe {
        match info.as_ref() {
            None => fail(handle, because(Errno::EINVAL, "an argument is NULL")),
            Some(info) => draft(handle, wr::BIND_MW, |wr| {
                (wr.mw, wr.mw_rkey, wr.bind_info) = (mw, rkey, *info);
            }),
        }
    }
}

/// Has the batch fail.
///
/// # Safety
/// As [`follow`] says.
unsafe fn fail(handle: *mut ibv_qp_ex, error: Errno) {
    // SAFETY: promised by the caller.
    if let Ok((_, extended)) = unsafe { extended(handle) } {
        extended.change(|batch| batch.fail(error));
    }
}

/// Stands for operations and settings that the device lacks, whatever else they are told.
unsafe extern "C" fn unsupported(handle: *mut ibv_qp_ex) {
    // SAFETY: the function's contract.
    unsafe { fail(handle, because(Errno::EOPNOTSUPP, NO_OPERATION)) };
}

unsafe extern "C" fn wr_set_sge(handle: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let sge = ibv_sge { addr, length, lkey };
    // SAFETY: the function's contract.
    unsafe { wr_set_sge_list(handle, 1, &raw const sge) };
}

unsafe extern "C" fn wr_set_sge_list(handle: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: the function's contract: `list` names as many elements.
    let Ok((qp, extended)) = (unsafe { extended(handle) }) else { return };
    // SAFETY: as above.
    let list = unsafe { elements(list, count, qp.cap.max_send_sge) };
    extended.change(|batch| batch.set(|draft| draft.set_list(list?.to_vec())));
}

unsafe extern "C" fn wr_set_ud_addr(handle: *mut ibv_qp_ex, to: *mut ibv_ah, number: u32, qkey: u32) {
    // SAFETY: the function's contract.
    let Ok((qp, extended)) = (unsafe { extended(handle) }) else { return };
    if qp.datagrams.is_none() {
        // SAFETY: as above.
        return unsafe { fail(handle, because(Errno::EOPNOTSUPP, "the queue pair has a peer of its own")) };
    }
    extended.change(|batch| {
        batch.set(|draft| {
            draft.wr.set_ud(to, number, qkey);
            Ok(())
        });
    });
}

unsafe extern "C" fn wr_set_inline_data(handle: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let buffer = ibv_data_buf { addr, length };
    // SAFETY: the function's contract.
    unsafe { wr_set_inline_data_list(handle, 1, &raw const buffer) };
}

unsafe extern "C" fn wr_set_inline_data_list(
    handle: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: the function's contract: `list` names as many buffers, which may be read. Their sum
    // is limited, and not their number (`ibv_wr_post(3)`).
    unsafe {
        let Ok((qp, extended)) = extended(handle) else { return };
        let list = elements(list, count, u32::MAX);
        extended.change(|batch| batch.set(|draft| draft.set_inline(list?, qp.cap.max_inline_data)));
    }
}

unsafe extern "C" fn wr_start(handle: *mut ibv_qp_ex) {
    // SAFETY: the function's contract.
    if let Ok((_, extended)) = unsafe { extended(handle) } {
        extended.start();
    }
}

unsafe extern "C" fn wr_complete(handle: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the function's contract.
    let ended = unsafe { extended(handle) };
    number(
        "ibv_wr_complete",
        ended.and_then(|(qp, extended)| {
            extended.end(|batch| pass("ibv_wr_complete").and_then(|()| batch.post(qp)))
        }),
    )
}

unsafe extern "C" fn wr_abort(handle: *mut ibv_qp_ex) {
    // SAFETY: the function's contract.
    let _ = unsafe { extended(handle) }.and_then(|(_, extended)| extended.end(|_| Ok(())));
}

/// Returns the extended queue pair, or NULL if it is a plain one.
pub(super) extern "C" fn ibv_qp_to_qp_ex(handle: *mut ibv_qp) -> *mut ibv_qp_ex {
    match find::<Qp>(handle) {
        Ok(qp) if qp.extended.is_some() => handle.cast(),
        _ => std::ptr::null_mut(),
    }
}

/// Returns the functions in the order of `struct ibv_qp_ex`.
pub(super) fn functions() -> [Empty; 22] {
    let none = unsupported as *const c_void;
    slots([
        wr_atomic_cmp_swp as *const c_void,
        wr_atomic_fetch_add as *const c_void,
        wr_bind_mw as *const c_void,
        wr_local_inv as *const c_void,
        wr_rdma_read as *const c_void,
        wr_rdma_write as *const c_void,
        wr_rdma_write_imm as *const c_void,
        wr_send as *const c_void,
        wr_send_imm as *const c_void,
        wr_send_inv as *const c_void,
        none, // wr_send_tso
        wr_set_ud_addr as *const c_void,
        none, // wr_set_xrc_srqn
        wr_set_inline_data as *const c_void,
        wr_set_inline_data_list as *const c_void,
        wr_set_sge as *const c_void,
        wr_set_sge_list as *const c_void,
        wr_start as *const c_void,
        wr_complete as *const c_void,
        wr_abort as *const c_void,
        none, // wr_atomic_write
        none, // wr_flush
    ])
}
