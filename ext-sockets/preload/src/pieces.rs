//! Pieces of a program's memory, as C programs list them.

use std::ffi::c_void;
use std::io::{IoSlice, IoSliceMut};

use libc::{iovec, size_t};
use rddp_stream::{Errno, lent, sink_pieces, source_pieces};
use smallvec::SmallVec;

/// Most octets that the kernel moves in one call (`MAX_RW_COUNT`).
pub(crate) const MOST: usize = 0x7fff_f000;

/// Address of a piece without octets: that of a slice is never null.
const NOWHERE: *mut c_void = std::ptr::without_provenance_mut(1);

/// Makes one piece; `EFAULT` for a null pointer to some octets, and for more than memory can hold.
pub(crate) fn piece(buf: *mut c_void, len: size_t) -> Result<iovec, Errno> {
    if buf.is_null() && len > 0 || len > isize::MAX as usize {
        return Err(Errno::FAULT);
    }
    Ok(iovec { iov_base: if len == 0 { NOWHERE } else { buf }, iov_len: len.min(MOST) })
}

/// A checked copy of a program's list: no piece is null.
pub(crate) struct Pieces {
    list: SmallVec<[iovec; FEW]>,
}

impl Pieces {
    /// Copies a list of at most `IOV_MAX` pieces.
    ///
    /// # Safety
    ///
    /// `list` is null or points to `count` entries; memory that is not mapped fails with `EFAULT`.
    pub(crate) unsafe fn of(list: *const iovec, count: usize, too_many: Errno) -> Result<Self, Errno> {
        if count > libc::UIO_MAXIOV as usize {
            return Err(too_many);
        }
        // SAFETY: null or the program's list of `count` entries, as is asked of it here too.
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

    /// Returns the pieces as octets to send.
    ///
    /// # Safety
    ///
    /// As for `writev`.
    pub(crate) unsafe fn source(&self) -> &[IoSlice<'_>] {
        // SAFETY: none is null, and the memory stays for the call, as for `writev`.
        unsafe { source_pieces(self.list.as_ptr(), self.list.len()) }
    }

    /// Returns the pieces as octets to fill.
    ///
    /// # Safety
    ///
    /// As for `readv`.
    pub(crate) unsafe fn sink(&mut self) -> &mut [IoSliceMut<'_>] {
        // SAFETY: none is null, the program gives the memory up for the call, as for `readv`, and
        // the entries are not changed.
        unsafe { sink_pieces(self.list.as_mut_ptr(), self.list.len()) }
    }
}

/// Copies a program's list.
///
/// # Safety
///
/// As of [`Pieces::of`].
unsafe fn copied(from: *const iovec, count: usize) -> Result<SmallVec<[iovec; FEW]>, Errno> {
    let mut list = SmallVec::<[iovec; FEW]>::with_capacity(count);
    // SAFETY: the vector has room for `count` entries, all of which are set when `get_all` has
    // succeeded; `lent` fails where no memory is.
    unsafe {
        lent::get_all(from, std::slice::from_raw_parts_mut(list.as_mut_ptr().cast(), count))?;
        list.set_len(count);
    }
    Ok(list)
}

/// Pieces that are copied without the allocator, since a signal handler may call.
const FEW: usize = 32;
