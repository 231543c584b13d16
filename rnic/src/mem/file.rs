//! A range of a file as a region's octets, without a mapping: they are read when they are needed,
//! and what the file has then is what is sent.
//!
//! The addresses of such a region are reserved and nothing is mapped there, so that bounds, windows
//! and Tagged Offsets are as for memory. Code that knows no files finds [`Faulted`] there.
#![forbid(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use parking_lot::RwLock;
use rddp_fault_guard::Faulted;

use super::MemError;

/// An open file, or what a test has in place of one.
pub trait ReadAt: Send + Sync {
    /// Reads octets of the file from `at` on. Returns how many; 0 at the end of the file.
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(self, out, at)
    }
}

/// Refuses a file of which this range cannot be read.
pub(super) fn check(file: &File, range: &Range<u64>) -> Result<(), MemError> {
    let metadata = file.metadata().map_err(MemError::File)?;
    if !metadata.is_file() {
        return Err(MemError::File(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")));
    }
    // Fails where the file is not open for reading.
    FileExt::read_at(file, &mut [], 0).map_err(MemError::File)?;
    let &Range { start, end } = range;
    if start > end || end > metadata.len() {
        return Err(MemError::NotInFile { start, end, len: metadata.len() });
    }
    Ok(())
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

    /// Reads all of `out` from the octet on for which this address of the range is reserved.
    ///
    /// # Errors
    /// The file is closed, has been cut short, or cannot be read.
    pub(super) fn read(&self, addr: NonNull<u8>, out: &mut [u8]) -> Result<(), Faulted> {
        let file = self.file.read();
        let file = file.as_ref().ok_or(Faulted)?;
        let start = self.start + (addr.addr().get() - self.addr) as u64;
        let mut done = 0;
        while done < out.len() {
            match file.read_at(start + done as u64, &mut out[done..]) {
                Ok(0) => return Err(Faulted),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(%error, "a registered file cannot be read");
                    return Err(Faulted);
                }
            }
        }
        Ok(())
    }
}
