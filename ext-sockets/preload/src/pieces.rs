//! Pieces of a program's memory, as C lists them.

use std::ffi::{c_int, c_void};
use std::io::{IoSlice, IoSliceMut};

use libc::{iovec, size_t};
use rddp_switch::stream::{Errno, lent, sink_pieces, source_pieces};

/// As many octets as the kernel moves in one call (`MAX_RW_COUNT`).
pub(crate) const MOST: usize = 0x7fff_f000;

/// What a piece of no octets points to: a slice is never null.
const NOWHERE: *mut c_void = std::ptr::without_provenance_mut(1);

/// One piece; where nothing can be, EFAULT.
pub(crate) fn piece(buf: *mut c_void, len: size_t) -> Result<iovec, Errno> {
    if buf.is_null() && len > 0 || len > isize::MAX as usize {
        return Err(Errno(libc::EFAULT));
    }
    Ok(iovec { iov_base: if len == 0 { NOWHERE } else { buf }, iov_len: len.min(MOST) })
}

/// A program's list, each piece of which leads somewhere.
pub(crate) struct Pieces {
    list: *const iovec,
    count: usize,
    /// Where the program's own has null in it.
    own: Vec<iovec>,
}

impl Pieces {
    /// At most `IOV_MAX` of them.
    ///
    /// # Safety
    ///
    /// `list` is null or points to `count` entries, which stay there.
    pub(crate) unsafe fn of(list: *const iovec, count: usize, too_many: c_int) -> Result<Self, Errno> {
        if count > libc::UIO_MAXIOV as usize {
            return Err(Errno(too_many));
        }
        if list.is_null() && count > 0 {
            return Err(Errno(libc::EFAULT));
        }
        lent::check(list, count)?;
        // SAFETY: as the caller says.
        let all = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(list, count) } };
        let mut pieces = Pieces { list, count, own: Vec::new() };
        for one in all {
            piece(one.iov_base, one.iov_len)?;
        }
        let sum = all.iter().try_fold(0usize, |sum, one| sum.checked_add(one.iov_len));
        if sum.is_none_or(|sum| sum > isize::MAX as usize) {
            return Err(Errno::INVALID);
        }
        if all.iter().any(|one| one.iov_base.is_null()) {
            pieces.own = all.iter().filter(|one| one.iov_len > 0).copied().collect();
            pieces.count = pieces.own.len();
        }
        Ok(pieces)
    }

    /// To be sent.
    ///
    /// # Safety
    ///
    /// As for `writev`.
    pub(crate) unsafe fn source(&self) -> &[IoSlice<'_>] {
        let list = if self.own.is_empty() { self.list } else { self.own.as_ptr() };
        // SAFETY: as the caller says; none is null.
        unsafe { source_pieces(list, self.count) }
    }

    /// To be filled.
    ///
    /// # Safety
    ///
    /// As for `readv`.
    pub(crate) unsafe fn sink(&mut self) -> &mut [IoSliceMut<'_>] {
        let list = if self.own.is_empty() { self.list.cast_mut() } else { self.own.as_mut_ptr() };
        // SAFETY: as the caller says; none is null, and the entries are not changed.
        unsafe { sink_pieces(list, self.count) }
    }
}
