//! Functions behind names, and in slots of the context, that the device lacks.

use std::ffi::{c_int, c_void};
use std::ptr;

use nix::errno::Errno;

use super::abi::{Empty, ibv_context, ibv_srq, ibv_srq_init_attr_ex, srq_init};
use super::border::slots;
use crate::refusal::{Cause, because, told};

/// For functions that return a pointer.
pub(crate) fn null(verb: &str) -> *mut c_void {
    lacking(verb).set();
    ptr::null_mut()
}

/// For functions that return an error number.
pub(crate) fn number(verb: &str) -> c_int {
    lacking(verb) as c_int
}

/// For functions that return -1 and set errno.
pub(crate) fn minus(verb: &str) -> isize {
    lacking(verb).set();
    -1
}

/// For functions that return nothing, or that nobody calls for what they do.
pub(crate) extern "C" fn nothing() -> isize {
    0
}

/// Makes a function that refuses a verb in one of these ways, as a slot of a table.
macro_rules! refusing {
    (null $verb:ident) => {
        refusing!($verb null: *mut c_void)
    };
    (number $verb:ident) => {
        refusing!($verb number: c_int)
    };
    ($verb:ident $way:ident: $result:ty) => {{
        extern "C" fn refuse() -> $result {
            $way(stringify!($verb))
        }
        refuse as *const c_void
    }};
}

/// An inline function of `verbs.h` that finds nothing in its slot refuses without a reason. So do
/// those that take what no other has made.
const NONE: *const c_void = ptr::null();

/// Returns the slots of a context between `query_port` and `create_cq_ex`.
pub(super) fn from_advise_mr() -> [Empty; 24] {
    slots([
        refusing!(number ibv_advise_mr),
        refusing!(null ibv_alloc_null_mr),
        NONE, // read_counters
        NONE, // attach_counters_point_flow
        refusing!(null ibv_create_counters),
        NONE, // destroy_counters
        NONE, // reg_dm_mr
        refusing!(null ibv_alloc_dm),
        NONE, // free_dm
        NONE, // modify_flow_action_esp
        NONE, // destroy_flow_action
        refusing!(null ibv_create_flow_action_esp),
        refusing!(number ibv_modify_qp_rate_limit),
        refusing!(null ibv_alloc_parent_domain),
        NONE, // dealloc_td
        refusing!(null ibv_alloc_td),
        refusing!(number ibv_modify_cq),
        NONE, // post_srq_ops
        NONE, // destroy_rwq_ind_table
        refusing!(null ibv_create_rwq_ind_table),
        NONE, // destroy_wq
        NONE, // modify_wq
        refusing!(null ibv_create_wq),
        refusing!(number ibv_query_rt_values_ex),
    ])
}

/// Returns the slots between `query_device_ex` and `create_qp_ex`.
pub(super) fn from_destroy_flow() -> [Empty; 5] {
    slots([NONE, NONE, refusing!(null ibv_create_flow), NONE, refusing!(null ibv_open_qp)])
}

/// Returns the slots behind `create_srq_ex`.
pub(super) fn from_open_xrcd() -> [Empty; 2] {
    slots([refusing!(null ibv_open_xrcd), NONE])
}

pub(super) extern "C" fn get_srq_num(_srq: *mut ibv_srq, _num: *mut u32) -> c_int {
    number("ibv_get_srq_num")
}

/// Refuses shared queues that are more than `ibv_create_srq` makes.
pub(super) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    attr: *const ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: NULL or the program's structure.
    let is_xrc = unsafe { attr.as_ref() }
        .is_some_and(|attr| attr.comp_mask & srq_init::TYPE != 0 && attr.srq_type == srq_init::XRC);
    let error = if is_xrc { Cause::Xrc.refuse(Errno::EOPNOTSUPP) } else { missing() };
    told("ibv_create_srq_ex", error).set();
    ptr::null_mut()
}

fn missing() -> Errno {
    because(Errno::EOPNOTSUPP, "the device does not have this")
}

fn lacking(verb: &str) -> Errno {
    let error = match verb {
        "ibv_create_ah"
        | "ibv_create_ah_from_wc"
        | "ibv_attach_mcast"
        | "rdma_join_multicast"
        | "rdma_join_multicast_ex" => Cause::Datagrams.refuse(Errno::EOPNOTSUPP),
        "ibv_open_xrcd" | "ibv_open_qp" | "ibv_get_srq_num" => Cause::Xrc.refuse(Errno::EOPNOTSUPP),
        _ => missing(),
    };
    told(verb, error)
}
