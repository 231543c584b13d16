//! Extended completion queues: a program takes one completion at a time and reads its parts.

use std::ffi::{c_int, c_void};

use nix::errno::Errno;

use super::abi::{Empty, ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_wc, wc_ex};
use super::border::{given, number, pointer, slots};
use super::completion::Cq;
use super::context::context;
use super::gate::pass;
use super::handle::{Object, find_if, follow, publish};
use crate::errors::Outcome;
use crate::refusal::because;

/// # Safety
/// `attr` is NULL or a structure.
unsafe fn create(handle: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex) -> Outcome<*mut ibv_cq_ex> {
    pass("ibv_create_cq_ex")?;
    let context = context(handle)?;
    // SAFETY: promised by the caller.
    let attr = unsafe { given(attr)?.as_ref() };
    let has_flags = attr.comp_mask & wc_ex::MASK_FLAGS != 0;
    let flags = if has_flags { attr.flags } else { 0 };
    if attr.comp_mask & !wc_ex::MASK_FLAGS != 0
        || flags & !wc_ex::SINGLE_THREADED != 0
        || attr.wc_flags & !u64::from(wc_ex::STANDARD) != 0
    {
        return Err(because(
            Errno::EOPNOTSUPP,
            "time stamps, flow tags or flags that the device does not have",
        ));
    }
    if attr.comp_vector != 0 {
        return Err(because(Errno::EINVAL, "the device has completion vector 0 alone"));
    }
    let cqe = c_int::try_from(attr.cqe)
        .map_err(|_| because(Errno::EINVAL, "longer than any completion queue of the device"))?;
    let cq = Cq::new(context, cqe, attr.cq_context, find_if(attr.channel)?)?;
    // SAFETY: our own object, which nobody else has yet.
    unsafe { (*cq.handle().cast::<ibv_cq_ex>()).functions = functions() };
    Ok(publish(&cq).cast())
}

pub(super) unsafe extern "C" fn create_cq_ex(
    handle: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: the function's contract.
    pointer("ibv_create_cq_ex", unsafe { create(handle, attr) })
}

/// Takes the oldest completion, as [`Cq::take`] does.
///
/// # Safety
/// The handle is a queue's.
unsafe fn advance(handle: *mut ibv_cq_ex) -> Outcome<()> {
    // SAFETY: promised by the caller.
    let cq = unsafe { follow::<Cq>(handle.cast::<ibv_cq>())? };
    let entry = cq.take()?;
    // SAFETY: fields of our own object, which the program reads in this thread.
    unsafe { ((*handle).status, (*handle).wr_id) = (entry.status, entry.wr_id) };
    *cq.current.lock() = entry;
    Ok(())
}

unsafe extern "C" fn start_poll(handle: *mut ibv_cq_ex, attr: *const u32) -> c_int {
    // SAFETY: NULL, or the program's structure, which has a mask of additions alone.
    if unsafe { attr.as_ref() }.is_some_and(|mask| *mask != 0) {
        return Errno::EINVAL as c_int;
    }
    // SAFETY: the function's contract.
    number("start_poll", unsafe { advance(handle) })
}

unsafe extern "C" fn next_poll(handle: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the function's contract.
    number("next_poll", unsafe { advance(handle) })
}

extern "C" fn end_poll(_: *mut ibv_cq_ex) {}

/// Makes functions that return a part of the completion that was taken last.
macro_rules! parts {
    ($($name:ident: $type:ty = $field:ident),* $(,)?) => { $(
        unsafe extern "C" fn $name(handle: *mut ibv_cq_ex) -> $type {
            // SAFETY: the function's contract.
            unsafe { follow::<Cq>(handle.cast::<ibv_cq>()) }
                .map_or(ibv_wc::default(), |cq| *cq.current.lock())
                .$field
                .into()
        }
    )* };
}
parts! {
    read_opcode: u32 = opcode, read_vendor_err: u32 = vendor_err, read_byte_len: u32 = byte_len,
    read_imm_data: u32 = imm_data, read_qp_num: u32 = qp_num, read_src_qp: u32 = src_qp,
    read_wc_flags: u32 = wc_flags, read_slid: u32 = slid, read_sl: u8 = sl,
    read_dlid_path_bits: u8 = dlid_path_bits,
}

/// Returns the functions in the order of `struct ibv_cq_ex`. Parts that no queue has are empty.
fn functions() -> [Empty; 18] {
    let none = std::ptr::null();
    slots([
        start_poll as *const c_void,
        next_poll as *const c_void,
        end_poll as *const c_void,
        read_opcode as *const c_void,
        read_vendor_err as *const c_void,
        read_byte_len as *const c_void,
        read_imm_data as *const c_void,
        read_qp_num as *const c_void,
        read_src_qp as *const c_void,
        read_wc_flags as *const c_void,
        read_slid as *const c_void,
        read_sl as *const c_void,
        read_dlid_path_bits as *const c_void,
        none, // read_completion_ts
        none, // read_cvlan
        none, // read_flow_tag
        none, // read_tm_info
        none, // read_completion_wallclock_ns
    ])
}
