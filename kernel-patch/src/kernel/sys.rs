//! Mappings of maps, and calls that aya does not have. All unsafe code of the crate is here.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::PatchError;
use crate::layout::{BLOCK_LEN, BLOCK_PADDING};

/// A range of addresses that this process maps, and unmaps when dropped.
#[derive(Debug)]
struct Mapping {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process and not to a thread. Octets are reached through atomics,
// or by who takes the address.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves addresses without memory.
    fn reserve(len: usize) -> Result<Self, PatchError> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let ptr = unsafe { libc::mmap(null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        Self::of(ptr, len)
    }

    /// Maps the values of a map.
    fn shared(map: BorrowedFd<'_>, len: usize) -> Result<Self, PatchError> {
        // SAFETY: as above.
        let ptr = unsafe { libc::mmap(null_mut(), len, READ_WRITE, libc::MAP_SHARED, map.as_raw_fd(), 0) };
        Self::of(ptr, len)
    }

    fn of(ptr: *mut c_void, len: usize) -> Result<Self, PatchError> {
        match NonNull::new(ptr) {
            Some(mapped) if ptr != libc::MAP_FAILED => Ok(Self { ptr: mapped.cast(), len }),
            _ => Err(PatchError::os("mmap")),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped, and whoever has the address has this.
        unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.len) };
    }
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// The values of an array map, which the program in the kernel changes at any time: only atomics
/// touch them.
#[derive(Debug)]
pub(super) struct Shared(Mapping);

impl Shared {
    /// Maps `len` octets of an array's values.
    pub(super) fn map(map: BorrowedFd<'_>, len: usize) -> Result<Self, PatchError> {
        Mapping::shared(map, len).map(Self)
    }

    /// The number of eight octets at `offset`. Panics if it is not inside, or not aligned.
    pub(super) fn u64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: eight aligned octets of a live mapping, which everybody reaches by atomics alone.
        unsafe { AtomicU64::from_ptr(self.at(offset, size_of::<u64>()).cast().as_ptr()) }
    }

    /// The number of four octets at `offset`. Panics as [`u64`](Self::u64) does.
    pub(super) fn u32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: four aligned octets of a live mapping, which everybody reaches by atomics alone.
        unsafe { AtomicU32::from_ptr(self.at(offset, size_of::<u32>()).cast().as_ptr()) }
    }

    fn at(&self, offset: usize, size: usize) -> NonNull<u8> {
        assert!(offset.is_multiple_of(size) && offset.saturating_add(size) <= self.0.len, "octet {offset}");
        // SAFETY: the offset is inside the mapping.
        unsafe { self.0.ptr.add(offset) }
    }
}

/// Maps mapped side by side into one range of addresses.
#[derive(Debug)]
pub(super) struct Row(Mapping);

impl Row {
    /// Maps blocks of [`BLOCK_LEN`] octets, each a value of a map: the map, and which of its
    /// values. Children of `fork` do not get them.
    pub(super) fn map<'a>(
        blocks: impl ExactSizeIterator<Item = (BorrowedFd<'a>, usize)>,
    ) -> Result<Self, PatchError> {
        let len = blocks.len() * BLOCK_LEN;
        let row = Self(Mapping::reserve(len)?);
        for (at, (map, number)) in (0..len).step_by(BLOCK_LEN).zip(blocks) {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let from = (number * (BLOCK_LEN + BLOCK_PADDING)) as libc::off_t;
            // SAFETY: replaces a part of the range reserved above, which nobody else knows yet.
            let mapped = unsafe {
                let to = row.0.ptr.add(at).as_ptr().cast();
                libc::mmap(to, BLOCK_LEN, READ_WRITE, flags, map.as_raw_fd(), from)
            };
            if mapped == libc::MAP_FAILED {
                return Err(PatchError::os("mmap"));
            }
        }
        // SAFETY: concerns children only.
        if unsafe { libc::madvise(row.0.ptr.as_ptr().cast(), len, libc::MADV_DONTFORK) } != 0 {
            return Err(PatchError::os("madvise"));
        }
        Ok(row)
    }

