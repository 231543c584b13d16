//! Blocks: memory beside a state for octets that a stream holds outside the kernel, and for holders
//! that have no place in it.
//!
//! A block belongs to one stream and one purpose, as its entry says; where the state says something
//! else, the entry counts. A stream without a file has a block of its own for each purpose.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::claim::{A_FEW, Use};
use super::home::{Slab, Slot};
use super::layout::{BLOCK, BLOCKS, Entry, OF_BLOCKS, OWN_BLOCKS, OWN_BLOCKS_AT, SLOTS, block_at};
use super::pool::Pool;
use crate::state::{Rx, Tx};
use crate::{SameErrno, State};

/// Purposes for which a stream may have one block. Others are [`Many`](super::many::Many).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Under the lock of [`Tx`].
    Owed,
    /// Under the lock of [`Tx`].
    Early,
    /// Under the lock of [`Rx`].
    Kept,
    /// Holders beyond those that the slot has room for: atomics, under no lock.
    Holders,
}

const _: () = assert!(Purpose::Holders as usize + 1 == OWN_BLOCKS);

/// The block that a stream has for a purpose: the block's number plus 1. All zeros: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Lease(u32);

impl Lease {
    pub(crate) const NONE: Self = Self(0);

    pub(super) fn of(number: u32) -> Self {
        Self(number + 1)
    }

    pub(super) fn number(self) -> Option<u32> {
        self.0.checked_sub(1)
    }

    /// Returns the word that [`of_word`](Self::of_word) takes.
    pub(super) fn word(self) -> u64 {
        u64::from(self.0)
    }

    /// Returns the lease of a word, unless the word is none.
    pub(super) fn of_word(word: u64) -> Option<Self> {
        u32::try_from(word).ok().map(Self)
    }
}

/// The owner of a block: how often the slot was taken, a purpose, the slot's number. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner(u64);

const SET: u64 = 1 << 31;
const PURPOSE_AT: u32 = 24;

impl Owner {
    pub(super) fn of(slot: Slot, purpose: u64) -> Self {
        let generation = u64::from(Use::of(slot.entry()).generation());
        Self(generation << 32 | SET | purpose << PURPOSE_AT | slot.number() as u64)
    }

    /// Returns whether the slot is still in the use in which it reserved the block, or cannot be
    /// seen: a process that is confined cannot map slabs that others have added since.
    fn is_there(self, pool: &'static Pool) -> bool {
        let number = self.0 as usize & ((1 << PURPOSE_AT) - 1);
        let slab = number / SLOTS;
        if slab < pool.count() && pool.slab(slab).is_none() {
            return true;
        }
        pool.slot(number).is_some_and(|(slab, index)| {
            let used = Use::of(&slab.header().entries[index]);
            !used.is_free() && u64::from(used.generation()) == self.0 >> 32
        })
    }

    /// Returns the owner's slot in its present use, without the purpose.
    pub(super) fn slot(self) -> u64 {
        self.0 & !(((1 << (31 - PURPOSE_AT)) - 1) << PURPOSE_AT)
    }

    /// Returns whether an entry is that of a block of this owner, whatever the purpose.
    pub(super) fn has_slot_of(self, entry: &Entry) -> bool {
        Self(entry.used.load(Ordering::Acquire)).slot() == self.slot()
    }

    pub(super) fn has(self, entry: &Entry) -> bool {
        entry.used.load(Ordering::Acquire) == self.0
    }

