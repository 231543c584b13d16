//! Memory of our own: zeroed anonymous mappings, and mappings of files.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use libc::c_int;

use super::{MemError, RegionOptions};

/// A mapping, unmapped when dropped.
pub(super) struct Mapping {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process and not to a thread; who may touch its
// octets is up to the holder.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference gives the address only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` octets, whole pages. No page is touched unless the options say so.
    pub(super) fn new(len: usize, options: &RegionOptions) -> Result<Self, MemError> {
        let populate = if options.populate { libc::MAP_POPULATE } else { 0 };
        Self::anonymous(len, libc::PROT_READ | libc::PROT_WRITE, populate)
    }

    /// Reserves addresses for `len` octets. Nothing can be read or written there.
    pub(super) fn reserved(len: usize) -> Result<Self, MemError> {
        Self::anonymous(len, libc::PROT_NONE, libc::MAP_NORESERVE)
    }

    /// Maps the first `len` octets of a file for reading.
    pub(super) fn of_file(file: &File, len: usize) -> Result<Self, MemError> {
        Self::map(len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd())
    }

    /// Maps zeros, private and at first shared with nobody.
    fn anonymous(len: usize, rights: c_int, flags: c_int) -> Result<Self, MemError> {
        Self::map(len, rights, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags, -1)
    }

    fn map(len: usize, rights: c_int, flags: c_int, fd: c_int) -> Result<Self, MemError> {
        if len == 0 {
            return Ok(Self { ptr: NonNull::dangling(), len });
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let ptr = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, fd, 0) };
        match NonNull::new(ptr) {
            Some(mapped) if ptr != libc::MAP_FAILED => Ok(Self { ptr: mapped.cast(), len }),
            _ => Err(os("mmap", len)),
        }
    }

    pub(super) fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Returns the address of an octet, or of the end.
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.len, "{offset} is inside the mapping");
        // SAFETY: `offset` is at most the length of one mapped range.
        unsafe { self.ptr.add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len != 0 {
            // SAFETY: exactly what `new` mapped, and the last holder of the address has let go.
            unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.len) };
        }
    }
}

/// Faults in the pages of a mapped range, to be written as well when `write`.
pub(super) fn populate(ptr: NonNull<u8>, len: usize, write: bool) -> Result<(), MemError> {
    let (start, len) = whole_pages(ptr, len);
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: populating changes no octet, and fails where nothing is mapped.
    match unsafe { libc::madvise(start.cast(), len, advice) } {
        0 => Ok(()),
        _ => Err(os("madvise", len)),
    }
}

/// Keeps the pages of a range in memory.
pub(super) fn lock(ptr: NonNull<u8>, len: usize) -> Result<(), MemError> {
    // SAFETY: locking changes no octet, and fails where nothing is mapped.
    match unsafe { libc::mlock(ptr.as_ptr().cast(), len) } {
        0 => Ok(()),
        _ => Err(os("mlock", len)),
    }
}

/// Undoes [`lock`]; locks do not nest.
pub(super) fn unlock(ptr: NonNull<u8>, len: usize) {
    // SAFETY: unlocking changes no octet; it fails harmlessly where nothing is mapped.
    unsafe { libc::munlock(ptr.as_ptr().cast(), len) };
}

/// The range widened to where its first page starts. The kernel itself rounds the end up.
fn whole_pages(ptr: NonNull<u8>, len: usize) -> (*mut u8, usize) {
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let before = ptr.as_ptr().addr() % page;
    (ptr.as_ptr().wrapping_sub(before), len + before)
}

fn os(call: &'static str, len: usize) -> MemError {
    MemError::Os { call, len, error: io::Error::last_os_error() }
}
