//! A range of a file as a region's octets, without a mapping: they are read when they are needed,
//! and what the file has then is what is sent.
//!
//! The addresses of such a region are reserved and nothing is mapped there, so that bounds, windows
//! and Tagged Offsets are as for memory. Code that knows no files finds memory there that has gone
//! bad, and never other octets.
//!
//! A thread that serves connections reads what the kernel has in memory (`RWF_NOWAIT`). It leaves
//! the rest to others, with a [`FilePart`].
#![forbid(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::Arc;

use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use parking_lot::RwLock;
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::MemError;

/// An open file, or what a test has in place of one.
pub trait ReadAt: Send + Sync {
    /// Reads octets of the file from `at` on. Returns how many; 0 at the end of the file. Unless it
    /// `waits`, it reads what is in memory, and returns `WouldBlock` where nothing is.
    fn read_at(&self, at: u64, out: &mut [u8], waits: bool) -> io::Result<usize>;
}

/// A file of the program's.
struct Opened {
    file: File,
    /// Set if it has no disk below it.
    in_memory: bool,
}

impl ReadAt for Opened {
    fn read_at(&self, at: u64, out: &mut [u8], waits: bool) -> io::Result<usize> {
        if waits || self.in_memory {
            return self.file.read_at(out, at);
        }
        match preadv2(&self.file, &mut [IoSliceMut::new(out)], at, ReadWriteFlags::NOWAIT) {
            // No file of this file system says whether a read has to wait.
            Err(Errno::OPNOTSUPP) => Err(io::ErrorKind::WouldBlock.into()),
            result => Ok(result?),
        }
    }
}

/// Takes a file, and refuses one of which this range cannot be read.
pub(super) fn open(file: File, range: &Range<u64>) -> Result<Box<dyn ReadAt>, MemError> {
    let metadata = file.metadata().map_err(MemError::File)?;
    if !metadata.is_file() {
        return Err(MemError::File(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")));
    }
    // Fails where the file is not open for reading.
    file.read_at(&mut [], 0).map_err(MemError::File)?;
    let &Range { start, end } = range;
    if start > end || end > metadata.len() {
        return Err(MemError::NotInFile { start, end, len: metadata.len() });
    }
    let in_memory = is_in_memory(file.as_fd());
    Ok(Box::new(Opened { file, in_memory }))
}

/// Returns whether a file has no disk below it.
pub(super) fn is_in_memory(file: BorrowedFd<'_>) -> bool {
    fstatfs(file).is_ok_and(|system| system.filesystem_type() == TMPFS_MAGIC)
}

/// The reason why a read ended before it had all octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The next octets are on a disk, or may be.
    Cold,
    /// No such octets can be had: the file has been cut short, its disk fails, or the region is no
    /// more.
    Gone,
}

/// Octets of a region's file from one of them on, without a grant: they can be read while the
/// region's STag is invalidated, but not once it is deregistered.
#[derive(Debug)]
pub(crate) struct FilePart {
    range: Arc<FileRange>,
    at: u64,
}

impl FilePart {
    pub(super) fn new(range: &Arc<FileRange>, addr: NonNull<u8>) -> Self {
        Self { range: range.clone(), at: range.offset_of(addr) }
    }

    /// Reads as much of `out` as can be had: see [`FileRange::read`].
    pub(crate) fn read(&self, out: &mut [u8], waits: bool) -> (usize, Option<Stop>) {
        self.range.read(self.at, out, waits)
    }
}

/// The range of a file that a region and its windows have.
pub(crate) struct FileRange {
    /// `None` once the region is deregistered, which waits for reads.
    file: RwLock<Option<Box<dyn ReadAt>>>,
    /// Offset in the file of the first octet.
    start: u64,
    /// The address that is reserved for it.
    addr: usize,
}

impl fmt::Debug for FileRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileRange").field("start", &self.start).finish_non_exhaustive()
    }
}

impl FileRange {
    pub(super) fn new(file: Box<dyn ReadAt>, start: u64, addr: NonNull<u8>) -> Self {
        Self { file: RwLock::new(Some(file)), start, addr: addr.addr().get() }
    }

    /// Returns whether the file has been closed.
    pub(super) fn is_closed(&self) -> bool {
        self.file.read().is_none()
    }

    /// Closes the file, once nobody reads it.
    pub(super) fn close(&self) {
        *self.file.write() = None;
    }

    /// Returns the offset in the range of the octet for which this address is reserved.
    pub(super) fn offset_of(&self, addr: NonNull<u8>) -> u64 {
        (addr.addr().get() - self.addr) as u64
    }

    /// Reads all of `out` from an offset in the range on, or as much as is in memory unless it
    /// `waits`. Returns how much, and why that is not all.
    pub(super) fn read(&self, at: u64, out: &mut [u8], waits: bool) -> (usize, Option<Stop>) {
        let file = self.file.read();
        let Some(file) = &*file else { return (0, Some(Stop::Gone)) };
        let mut done = 0;
        while done < out.len() {
            match file.read_at(self.start + at + done as u64, &mut out[done..], waits) {
                Ok(0) => return (done, Some(Stop::Gone)),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return (done, Some(Stop::Cold)),
                Err(error) => {
                    tracing::warn!(%error, "a registered file cannot be read");
                    return (done, Some(Stop::Gone));
                }
            }
        }
        (done, None)
    }
}

#[cfg(test)]
#[cfg(not(miri))] // which has no preadv2
mod tests {
    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    /// Without `RWF_NOWAIT`, only a file that is nowhere but in memory is read at once.
    #[test]
    fn a_file_system_that_cannot_tell_counts_as_a_slow_one() {
        let shared = File::from(memfd_create(c"test", MFdFlags::MFD_CLOEXEC).unwrap());
        shared.set_len(10).unwrap();
        let read = open(shared, &(0..10)).unwrap().read_at(3, &mut [1; 10], false);
        assert_eq!(read.unwrap(), 7);
        let slow = open(File::open("/proc/self/status").unwrap(), &(0..0)).unwrap();
        let read = slow.read_at(0, &mut [1; 10], false);
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(slow.read_at(0, &mut [1; 10], true).unwrap(), 10);
    }
}
