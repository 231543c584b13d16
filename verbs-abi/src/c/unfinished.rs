//! Functions behind names that are not done, or never will be on this device.

use std::ffi::{c_int, c_void};
use std::ptr;

use nix::errno::Errno;

/// For functions that return a pointer.
pub(crate) extern "C" fn null() -> *mut c_void {
    Errno::EOPNOTSUPP.set();
    ptr::null_mut()
}

/// For functions that return an error number.
pub(crate) extern "C" fn number() -> c_int {
    Errno::EOPNOTSUPP as c_int
}

/// For functions that return -1 and set errno.
pub(crate) extern "C" fn minus() -> isize {
    Errno::EOPNOTSUPP.set();
    -1
}

/// For functions that return nothing, or that nobody calls for what they do.
pub(crate) extern "C" fn nothing() -> isize {
    0
}
