//! Structures and constants that C programs share with `libibverbs` and `librdmacm`, with C's
//! names.
//!
//! Sizes and offsets are asserted, as they stand in rdma-core's headers from release 44 on: no
//! field has moved since, and where a structure has grown, programs say how much of it they know.
//! A field behind a mutex lies elsewhere on processors whose mutexes have another size, so those
//! are asserted for x86-64.
#![allow(non_camel_case_types)] // C's names
#![allow(missing_docs)] // the manual pages of libibverbs and librdmacm have them
#![allow(unsafe_code)] // octets of 0 as a value of a structure

mod attributes;
mod constants;
mod context;
mod manager;
mod objects;
mod requests;

pub use attributes::*;
pub use constants::*;
pub use context::*;
pub use manager::*;
pub use objects::*;
pub use requests::*;

/// The symbol by which `librddp_verbs.so` is known: no other library of these names has it.
pub const MARKER: &std::ffi::CStr = c"rddp_verbs_library";

/// Asserts the size of a structure and the offsets of fields of it.
macro_rules! layout {
    ($name:ident: $size:literal $(, $($field:ident).+ $offset:literal)* $(,)?) => {
        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(std::mem::offset_of!($name, $($field).+) == $offset);)*
        };
    };
}
use layout;

/// A structure of numbers and pointers alone, for which octets of 0 are a value.
///
/// # Safety
/// Octets of 0 are a value of the type.
pub unsafe trait Plain: Sized {
    /// Returns the structure with octets of 0.
    fn zeroed() -> Self {
        // SAFETY: who implements the trait says so.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! plain {
    ($($name:ty),* $(,)?) => { $(
        // SAFETY: numbers, raw pointers, arrays of them, functions in `Option`s, and C's locks,
        // which are numbers to Rust.
        unsafe impl Plain for $name {}
    )* };
}
plain!(
    ibv_device,
    ibv_pd,
    ibv_mr,
    ibv_comp_channel,
    ibv_cq_ex,
    ibv_srq,
    ibv_send_wr,
    ibv_qp_ex,
    ibv_device_attr,
    ibv_device_attr_ex,
    ibv_qp_attr,
    ibv_qp_init_attr,
    rdma_event_channel,
    rdma_cm_id,
    rdma_cm_event,
    rdma_addrinfo,
    ibv_async_event,
    libc::sockaddr_storage,
);
