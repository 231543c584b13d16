//! Names of what the calls of rddp/raw.h tell, and the version of the library.

use std::ffi::{CStr, c_char, c_int};

use rddp_switch::kinds::raw::names;

/// `ddp_version` of rddp/ddp.h: returns the version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_version() -> *const c_char {
    VERSION.as_ptr()
}

/// `ddp_kind_name` of rddp/raw.h: returns the name of a kind of events.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_kind_name(kind: u32) -> *const c_char {
    names::kind(kind).as_ptr()
}

/// `ddp_strerror` of rddp/raw.h: returns what a status means.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_strerror(kind: u32, status: c_int) -> *const c_char {
    let own = names::status(kind, status);
    // SAFETY: any number may be passed.
    own.map_or_else(|| unsafe { libc::strerror(status) }.cast_const(), CStr::as_ptr)
}

/// `ddp_terminate_name` of rddp/ddp.h: returns the words of a Terminate's code.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_terminate_name(terminate: u32) -> *const c_char {
    names::terminate(terminate).as_ptr()
}

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"",
};
