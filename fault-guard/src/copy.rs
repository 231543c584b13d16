//! Guarded access to memory that may go bad at any moment.

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;

use crate::routine;

/// The error of an access to memory that could not be read or written: it was unmapped, or its file
/// was truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faulted;

impl fmt::Display for Faulted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the memory is no longer there: unmapped, or a mapping of a file that was cut short")
    }
}

impl std::error::Error for Faulted {}

/// A function of the same type as `memcpy`: `(to, from, len)`. Its result is ignored.
pub type Work = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

/// Copies octets that other threads or processes may read and write at the same time. What is
/// copied of octets that are written meanwhile is for each of them what it was before or after.
///
/// The compiler sees neither the accesses nor that they are a copy, so that it may conclude
/// nothing from them: it knows no other routine that copies at this speed what others may write.
///
/// # Safety
/// `len` octets from `from` on may be read, and as many from `to` on written. The ranges do not
/// overlap.
#[inline]
pub unsafe fn copy_shared(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller lends both ranges.
    unsafe { call_unseen(routine::copy, to.cast(), from.cast(), len) }
}

/// Calls `work(to, from, len)`. The compiler does not see which function is called.
///
/// # Safety
/// The call is sound, and does not unwind.
#[inline]
pub unsafe fn call_unseen(work: Work, to: *mut c_void, from: *const c_void, len: usize) {
    // SAFETY: the caller has made sure that the call is sound.
    unsafe { routine::call_unseen(work, to, from, len) }
}

/// Copies `from` to `lent`. After a fault, part of it may have been copied.
///
/// # Safety
/// The caller may write `from.len()` octets from `lent` on, as far as they are mapped, and no Rust
/// reference covers them.
#[inline]
pub unsafe fn copy_in(lent: *mut u8, from: &[u8]) -> Result<(), Faulted> {
    let range = lent.addr()..lent.addr().wrapping_add(from.len());
    // SAFETY: the copy may be abandoned at any octet, since it holds no lock and owns nothing. The
    // caller may write the lent octets while they are mapped; `from` is a live slice, and so does
    // not overlap them.
    unsafe { call(range, routine::copy, lent.cast(), from.as_ptr().cast(), from.len()) }
}

/// Copies octets from `lent` on into `to`. After a fault, part of them may have been copied.
///
/// # Safety
/// The caller may read `to.len()` octets from `lent` on, as far as they are mapped, and no Rust
/// reference that allows writing covers them.
#[inline]
pub unsafe fn copy_out(lent: *const u8, to: &mut [u8]) -> Result<(), Faulted> {
    let range = lent.addr()..lent.addr().wrapping_add(to.len());
    // SAFETY: the copy may be abandoned at any octet, since it holds no lock and owns nothing. The
    // caller may read the lent octets while they are mapped; `to` is borrowed exclusively, and so
    // does not overlap them.
    unsafe { call(range, routine::copy, to.as_mut_ptr().cast(), lent.cast(), to.len()) }
}

/// Calls `work(to, from, len)`, and abandons it at the first fault at an address in `range`.
///
/// # Safety
/// The call is sound except for faults in `range`. `work` may be abandoned at any access to the
/// range: it then holds no lock and owns nothing. It does not unwind, and accesses the range from
/// at most 64 KiB of stack of its own.
#[inline]
pub unsafe fn call(
    range: Range<usize>,
    work: Work,
    to: *mut c_void,
    from: *const c_void,
    len: usize,
) -> Result<(), Faulted> {
    // SAFETY: the caller has made sure that the call is sound except for faults in the range, and
    // that the work may be abandoned at any of them. The routine keeps the registers that a C
    // function must keep.
    match unsafe { routine::call(work, to, from, len, range.start, range.end) } {
        0 => Ok(()),
        _ => Err(Faulted),
    }
}
