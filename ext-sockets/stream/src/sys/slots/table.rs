//! The block of tables of a stream: numbers that are too many for the state, and that most streams
//! never need.

use std::marker::PhantomData;
use std::mem::{align_of, size_of};

use super::blocks::Lease;
use super::chain::Chain;
use super::home::Slot;
use super::layout::BLOCK;
use super::many::{self, Many};
use crate::rooms::Runs;

/// Types of which any octets are a value, and which lie in memory that several processes map.
///
/// # Safety
/// The type is integers, and arrays and `repr(C)` structures of such types, without padding: any
/// octets are a value. It has no pointers and nothing to drop.
pub(crate) unsafe trait Integers: 'static {}

// SAFETY: an integer.
unsafe impl Integers for u8 {}
// SAFETY: an integer.
unsafe impl Integers for u32 {}
// SAFETY: an integer.
unsafe impl Integers for u64 {}
// SAFETY: four integers of 32 bits.
unsafe impl Integers for Chain {}
// SAFETY: two integers, and an array of pairs of integers: all of 32 bits.
unsafe impl Integers for Runs {}
// SAFETY: `repr(C)` arrays of structures of integers, which have no padding: those with a number of
// 64 bits have it in front, and an even number of others.
unsafe impl Integers for rddp_sdp::machine::Tables {}
// SAFETY: `repr(C)` structures and arrays of integers. Those with a number of 64 bits have it in
// front, or behind an even number of others, and an even number of others behind it.
unsafe impl Integers for crate::sdp::Zcopy {}
// SAFETY: an array of values any octets of which are one, without padding between them.
unsafe impl<T: Integers, const N: usize> Integers for [T; N] {}

/// Most octets of a value in a block of tables: so many become zeros when it is reserved.
pub(crate) const TABLE: usize = 24 * 1024;

const _: () = assert!(TABLE <= BLOCK);

/// The way to a stream's block of tables, while the lock of [`Rx`](crate::state::Rx) is held. Where
/// the block is says a [`Lease`] in the state under that lock.
pub(crate) struct Table<'a> {
    slot: Slot,
    alone: PhantomData<&'a mut [u8]>,
}

impl<'a> Table<'a> {
    pub(super) const fn at(slot: Slot) -> Self {
        Self { slot, alone: PhantomData }
    }

    /// Reserves the block, unless there is one, and makes it all zeros. Returns whether there is
    /// one now.
    #[must_use]
    pub(crate) fn reserve(&mut self, lease: &mut Lease) -> bool {
        if *lease != Lease::NONE {
            return self.octets(*lease).is_some();
        }
        let Some(number) = many::take(self.slot, Many::Table) else { return false };
        let Some(octets) = self.octets(Lease::of(number)) else { return false };
        octets.fill(0);
        *lease = Lease::of(number);
        true
    }

    /// Gives the block back, if there is one.
    pub(crate) fn give_back(&mut self, lease: &mut Lease) {
        if let Some(number) = std::mem::take(lease).number() {
            many::give_back(self.slot, Many::Table, number);
        }
    }

    /// Returns the value that begins the block. `None`: there is no block, or it is another
    /// stream's.
    pub(crate) fn get<T: Integers>(&mut self, lease: Lease) -> Option<&mut T> {
        Table { slot: self.slot, alone: PhantomData }.into_value(lease)
    }

    /// Returns the value as [`get`](Self::get) does, for as long as the lock is held.
    pub(crate) fn into_value<T: Integers>(self, lease: Lease) -> Option<&'a mut T> {
        const { assert!(size_of::<T>() <= TABLE && align_of::<T>() <= 4096) };
        let block = many::find(self.slot, Many::Table, lease.number()?)?;
        // SAFETY: the block is memory, begins at a page, stays mapped as long as the state, has
        // room for the value, and is the stream's alone for this purpose; any octets are a `T`.
        // Its lock is held for `'a`, and `self` is the only way to it, which is gone.
        Some(unsafe { block.at.cast::<T>().as_mut() })
    }

    fn octets(&mut self, lease: Lease) -> Option<&mut [u8; TABLE]> {
        self.get(lease)
    }
}
