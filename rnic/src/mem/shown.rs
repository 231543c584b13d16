//! Words of this process that other processes may read: parts of a file in memory, mapped here.
//!
//! The process counts in them by atomics alone, and believes nothing that it finds there: others of
//! the same user can open the file and write to it.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rddp_stat::layout::{SLOT, WORD};

/// A part of a file, mapped until the last [`Block`] of it is gone.
pub(crate) struct Shown {
    map: NonNull<libc::c_void>,
    len: usize,
    first: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: a mapping belongs to the process and not to a thread, and its words are atomics.
unsafe impl Send for Shown {}
// SAFETY: as above.
unsafe impl Sync for Shown {}

impl Shown {
    /// Maps `words` words of a file from the word `from` on. The file has them, and is sealed
    /// against becoming shorter.
    pub(crate) fn map(file: BorrowedFd<'_>, from: usize, words: usize) -> io::Result<Arc<Self>> {
        // SAFETY: asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let start = from * WORD / page * page;
        let before = from * WORD - start;
        let len = before + words * WORD;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                rights,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                start as libc::off_t,
            )
        };
        let Some(map) = NonNull::new(map).filter(|map| map.as_ptr() != libc::MAP_FAILED) else {
            return Err(io::Error::last_os_error());
        };
        // SAFETY: within the mapping, which is longer by `words` words; `before` is whole words.
        let first = unsafe { map.byte_add(before) }.cast();
        Ok(Arc::new(Shown { map, len, first, words }))
    }

    /// Returns the words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: that many words are mapped, aligned, for as long as `self`; any octets are a
        // number, and nobody accesses them otherwise than by atomics or in other processes.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.words) }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped, and the last holder of an address has let go.
        unsafe { libc::munmap(self.map.as_ptr(), self.len) };
    }
}

/// A slot's words, found by one load: in a file, or where no other process looks.
pub(crate) struct Block {
    at: NonNull<[AtomicU64; SLOT]>,
    _of: Owner,
}

/// Keeps the words of a block alive.
enum Owner {
    Shown { _map: Arc<Shown> },
    Alone { _words: Arc<[AtomicU64; SLOT]> },
}

// SAFETY: the words are atomics, and their owner goes with the block.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// Returns a block of zeros of this process alone.
    pub(crate) fn alone() -> Self {
        let words = Arc::new([const { AtomicU64::new(0) }; SLOT]);
        Block { at: NonNull::from(&*words), _of: Owner::Alone { _words: words } }
    }

    /// Returns the slot with this number in a part of a file; `None` behind its end.
    pub(crate) fn of(map: &Arc<Shown>, number: usize) -> Option<Self> {
        let words = map.words().get(number * SLOT..)?.first_chunk()?;
        Some(Block { at: NonNull::from(words), _of: Owner::Shown { _map: map.clone() } })
    }
}

impl Deref for Block {
    type Target = [AtomicU64; SLOT];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU64; SLOT] {
        // SAFETY: the owner, which is dropped with the block, keeps the words where they are.
        unsafe { self.at.as_ref() }
    }
}
