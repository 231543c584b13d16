//! Mapped slabs, and how what lies in one finds what belongs to it.
//!
//! Every slab is mapped at a multiple of its size, and in front of it is a [`PAGE`] of this
//! process's own, its [`Home`]. So the address of a state leads to its slab's header, and to the
//! file, without a look at what other processes may have written.

use std::ptr::{self, NonNull};

use super::layout::{Entry, Header, PAGE, SLAB, SLOTS, slot_of};
use super::pool::Pool;

/// Notes of this process on a slab.
pub(super) struct Home {
    /// The file that it is of; `None`: the memory of one state without a file.
    pub(super) pool: Option<&'static Pool>,
    /// Which slab of the file.
    pub(super) number: usize,
}

/// A mapped slab. Those of files are never unmapped.
#[derive(Clone, Copy)]
pub(super) struct Slab {
    at: NonNull<u8>,
}

impl Slab {
    /// Maps `len` octets by `body`, which is given the address that they must be at, and says of
    /// what they are.
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
        // SAFETY: parts of the mapping that was just made, which nobody else knows of; the first
        // page becomes memory, which is large enough for a home, and `body` takes no more than it
        // was told.
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

    /// Unmaps what [`map`](Self::map) has mapped.
    ///
    /// # Safety
    /// Nobody refers to anything in it any more.
    pub(super) unsafe fn unmap(self, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { libc::munmap(self.at.as_ptr().sub(PAGE).cast(), PAGE + len.next_multiple_of(PAGE)) };
    }

    /// # Safety
    /// A slab that was mapped here.
    pub(super) const unsafe fn at(at: NonNull<u8>) -> Self {
        Self { at }
    }

    pub(super) const fn address(self) -> NonNull<u8> {
        self.at
    }

    /// The front. Not longer than the slab is mapped, which of a file's is for ever.
    pub(super) fn header<'a>(self) -> &'a Header {
        // SAFETY: every slab that is handed out is mapped, and its front is allocated; all in it is
        // atomic.
        unsafe { self.at.cast::<Header>().as_ref() }
    }

    /// Returns what begins `offset` octets behind its front.
    pub(super) fn place(self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset < SLAB);
        // SAFETY: inside of the slab.
        unsafe { self.at.add(offset) }
    }

    pub(super) fn home<'a>(self) -> &'a Home {
        // SAFETY: `map` has put it there, and it is never written again.
        unsafe { self.at.sub(PAGE).cast::<Home>().as_ref() }
    }
}

/// The place of a state: a slab, and an index there.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) slab: Slab,
    index: usize,
}

impl Place {
    /// # Safety
    /// At this address begins a state that a [`SharedState`](super::super::SharedState) has.
    pub(super) unsafe fn of(address: usize) -> Self {
        let base = ptr::with_exposed_provenance_mut(address & !(SLAB - 1));
        // SAFETY: all states lie in slabs that `Slab::map` made, which have exposed where they are.
        let slab = unsafe { Slab::at(NonNull::new_unchecked(base)) };
        Self { slab, index: slot_of(address & (SLAB - 1)).min(SLOTS - 1) }
    }

    pub(super) fn entry<'a>(self) -> &'a Entry {
        &self.slab.header().entries[self.index]
    }

    /// The slot's number in its file.
    pub(super) fn number(self) -> usize {
        self.slab.home().number * SLOTS + self.index
    }
}
