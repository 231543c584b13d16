//! Blocks of which a stream may have any number: those of chains, and that of its tables.
//!
//! A block has a number: in the file, or, for a state without a file, in the state's own slab. Its
//! entry in the header says whose it is. It is memory before it is anybody's, so that a store to it
//! cannot fail: in a file because slabs are allocated whole, in a state's own slab because it is
//! populated when it is taken.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::is_confined;
use super::blocks::{self, Owner};
use super::home::{Slab, Slot};
use super::layout::{BLOCK, Entry, OF_BLOCKS, OWN_BLOCKS, OWN_MORE, OWN_MORE_AT, block_at};
use super::pool::Pool;
use crate::SameErrno;

/// Purposes for which a stream may have several blocks, all under the lock of
/// [`Rx`](crate::state::Rx).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Many {
    /// Octets of [`Chains`](super::Chains).
    Chain = OWN_BLOCKS as isize,
    /// Numbers of [`Table`](super::Table).
    Table,
}

/// A block with its entry.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    pub(super) entry: &'a Entry,
    /// The first of [`BLOCK`] octets, which are memory and stay mapped as long as the state.
    pub(super) at: NonNull<u8>,
}

/// Takes a block, whose octets may be anything. `None`: there is none to be had.
pub(super) fn take(slot: Slot, purpose: Many) -> Option<u32> {
    #[cfg(test)]
    super::super::tests::spend_a_block()?;
    let owner = Owner::of(slot, purpose as u64);
    let Some(pool) = slot.slab.home().pool else { return take_own(slot, owner) };
    let number = blocks::taken(pool, owner)?;
    // The next block of a chain is looked for behind this one.
    pool.free_block.store(number + 1, Ordering::Relaxed);
    Some(number)
}

/// Returns a block, if it belongs to this state and purpose.
pub(super) fn find<'a>(slot: Slot, purpose: Many, number: u32) -> Option<Block<'a>> {
    let (entry, at) = match slot.slab.home().pool {
        None => own(slot, number)?,
        Some(pool) => of_file(pool, number)?,
    };
    Owner::of(slot, purpose as u64).has(entry).then_some(Block { entry, at })
}

/// Gives a block back, if it belongs to this state and purpose.
pub(super) fn give_back(slot: Slot, purpose: Many, number: u32) {
    let owner = Owner::of(slot, purpose as u64);
    let Some(block) = find(slot, purpose, number) else { return };
    match slot.slab.home().pool {
        None => {
            if number >= STAYING && !is_confined() {
                remove(block);
            }
            owner.gives_back(block.entry);
        }
        Some(pool) => {
            if owner.gives_back(block.entry) {
                pool.free_block.fetch_min(number, Ordering::Relaxed);
            }
        }
    }
}

/// Returns how many blocks a state has, of all purposes. Those that a state without a file has
/// from its beginning are not counted.
pub(super) fn count(slot: Slot) -> usize {
    let owner = Owner::of(slot, Many::Chain as u64);
    let is_its = |entry: &&Entry| owner.has_slot_of(entry);
    match slot.slab.home().pool {
        None => own_entries(slot).iter().filter(is_its).count(),
        Some(pool) => blocks::entries(pool).map(|(_, entry)| entry).filter(is_its).count(),
    }
}

/// Sees to it that `count` blocks are free that a process can take which is confined. Returns
/// whether they are; other streams may take those of a file.
pub(super) fn prepare(slot: Slot, count: usize) -> bool {
    let _errno = SameErrno::here();
    let Some(pool) = slot.slab.home().pool else {
        let free = (0..).zip(own_entries(slot)).filter(|(_, entry)| is_free(entry));
        return free.take(count).filter(|(number, _)| populate(slot, *number)).count() == count;
    };
    let free = || blocks::entries(pool).filter(|(_, entry)| is_free(entry)).count();
    while free() < count {
        if !pool.grow(OF_BLOCKS) {
            return false;
        }
    }
    true
}

/// Returns whether a block of a state without a file is memory.
#[cfg(test)]
pub(super) fn is_there(slot: Slot, number: u32) -> bool {
    own(slot, number).is_some_and(|(entry, _)| is_memory(entry).load(Ordering::Acquire) == 1)
}

