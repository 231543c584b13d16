//! Work on memory that may go bad meanwhile.

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;

use crate::routine;

/// Memory could not be read or written: it was unmapped, or its file was cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faulted;

impl fmt::Display for Faulted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the memory is no longer there: unmapped, or a mapping of a file that was cut short")
    }
}

impl std::error::Error for Faulted {}

/// A function of `memcpy`'s kind: `(to, from, len)`. Its result is not looked at.
pub type Work = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

/// Copies `from` to `lent`. After a fault part of it may have been copied.
///
/// # Safety
/// `from.len()` octets from `lent` on are memory of the caller's to write, as far as they are
/// mapped, and no Rust reference covers them.
#[inline]
pub unsafe fn copy_in(lent: *mut u8, from: &[u8]) -> Result<(), Faulted> {
    let range = lent.addr()..lent.addr().wrapping_add(from.len());
    // SAFETY: `memcpy` may be left at any octet: it locks and owns nothing. The caller
    // promises that the lent octets may be written while they are mapped; `from` is a
    // live slice, apart from them.
    unsafe { call(range, libc::memcpy, lent.cast(), from.as_ptr().cast(), from.len()) }
}

/// Copies octets from `lent` on into `to`. After a fault part of it may have been copied.
///
/// # Safety
/// `to.len()` octets from `lent` on are memory of the caller's to read, as far as they are mapped,
/// and no Rust reference that allows writing covers them.
#[inline]
pub unsafe fn copy_out(lent: *const u8, to: &mut [u8]) -> Result<(), Faulted> {
    let range = lent.addr()..lent.addr().wrapping_add(to.len());
    // SAFETY: `memcpy` may be left at any octet: it locks and owns nothing. The caller
    // promises that the lent octets may be read while they are mapped; `to` is borrowed
    // exclusively, so apart from them.
    unsafe { call(range, libc::memcpy, to.as_mut_ptr().cast(), lent.cast(), to.len()) }
}

/// Calls `work(to, from, len)`, and ends it at the first fault at an address in `range`.
///
/// # Safety
/// The call is sound but for faults in `range`; and `work` may be left at any access to it: there
/// it holds no lock and owns nothing, and it neither unwinds nor touches the range from below 64
/// KiB of stack of its own.
#[inline]
pub unsafe fn call(
    range: Range<usize>,
    work: Work,
    to: *mut c_void,
    from: *const c_void,
    len: usize,
) -> Result<(), Faulted> {
    // SAFETY: the caller promises that the call is sound but for faults in the range, and that the
    // work may be left at any of them; the routine keeps the registers that a C function must keep.
    match unsafe { routine::call(work, to, from, len, range.start, range.end) } {
        0 => Ok(()),
        _ => Err(Faulted),
    }
}