    /// Returns the address of the octet at `offset`. Panics if that is behind the last one.
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.0.len, "octet {offset}");
        // SAFETY: the offset is inside the mapping, or at its end.
        unsafe { self.0.ptr.add(offset) }
    }

    /// Returns the eight octets at `offset`, which others may be changing. Panics if they are not
    /// inside, or not aligned.
    pub(super) fn word(&self, offset: usize) -> [u8; 8] {
        assert!(offset.is_multiple_of(8) && offset < self.0.len, "octet {offset}");
        // SAFETY: eight aligned octets of a live mapping, whose length is a multiple of that.
        let word = unsafe { AtomicU64::from_ptr(self.0.ptr.add(offset).cast().as_ptr()) };
        word.load(Ordering::Relaxed).to_ne_bytes()
    }

    /// Clears octets, of which nobody else knows. Panics if they are not inside.
    pub(super) fn clear(&self, octets: Range<usize>) {
        assert!(octets.start <= octets.end && octets.end <= self.0.len, "octets {octets:?}");
        // SAFETY: they are inside the mapping, and nobody else changes them, as said.
        unsafe { self.0.ptr.add(octets.start).write_bytes(0, octets.end - octets.start) };
    }
}

/// Makes an array of values that can be mapped, which may stand in an array of maps whatever their
/// number is. (A value of that size has no type that aya's own arrays could be told.)
pub(super) fn create_array(value_size: u32, values: u32) -> Result<OwnedFd, PatchError> {
    const BPF_MAP_TYPE_ARRAY: u32 = 2;
    const BPF_F_MMAPABLE: u32 = 1 << 10;
    const BPF_F_INNER_MAP: u32 = 1 << 12;
    let flags = BPF_F_MMAPABLE | BPF_F_INNER_MAP;
    let attr: [u32; 5] = [BPF_MAP_TYPE_ARRAY, size_of::<u32>() as u32, value_size, values, flags];
    let fd = bpf(BPF_MAP_CREATE, &attr)?;
    // SAFETY: the kernel has just given this descriptor to us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Puts an array into an array of maps.
pub(super) fn insert(maps: BorrowedFd<'_>, key: u32, array: BorrowedFd<'_>) -> Result<(), PatchError> {
    let value = array.as_raw_fd() as u32;
    bpf(BPF_MAP_UPDATE_ELEM, &Element::of(maps, &key, Some(&value))).map(drop)
}

/// Takes an array out of an array of maps. Returns when no program can be using it any more.
pub(super) fn remove(maps: BorrowedFd<'_>, key: u32) -> Result<(), PatchError> {
    bpf(BPF_MAP_DELETE_ELEM, &Element::of(maps, &key, None)).map(drop)
}

/// The part of `union bpf_attr` that operations on elements use.
#[repr(C)]
struct Element<'a> {
    map_fd: u32,
    unused: u32,
    key: &'a u32,
    value: Option<&'a u32>,
    flags: u64,
}

impl<'a> Element<'a> {
    fn of(map: BorrowedFd<'_>, key: &'a u32, value: Option<&'a u32>) -> Self {
        Self { map_fd: map.as_raw_fd() as u32, unused: 0, key, value, flags: 0 }
    }
}

const BPF_MAP_CREATE: i32 = 0;
const BPF_MAP_UPDATE_ELEM: i32 = 2;
const BPF_MAP_DELETE_ELEM: i32 = 3;

/// Calls the kernel with these attributes, which must be those of the command.
fn bpf<T>(command: i32, attr: &T) -> Result<i32, PatchError> {
    // SAFETY: the kernel reads the attributes, and key and value that they refer to, all of which
    // live. It writes to none.
    match unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attr), size_of::<T>()) } {
        -1 => Err(PatchError::os("bpf")),
        result => Ok(result as i32),
    }
}

// SAFETY: a structure of octets without holes, and any octets make one.
unsafe impl aya::Pod for crate::layout::Tuple {}
