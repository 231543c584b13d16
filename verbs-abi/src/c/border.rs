//! Results as C functions return them.

use std::ffi::{c_int, c_void};
use std::ptr;

use nix::errno::Errno;

use super::abi::Empty;
use crate::errors::Outcome;
use crate::refusal::{because, told};

/// Returns 0, or the error number.
pub(super) fn number(verb: &str, outcome: Outcome<()>) -> c_int {
    outcome.map_or_else(|error| told(verb, error) as c_int, |()| 0)
}

/// Returns 0, or -1 with errno set.
pub(super) fn minus(verb: &str, outcome: Outcome<()>) -> c_int {
    silent(outcome.map_err(|error| told(verb, error)))
}

/// Returns 0, or -1 with errno set, for calls of which no event tells: what fails on an rsocket is
/// mostly its connection.
pub(super) fn silent(outcome: Outcome<()>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            error.set();
            -1
        }
    }
}

/// Returns the pointer, or NULL with errno set.
pub(super) fn pointer<T>(verb: &str, outcome: Outcome<*mut T>) -> *mut T {
    outcome.unwrap_or_else(|error| {
        told(verb, error).set();
        ptr::null_mut()
    })
}

/// Returns `EINVAL` for a NULL, else the pointer.
pub(super) fn given<T>(pointer: *mut T) -> Outcome<ptr::NonNull<T>> {
    ptr::NonNull::new(pointer).ok_or_else(|| because(Errno::EINVAL, "an argument is NULL"))
}

/// Returns functions as slots of a table that C calls, each by the type that its header says.
pub(super) fn slots<const N: usize>(functions: [*const c_void; N]) -> [Empty; N] {
    // SAFETY: the pointers are NULL or functions, which are called by no other types than theirs.
    functions.map(|function| unsafe { std::mem::transmute::<*const c_void, Empty>(function) })
}