/// Frees all blocks of a state, as if it were gone.
#[cfg(test)]
pub(super) fn forget_all(slot: Slot) {
    let owner = Owner::of(slot, Many::Chain as u64);
    let forget = |entry: &Entry| {
        if owner.has_slot_of(entry) {
            entry.used.store(0, Ordering::Relaxed);
        }
    };
    match slot.slab.home().pool {
        None => own_entries(slot).iter().for_each(forget),
        Some(pool) => blocks::entries(pool).for_each(|(_, entry)| forget(entry)),
    }
}

pub(super) fn is_free(entry: &Entry) -> bool {
    entry.used.load(Ordering::Relaxed) == 0
}

fn of_file<'a>(pool: &'static Pool, number: u32) -> Option<(&'a Entry, NonNull<u8>)> {
    let (slab, index): (Slab, usize) = pool.block(number)?;
    Some((&slab.header().entries[index], slab.place(block_at(index))))
}

fn own_entries<'a>(slot: Slot) -> &'a [Entry] {
    &slot.slab.header().entries[1..=OWN_MORE]
}

fn own<'a>(slot: Slot, number: u32) -> Option<(&'a Entry, NonNull<u8>)> {
    let entry = own_entries(slot).get(number as usize)?;
    Some((entry, slot.slab.place(OWN_MORE_AT + number as usize * BLOCK)))
}

/// Takes a block of the state's own: one that is memory, if there is one.
fn take_own(slot: Slot, owner: Owner) -> Option<u32> {
    let numbered = || (0..).zip(own_entries(slot));
    let ready =
        numbered().find(|(_, entry)| is_memory(entry).load(Ordering::Acquire) == 1 && owner.takes(entry));
    if let Some((number, _)) = ready {
        return Some(number);
    }
    let (number, entry) = numbered().find(|(_, entry)| !is_confined() && owner.takes(entry))?;
    if populate(slot, number) {
        return Some(number);
    }
    owner.gives_back(entry);
    None
}

/// Returns the word that says whether a block of a state without a file is memory.
fn is_memory(entry: &Entry) -> &AtomicU64 {
    &entry.holders[1]
}

/// Makes a block of a state without a file memory. `false`: there is none.
fn populate(slot: Slot, number: u32) -> bool {
    let Some((entry, at)) = own(slot, number) else { return false };
    if is_memory(entry).load(Ordering::Acquire) == 1 {
        return true;
    }
    let _errno = SameErrno::here();
    let page = page();
    let before = at.as_ptr().addr() % page;
    let len = (before + BLOCK).next_multiple_of(page);
    // SAFETY: pages of the state's own mapping, whose octets do not change. It ends at the end of a
    // page.
    let is_there = unsafe {
        let from = at.as_ptr().wrapping_sub(before);
        libc::madvise(from.cast(), len, libc::MADV_POPULATE_WRITE) == 0
            // Before Linux 5.14 memory cannot be reserved without a file.
            || crate::Errno::last() == crate::Errno::INVALID
    };
    if is_there {
        is_memory(entry).store(1, Ordering::Release);
    }
    is_there
}

/// Gives the memory of a block of a state without a file back to the kernel.
fn remove(block: Block<'_>) {
    // Where blocks share pages their memory stays.
    if !BLOCK.is_multiple_of(page()) {
        return;
    }
    let _errno = SameErrno::here();
    is_memory(block.entry).store(0, Ordering::Release);
    // SAFETY: whole pages of a block of the caller's, who has no reference to its octets.
    unsafe { libc::madvise(block.at.as_ptr().cast(), BLOCK, libc::MADV_REMOVE) };
}

fn page() -> usize {
    // SAFETY: takes an integer.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page).unwrap_or(super::layout::PAGE)
}

/// Number of blocks of a state without a file that stay memory when they are given back: enough for
/// an advert that is spilled, which takes 0.8 ms longer when the kernel must find its pages anew.
pub(super) const STAYING: u32 = 16;
