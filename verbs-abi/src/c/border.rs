//! Results as C functions return them.

use std::ffi::c_int;
use std::ptr;

use nix::errno::Errno;

use crate::errors::Outcome;

/// Returns 0, or the error number.
pub(super) fn number(outcome: Outcome<()>) -> c_int {
    outcome.map_or_else(|error| error as c_int, |()| 0)
}

/// Returns 0, or -1 with errno set.
pub(super) fn minus(outcome: Outcome<()>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            error.set();
            -1
        }
    }
}

/// Returns the pointer, or NULL with errno set.
pub(super) fn pointer<T>(outcome: Outcome<*mut T>) -> *mut T {
    outcome.unwrap_or_else(|error| {
        error.set();
        ptr::null_mut()
    })
}

/// Returns `EINVAL` for a NULL, else the pointer.
pub(super) fn given<T>(pointer: *mut T) -> Outcome<ptr::NonNull<T>> {
    ptr::NonNull::new(pointer).ok_or(Errno::EINVAL)
}
