//! Pieces of a program's memory, as C lists them.

use std::ffi::c_void;
use std::io::{IoSlice, IoSliceMut};

use libc::{iovec, size_t};
use rddp_stream::{Errno, lent, sink_pieces, source_pieces};
use smallvec::SmallVec;

/// As many octets as the kernel moves in one call (`MAX_RW_COUNT`).
pub(crate) const MOST: usize = 0x7fff_f000;

/// What a piece of no octets points to: a slice is never null.
const NOWHERE: *mut c_void = std::ptr::without_provenance_mut(1);

/// One piece; where nothing can be, EFAULT.
pub(crate) fn piece(buf: *mut c_void, len: size_t) -> Result<iovec, Errno> {
    if buf.is_null() && len > 0 || len > isize::MAX as usize {
        return Err(Errno::FAULT);
    }
    Ok(iovec { iov_base: if len == 0 { NOWHERE } else { buf }, iov_len: len.min(MOST) })
}

/// A copy of a program's list, each piece of which leads somewhere.
pub(crate) struct Pieces {
    list: SmallVec<[iovec; FEW]>,
}

impl Pieces {
    /// At most `IOV_MAX` of them.
    ///
    /// # Safety
    ///
    /// `list` is null or points to `count` entries, as far as they are there.
    pub(crate) unsafe fn of(list: *const iovec, count: usize, too_many: Errno) -> Result<Self, Errno> {
        if count > libc::UIO_MAXIOV as usize {
            return Err(too_many);
        }
        // SAFETY: as the caller says.
        let mut list = unsafe { copied(list, count) }?;
        for one in &list {
            piece(one.iov_base, one.iov_len)?;
        }
        let sum = list.iter().try_fold(0usize, |sum, one| sum.checked_add(one.iov_len));
        if sum.is_none_or(|sum| sum > isize::MAX as usize) {
            return Err(Errno::INVALID);
        }
        for one in list.iter_mut().filter(|one| one.iov_len == 0) {
            one.iov_base = NOWHERE;
        }
        Ok(Pieces { list })
    }

    /// To be sent.
    ///
    /// # Safety
    ///
    /// As for `writev`.
    pub(crate) unsafe fn source(&self) -> &[IoSlice<'_>] {
        // SAFETY: as the caller says; none is null.
        unsafe { source_pieces(self.list.as_ptr(), self.list.len()) }
    }

    /// To be filled.
    ///
    /// # Safety
    ///
    /// As for `readv`.
    pub(crate) unsafe fn sink(&mut self) -> &mut [IoSliceMut<'_>] {
        // SAFETY: as the caller says; none is null, and the entries are not changed.
        unsafe { sink_pieces(self.list.as_mut_ptr(), self.list.len()) }
    }
}

/// # Safety
///
/// As of [`Pieces::of`].
unsafe fn copied(from: *const iovec, count: usize) -> Result<SmallVec<[iovec; FEW]>, Errno> {
    let mut list = SmallVec::<[iovec; FEW]>::with_capacity(count);
    // SAFETY: as the caller says; there is room for so many, which are there when they were copied.
    unsafe {
        lent::get_all(from, std::slice::from_raw_parts_mut(list.as_mut_ptr().cast(), count))?;
        list.set_len(count);
    }
    Ok(list)
}

/// Pieces that are copied without the allocator: a signal handler may call.
const FEW: usize = 32;
