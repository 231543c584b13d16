//! Files read into registered memory, and written from it, without a copy in between: `pread` and
//! `pwrite`.
//!
//! The kernel copies, and no reference to the octets is made. Where memory that a program lent has
//! gone bad, the call says so (EFAULT), as `read_at` and `write_at` do by the fault guard.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_void, off64_t};

use super::file::is_in_memory;
use super::region::Region;

impl Region {
    /// Reads octets of a file, from `at` on, into `range`, also while the STag is invalid. Returns
    /// how many there were: fewer than the range has where the file ends.
    pub fn read_file(&self, file: BorrowedFd<'_>, at: u64, range: Range<usize>) -> io::Result<usize> {
        let (to, _alive) = self.reach(&range, true).map_err(io::Error::other)?;
        let fd = file.as_raw_fd();
        // SAFETY: `reach` found `range` in live memory that may be written, and `_alive` keeps it
        // registered; the kernel writes at most `len` octets from `done` on, which are inside.
        whole(range.len(), at, |done, len, at| unsafe {
            libc::pread64(fd, to.add(done).as_ptr().cast::<c_void>(), len, at)
        })
    }

    /// Reads as [`read_file`](Self::read_file) does, but only what the kernel has in memory: where
    /// a disk may have to be waited for, the error is `WouldBlock`.
    pub fn read_file_now(&self, file: BorrowedFd<'_>, at: u64, range: Range<usize>) -> io::Result<usize> {
        let (to, _alive) = self.reach(&range, true).map_err(io::Error::other)?;
        let fd = file.as_raw_fd();
        // SAFETY: as in `read_file`; the vector is one piece of `len` octets from `done` on.
        let read = whole(range.len(), at, |done, len, at| unsafe {
            let piece = libc::iovec { iov_base: to.add(done).as_ptr().cast::<c_void>(), iov_len: len };
            libc::preadv2(fd, &raw const piece, 1, at, libc::RWF_NOWAIT)
        });
        match read {
            Err(error) if error.raw_os_error() != Some(libc::EOPNOTSUPP) => Err(error),
            Err(_) if is_in_memory(file) => self.read_file(file, at, range),
            // No file of this file system says whether a read has to wait.
            Err(_) => Err(io::ErrorKind::WouldBlock.into()),
            Ok(count) => Ok(count),
        }
    }

    /// Writes the octets in `range` to a file, from `at` on, also while the STag is invalid.
    pub fn write_file(&self, file: BorrowedFd<'_>, at: u64, range: Range<usize>) -> io::Result<()> {
        let (from, _alive) = self.reach(&range, false).map_err(io::Error::other)?;
        let fd = file.as_raw_fd();
        // SAFETY: as above, and the kernel only reads.
        let written = whole(range.len(), at, |done, len, at| unsafe {
            libc::pwrite64(fd, from.add(done).as_ptr().cast::<c_void>(), len, at)
        })?;
        if written == range.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

/// Repeats a call, which is given how many octets are done, how many are left and their place in
/// the file, until none are left or it moves none. Returns how many it has moved.
fn whole(
    len: usize,
    at: u64,
    mut call: impl FnMut(usize, usize, off64_t) -> libc::ssize_t,
) -> io::Result<usize> {
    let mut done = 0;
    while done < len {
        let place = at.checked_add(done as u64).and_then(|place| off64_t::try_from(place).ok());
        let place = place.ok_or(io::ErrorKind::InvalidInput)?;
        match usize::try_from(call(done, len - done, place)) {
            Ok(0) => break,
            Ok(moved) => done += moved,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    Ok(done)
}
