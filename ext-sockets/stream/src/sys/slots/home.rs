//! Mapped slabs, and the way from an address in one to the data that belong to it.
//!
//! Every slab is mapped at a multiple of its size, and in front of it is a [`PAGE`] of this
//! process's own, its [`Home`]. So the address of a state gives that of its slab's header and of
//! the file, without reading what other processes may have written.

use std::ptr::{self, NonNull};

use super::layout::{Entry, Header, OWN_ALL, PAGE, SLAB, SLOTS, slot_of};
use super::pool::Pool;

/// Data of this process about a slab.
pub(super) struct Home {
    /// The file that the slab is part of; `None`: memory of one state without a file.
    pub(super) pool: Option<&'static Pool>,
    /// Number of the slab in the file.
    pub(super) number: usize,
}

/// A mapped slab. A slab of a file is never unmapped.
#[derive(Clone, Copy)]
pub(super) struct Slab {
    at: NonNull<u8>,
}

impl Slab {
    /// Maps `len` octets by `body`, which gets the address to map them at.
    pub(super) fn map(len: usize, home: Home, body: impl FnOnce(*mut u8) -> bool) -> Option<Self> {
        let len = len.next_multiple_of(PAGE);
        let all = len + SLAB + PAGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice, which reserves addresses and
        // no memory.
        let from = unsafe { libc::mmap(ptr::null_mut(), all, libc::PROT_NONE, flags, -1, 0) };
        if from == libc::MAP_FAILED {
            return None;
        }
        let from = from.cast::<u8>();
        let front = (from.addr() + PAGE).next_multiple_of(SLAB) - PAGE - from.addr();
        let at = from.wrapping_add(front + PAGE);
        // SAFETY: parts of the mapping that was just made, which nothing else uses; the first page
        // becomes memory, which is large enough for a home, and `body` maps no more than it was
        // told.
        unsafe {
            let page = from.add(front);
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let is_there = libc::mprotect(page.cast(), PAGE, rights) == 0 && body(at);
            if !is_there {
                libc::munmap(from.cast(), all);
                return None;
            }
            page.cast::<Home>().write(home);
            if front > 0 {
                libc::munmap(from.cast(), front);
            }
            let behind = front + PAGE + len;
            libc::munmap(from.add(behind).cast(), all - behind);
        }
        at.expose_provenance();
        NonNull::new(at).map(|at| Self { at })
    }

    /// Unmaps a slab that [`map`](Self::map) has mapped.
    ///
    /// # Safety
    /// Nothing refers to the slab any more.
    pub(super) unsafe fn unmap(self, len: usize) {
        // SAFETY: nothing refers to the slab any more, and this range was mapped for it.
        unsafe { libc::munmap(self.at.as_ptr().sub(PAGE).cast(), PAGE + len.next_multiple_of(PAGE)) };
    }

    /// Returns the slab at an address.
    ///
    /// # Safety
    /// A slab that was mapped here.
    pub(super) const unsafe fn at(at: NonNull<u8>) -> Self {
        Self { at }
    }

    pub(super) const fn address(self) -> NonNull<u8> {
        self.at
    }

    /// Returns the header. A slab of a file is mapped for ever; another one must outlive the
    /// result.
    pub(super) fn header<'a>(self) -> &'a Header {
        // SAFETY: every slab that is handed out is mapped, and its header is allocated; all in it
        // is atomic.
        unsafe { self.at.cast::<Header>().as_ref() }
    }

    /// Returns the address `offset` octets behind the slab's beginning.
    pub(super) fn place(self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset < SLAB.max(OWN_ALL));
        // SAFETY: the offset lies inside the slab.
        unsafe { self.at.add(offset) }
    }

    pub(super) fn home<'a>(self) -> &'a Home {
        // SAFETY: `map` has put the home there, and it is never written again.
        unsafe { self.at.sub(PAGE).cast::<Home>().as_ref() }
    }
}

/// A slot: a slab, and an index there.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) slab: Slab,
    index: usize,
}

impl Slot {
    /// Returns the slot of the state at an address.
    ///
    /// # Safety
    /// At this address begins a state that a [`SharedState`](super::super::SharedState) has.
    pub(super) unsafe fn of(address: usize) -> Self {
        let base = ptr::with_exposed_provenance_mut(address & !(SLAB - 1));
        // SAFETY: all states lie in slabs that `Slab::map` made, which have exposed their
        // addresses.
        let slab = unsafe { Slab::at(NonNull::new_unchecked(base)) };
        Self { slab, index: slot_of(address & (SLAB - 1)).min(SLOTS - 1) }
    }

    pub(super) fn entry<'a>(self) -> &'a Entry {
        &self.slab.header().entries[self.index]
    }

    /// Returns the slot's number in its file.
    pub(super) fn number(self) -> usize {
        self.slab.home().number * SLOTS + self.index
    }
}
