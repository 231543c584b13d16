//! A C program's `iovec`s as slices.

use std::io::{IoSlice, IoSliceMut};

/// Returns the pieces that a program wants sent.
///
/// # Safety
/// As for `writev`: `iov` points at `count` entries, each of which describes readable memory, and
/// nothing of it changes before the slices are gone.
#[must_use]
pub unsafe fn source_pieces<'a>(iov: *const libc::iovec, count: usize) -> &'a [IoSlice<'a>] {
    if count == 0 {
        return &[];
    }
    // SAFETY: `iov` has `count` entries of readable memory; `IoSlice` has the layout of an `iovec`
    // on Unix, as its documentation says.
    unsafe { std::slice::from_raw_parts(iov.cast(), count) }
}

/// Returns the pieces that a program wants filled.
///
/// # Safety
/// As for `readv`: `iov` points at `count` entries of memory that may be written, no two of which
/// overlap, and nothing else uses them before the slices are gone. The entries themselves are not
/// changed.
#[must_use]
pub unsafe fn sink_pieces<'a>(iov: *mut libc::iovec, count: usize) -> &'a mut [IoSliceMut<'a>] {
    if count == 0 {
        return &mut [];
    }
    // SAFETY: `iov` has `count` entries of writable memory that do not overlap; `IoSliceMut` has
    // the layout of an `iovec` on Unix, as its documentation says.
    unsafe { std::slice::from_raw_parts_mut(iov.cast(), count) }
}