    pub(super) fn takes(self, entry: &Entry) -> bool {
        entry.used.load(Ordering::Relaxed) == 0
            && entry.used.compare_exchange(0, self.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    pub(super) fn gives_back(self, entry: &Entry) -> bool {
        entry.used.compare_exchange(self.0, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// A direction of a [`State`]: lies in it under its lock, and has blocks.
///
/// # Safety
/// [`AT`](Self::AT) is the offset of the value in every state, and no value exists outside of one.
pub(crate) unsafe trait Leases {
    const AT: usize;

    fn lease(&self, purpose: Purpose) -> Lease;
    fn lease_mut(&mut self, purpose: Purpose) -> &mut Lease;
}

// SAFETY: the offset is the compiler's, and a `Tx` is made in a state alone.
unsafe impl Leases for Tx {
    const AT: usize = State::TX;

    fn lease(&self, purpose: Purpose) -> Lease {
        if purpose == Purpose::Early { self.early.block } else { self.owed.block }
    }

    fn lease_mut(&mut self, purpose: Purpose) -> &mut Lease {
        if purpose == Purpose::Early { &mut self.early.block } else { &mut self.owed.block }
    }
}

// SAFETY: the offset is the compiler's, and an `Rx` is made in a state alone.
unsafe impl Leases for Rx {
    const AT: usize = State::RX;

    fn lease(&self, _: Purpose) -> Lease {
        self.kept.block
    }

    fn lease_mut(&mut self, _: Purpose) -> &mut Lease {
        &mut self.kept.block
    }
}

pub(super) fn slot_holding<L: Leases>(of: &L) -> Slot {
    // SAFETY: `of` lies in a state, at the offset that `L` gives.
    unsafe { Slot::of(std::ptr::from_ref(of).addr() - L::AT) }
}

/// Reserves a block, unless there is one. Returns whether there is one now.
#[must_use]
pub(crate) fn reserve(of: &mut impl Leases, purpose: Purpose) -> bool {
    if of.lease(purpose) == Lease::NONE {
        *of.lease_mut(purpose) = reserved(slot_holding(of), purpose).map_or(Lease::NONE, Lease::of);
    }
    of.lease(purpose) != Lease::NONE
}

/// Gives the block back, if there is one.
pub(crate) fn give_back(of: &mut impl Leases, purpose: Purpose) {
    let lease = std::mem::replace(of.lease_mut(purpose), Lease::NONE);
    if let Some(number) = lease.number() {
        given_back(slot_holding(of), purpose, number);
    }
}

/// Returns the octets of the block, if there is one.
pub(crate) fn block<L: Leases>(of: &L, purpose: Purpose) -> Option<&[u8]> {
    let at = found(slot_holding(of), purpose, of.lease(purpose).number()?)?;
    // SAFETY: the block is allocated, mapped as long as the state, and the stream's alone for this
    // purpose; a caller with `of` has the lock.
    Some(unsafe { std::slice::from_raw_parts(at, BLOCK) })
}

/// Returns a block's octets for writing, as [`block`] does for reading.
pub(crate) fn block_mut<L: Leases>(of: &mut L, purpose: Purpose) -> Option<&mut [u8]> {
    let at = found(slot_holding(of), purpose, of.lease(purpose).number()?)?;
    // SAFETY: as in `block`, and `of` is borrowed alone.
    Some(unsafe { std::slice::from_raw_parts_mut(at, BLOCK) })
}

/// Returns whether all blocks that the direction claims are there and its own.
#[inline]
pub(crate) fn has_all<L: Leases>(of: &L, purposes: &[Purpose]) -> bool {
    purposes.iter().all(|purpose| of.lease(*purpose) == Lease::NONE || block(of, *purpose).is_some())
}

/// Returns the places for holders in the block of a state, if it has one.
pub(super) fn holders<'a>(slot: Slot, lease: &AtomicU32) -> Option<&'a [AtomicU64]> {
    let number = Lease(lease.load(Ordering::Acquire)).number()?;
    let at = found(slot, Purpose::Holders, number)?;
    // SAFETY: the block is allocated, mapped as long as the state, and for this purpose only; it is
    // zeroed before it is known, and used by atomics alone.
    Some(unsafe { std::slice::from_raw_parts(at.cast(), Purpose::HOLDERS_LEN) })
}

/// Reserves a block for holders, if there is none yet; there may be none to get.
pub(super) fn reserve_for_holders(slot: Slot, lease: &AtomicU32) {
    if lease.load(Ordering::Acquire) != 0 {
        return;
    }
    let Some(number) = reserved(slot, Purpose::Holders) else { return };
    let is_in_file = slot.slab.home().pool.is_some();
    if is_in_file && let Some(at) = found(slot, Purpose::Holders, number) {
        // SAFETY: the block has that many octets, and no other thread knows of it yet.
        unsafe { at.write_bytes(0, BLOCK) };
    }
    let lease = lease.compare_exchange(0, Lease::of(number).0, Ordering::AcqRel, Ordering::Relaxed);
    if lease.is_err() && is_in_file {
        given_back(slot, Purpose::Holders, number);
    }
}

fn reserved(slot: Slot, purpose: Purpose) -> Option<u32> {
    let Some(pool) = slot.slab.home().pool else { return Some(purpose as u32) };
    taken(pool, Owner::of(slot, purpose as u64))
}

/// Takes a free block of the file.
pub(super) fn taken(pool: &'static Pool, owner: Owner) -> Option<u32> {
    let hint = pool.free_block.load(Ordering::Relaxed);
    if let Some((slab, index)) = pool.block(hint)
        && owner.takes(&slab.header().entries[index])
    {
        return Some(hint);
    }
    search(pool, owner)
}

#[cold]
fn search(pool: &'static Pool, owner: Owner) -> Option<u32> {
    let _errno = SameErrno::here();
    let number = take_free(pool, owner)
        .or_else(|| (pool.block_sweep_is_due() && sweep(pool)).then(|| take_free(pool, owner)).flatten())
        // Another process may make the new slab one of slots, or take all blocks in it.
        .or_else(|| {
            (0..A_FEW).find_map(|_| pool.grow(OF_BLOCKS).then(|| take_free(pool, owner)).flatten())
        })?;
    pool.free_block.store(number, Ordering::Relaxed);
    Some(number)
}

pub(super) fn entries(pool: &'static Pool) -> impl Iterator<Item = (u32, &'static Entry)> {
    pool.slabs(OF_BLOCKS).flat_map(|(number, slab)| {
        let numbers = (number * BLOCKS) as u32..;
        numbers.zip(&slab.header().entries[..BLOCKS])
    })
}

fn take_free(pool: &'static Pool, owner: Owner) -> Option<u32> {
    let hint = pool.free_block.load(Ordering::Relaxed);
    let behind = entries(pool).filter(|(number, _)| *number >= hint);
    behind.chain(entries(pool)).find(|(_, entry)| owner.takes(entry)).map(|(number, _)| number)
}

/// Frees the blocks of slots that are free. Returns whether there were any.
pub(super) fn sweep(pool: &'static Pool) -> bool {
    let mut any = false;
    for (_, entry) in entries(pool) {
        let owner = Owner(entry.used.load(Ordering::Acquire));
        any |= owner.0 != 0 && !owner.is_there(pool) && owner.gives_back(entry);
    }
    any
}

fn given_back(slot: Slot, purpose: Purpose, number: u32) {
    let Some(pool) = slot.slab.home().pool else { return };
    if let Some((slab, index)) = pool.block(number)
        && Owner::of(slot, purpose as u64).gives_back(&slab.header().entries[index])
    {
        pool.free_block.store(number, Ordering::Relaxed);
    }
}

/// Returns the address of a block, if it belongs to this state and purpose.
fn found(slot: Slot, purpose: Purpose, number: u32) -> Option<*mut u8> {
    let (slab, offset): (Slab, usize) = match slot.slab.home().pool {
        // Without a file the number does not count: each purpose has one block.
        None => (slot.slab, OWN_BLOCKS_AT + purpose as usize * BLOCK),
        Some(pool) => {
            let (slab, index) = pool.block(number)?;
            let is_own = Owner::of(slot, purpose as u64).has(&slab.header().entries[index]);
            is_own.then_some((slab, block_at(index)))?
        }
    };
    Some(slab.place(offset).as_ptr())
}

const _: () = assert!(super::layout::MAX_SLABS * SLOTS < 1 << PURPOSE_AT);
