//! Layout of a file of states.
//!
//! A slab's header has each slot's cookie, its use and its first holders side by side, so that a
//! search for a cookie and a `fork` touch few pages.

use std::mem::size_of;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::State;

/// Octets of a slab, by which the file grows. Slabs are mapped at multiples of it.
pub(super) const SLAB: usize = 1 << 20;
/// Octets in front of the slots or blocks of a slab.
pub(super) const HEADER: usize = 16 * 1024;
/// Octets of a slot.
pub(crate) const SLOT: usize = 3 * 1024;
/// Slots in a slab.
pub(super) const SLOTS: usize = (SLAB - HEADER) / SLOT;
/// Octets in a block: the longest FPDU, the one behind it that ends the message, control messages.
pub(crate) const BLOCK: usize = 72 * 1024;
/// Blocks in a slab.
pub(super) const BLOCKS: usize = (SLAB - HEADER) / BLOCK;
/// Slabs in a file.
pub(super) const MAX_SLABS: usize = 4096;
/// Octets of a file, nearly all of them not allocated.
pub(super) const FILE: u64 = (MAX_SLABS * SLAB) as u64;
/// Octets of the largest pages that any processor has: the header of a slab has access rights of
/// its own, whatever the kernel's pages are.
pub(super) const PAGE: usize = 64 * 1024;

/// Number of blocks of a state without a file, one for each purpose; its slab has one slot.
pub(super) const OWN_BLOCKS: usize = 4;
/// Offset of a state's own blocks, where it lies in no file.
pub(super) const OWN_BLOCKS_AT: usize = PAGE;
/// Octets of these parts of such a slab.
pub(super) const OWN: usize = OWN_BLOCKS_AT + OWN_BLOCKS * BLOCK;
/// Offset of the blocks of chains and tables behind them, which are memory when they are taken.
pub(super) const OWN_MORE_AT: usize = OWN.next_multiple_of(PAGE);
/// Number of these blocks: for all Bufs of an end of the Sockets Direct Protocol, and its other
/// rooms.
pub(super) const OWN_MORE: usize = 335;
/// Octets of a slab of a state without a file.
pub(super) const OWN_ALL: usize = OWN_MORE_AT + OWN_MORE * BLOCK;

/// The header of every slab, in every build: the socket of a slot can be seen whatever the layout
/// of states is.
#[repr(C)]
pub(super) struct Header {
    /// [`OF_SLOTS`], [`OF_BLOCKS`], or 0 before the slab is used.
    pub(super) kind: AtomicU64,
    /// Number of slabs that are allocated; used in the file's first slab alone.
    pub(super) slabs: AtomicU32,
    _unused: [u32; 13],
    pub(super) entries: [Entry; SLOTS],
}

/// Data about a slot, or a block, in the header. In the slab of a state without a file the first
/// entry is the slot's, and the others are those of its blocks of chains and tables.
#[repr(C)]
pub(super) struct Entry {
    /// The `SO_COOKIE` of the socket that the slot is for, once it is filled. For a block of a
    /// chain the number of the next one plus 1; 0 for other blocks.
    pub(super) cookie: AtomicU64,
    /// The user: for a slot a [`Use`](super::claim::Use), for a block its
    /// [`Owner`](super::blocks::Owner).
    pub(super) used: AtomicU64,
    /// The first processes that hold the socket, packed so that `fork` finds them fast. For a block
    /// of a chain the first word says which octets are in use; without a file the second one says
    /// whether the block is memory.
    pub(super) holders: [AtomicU64; 4],
}

/// A slab of slots.
pub(super) const OF_SLOTS: u64 = u64::from_le_bytes(*b"rddpslot");
/// A slab of blocks.
pub(super) const OF_BLOCKS: u64 = u64::from_le_bytes(*b"rddpblck");

// The header has one layout in all builds.
const _: () = assert!(size_of::<Entry>() == 48 && std::mem::offset_of!(Header, entries) == 64);
const _: () = assert!(size_of::<Header>() <= HEADER && BLOCKS <= SLOTS);
// The layout of a state is this build's own.
const _: () = assert!(size_of::<State>() <= SLOT && align_of::<State>() <= 16);
const _: () = assert!(SLOTS == 336 && BLOCKS == 14 && HEADER + SLOTS * SLOT == SLAB);
const _: () = assert!(OWN <= SLAB && slot_at(1) <= OWN_BLOCKS_AT && OWN_MORE < SLOTS);
const _: () = assert!(SLAB.is_multiple_of(PAGE));

/// Returns how long a file may become that has `has` octets where `free` more are free: half of
/// what both are together.
pub(crate) fn longest_file(has: u64, free: u64) -> u64 {
    FILE.min(has.saturating_add(free) / 2)
}

/// Returns where slot `index` of a slab begins.
pub(super) const fn slot_at(index: usize) -> usize {
    HEADER + index * SLOT
}

/// Returns the index of the slot that lies at `offset` of its slab.
pub(super) const fn slot_of(offset: usize) -> usize {
    offset.saturating_sub(HEADER) / SLOT
}

/// Returns where block `index` of a slab begins.
pub(super) const fn block_at(index: usize) -> usize {
    HEADER + index * BLOCK
}
