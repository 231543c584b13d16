//! Functions behind names that are not done, or never will be on this device.

use std::ffi::{c_int, c_void};
use std::ptr;

use nix::errno::Errno;

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

fn lacking(verb: &str) -> Errno {
    let error = match verb {
        "ibv_create_ah"
        | "ibv_create_ah_from_wc"
        | "ibv_attach_mcast"
        | "rdma_join_multicast"
        | "rdma_join_multicast_ex" => Cause::Datagrams.refuse(Errno::EOPNOTSUPP),
        _ => because(Errno::EOPNOTSUPP, "the device does not have this"),
    };
    told(verb, error)
}
