//! Chains: queues of octets in shared memory, of any length, in blocks of their own.
//!
//! A [`Chain`] lies in the state and has no pointers; [`Chains`] is the way to the octets, for as
//! long as the lock is held. Its blocks are linked by their entries in the headers of slabs: the
//! number of the next block, and which of its octets are in use, in a word each.
//!
//! Another process may have written any number. An operation takes no more steps than a chain may
//! have blocks, touches no memory but that of blocks of this stream's chains, and returns
//! [`ChainError::Damaged`] where the numbers do not fit together: the stream is over then.
//!
//! A process may die in the middle of an operation. The blocks from the first one on are the truth,
//! and each changes by one store; [`Chain`]'s other numbers are counted again by
//! [`Chains::mend`]. Then a chain has the octets that it had before the operation or has after it,
//! or, where several blocks change, those of a part of them, from the front on. So who locks a
//! state whose last owner died calls `mend` first. Blocks that were being given back may be
//! nobody's then, until the stream is gone. The caller marks in the state, by a flag of its
//! own, what must not happen by half: octets that leave the kernel or another chain
//! ([`Chains::concat`]) while they come to this one, and numbers of its own that change with the
//! chain. Where that flag is found set the stream is over.

use std::io::{IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::sync::atomic::{Ordering, compiler_fence};

use super::super::Guard;
use super::blocks::{Lease, slot_holding};
use super::home::Slot;
use super::layout::BLOCK;
use super::links::{Steps, bounds, find, next, set_bounds, set_next};
use super::many;
use super::spans::{Pieces, visit};
use super::table::Table;
use crate::fields::{Field, fields};
use crate::sink::Sink;
use crate::state::Rx;

/// A queue of octets: where its blocks begin and end, and how much they hold. All zeros: empty, and
/// without a block. Must lie in memory under the lock of [`Rx`], and is not to be copied.
#[derive(Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Chain {
    pub(super) first: Lease,
    /// The last block with octets.
    pub(super) last: Lease,
    /// Number of blocks from the first one on.
    pub(super) blocks: u32,
    pub(super) octets: u32,
}

/// Reasons for which an operation on a chain fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChainError {
    /// There is no memory for more octets; nothing has changed.
    NoRoom,
    /// The numbers of the chain do not fit together, or the caller's do not fit the chain.
    Damaged,
}

impl Chain {
    pub(crate) const FIELDS: &[Field] = fields!(Chain: first, last, blocks, octets);

    /// Returns the number of octets.
    pub(crate) fn len(&self) -> usize {
        self.octets as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.octets == 0
    }

    /// Returns the block at which octets are added.
    pub(super) fn end(&self) -> Lease {
        if self.last == Lease::NONE { self.first } else { self.last }
    }
}

/// Most blocks of a chain.
pub(crate) const MOST_BLOCKS: u32 = 512;

/// Most pieces in which octets of a chain are lent.
pub(crate) const PIECES: usize = 16;

/// The way to the octets of all chains of a stream, while the lock of [`Rx`] is held.
pub(crate) struct Chains<'a> {
    pub(super) slot: Slot,
    alone: PhantomData<&'a mut [u8]>,
}

/// Splits what the lock of [`Rx`] guards: the value, the chains, the block of tables. None of them
/// lies in another.
pub(crate) fn parts<'a>(guard: &'a mut Guard<'_, Rx>) -> (&'a mut Rx, Chains<'a>, Table<'a>) {
    let slot = slot_holding::<Rx>(guard);
    (guard, Chains { slot, alone: PhantomData }, Table::at(slot))
}

impl Chains<'_> {
    /// Sees to it that there are free blocks for so many octets, before this process gives up the
    /// system calls for that. Returns whether there are.
    pub(crate) fn prepare_to_confine(&mut self, octets: usize) -> bool {
        many::prepare(self.slot, octets.div_ceil(BLOCK))
    }

    /// Adds octets at the end.
    ///
    /// # Errors
    /// `NoRoom`: not all of them have room, and none was added.
    pub(crate) fn append(&mut self, chain: &mut Chain, octets: &[u8]) -> Result<(), ChainError> {
        let mut rest = octets;
        self.grow(chain, octets.len(), |room| {
            let (now, later) = rest.split_at(room.len());
            room.copy_from_slice(now);
            rest = later;
        })
    }

    /// Adds `len` zeros at the end, to be written over by [`write_at`](Self::write_at): what
    /// nobody writes never shows octets of another stream.
    ///
    /// # Errors
    /// As of [`append`](Self::append).
    pub(crate) fn extend(&mut self, chain: &mut Chain, len: usize) -> Result<(), ChainError> {
        self.grow(chain, len, |room| room.fill(0))
    }

    /// Adds up to `len` octets at the end, which `fill` writes into the room that it gets, from the
    /// front on, and counts. There is room for `len`, or for as many as [`PIECES`] pieces hold.
    ///
    /// # Errors
    /// `NoRoom`: there is no memory for so many, and `fill` was not called. The inner error is that
    /// of `fill`; nothing was added then.
    pub(crate) fn fill<E>(
        &mut self,
        chain: &mut Chain,
        len: usize,
        fill: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, E>,
    ) -> Result<Result<usize, E>, ChainError> {
        let len = len.min(PIECES * BLOCK - BLOCK);
        self.reserve(chain, len)?;
        let pieces = Pieces::behind(self.slot, chain, len)?;
        let filled = pieces.lend(self, fill);
        self.advance(chain, filled.as_ref().map_or(0, |count| len.min(*count)), |_| {})?;
        Ok(filled)
    }

    /// Writes octets over those from `offset` on.
    ///
    /// # Errors
    /// `Damaged`: the chain does not have so many.
    pub(crate) fn write_at(&mut self, chain: &Chain, offset: usize, octets: &[u8]) -> Result<(), ChainError> {
        let mut rest = octets;
        visit(self.slot, chain, offset, octets.len(), |piece| {
            let (now, later) = rest.split_at(piece.len);
            piece.octets_mut(self).copy_from_slice(now);
            rest = later;
            true
        })
    }

    /// Copies the octets from `offset` on to `out`, which they fill. They stay in the chain.
    ///
    /// # Errors
    /// `Damaged`: the chain does not have so many.
    pub(crate) fn read_at(&self, chain: &Chain, offset: usize, out: &mut [u8]) -> Result<(), ChainError> {
        let len = out.len();
        let mut rest = out;
        visit(self.slot, chain, offset, len, |piece| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(piece.len);
            now.copy_from_slice(piece.octets(self));
            rest = later;
            true
        })
    }

    /// Lends up to `len` octets from `offset` on for reading, as many as [`PIECES`] pieces have.
    /// Returns what `look` returns.
    ///
    /// # Errors
    /// As of [`read_at`](Self::read_at).
    pub(crate) fn look_at<R>(
        &self,
        chain: &Chain,
        offset: usize,
        len: usize,
        look: impl FnOnce(&[IoSlice<'_>]) -> R,
    ) -> Result<R, ChainError> {
        Ok(Pieces::of(self.slot, chain, offset, len)?.show(self, look))
    }

    /// Copies octets from `offset` on to the program's buffers, as many as there are and have room.
    /// They stay in the chain. Returns their number.
    ///
    /// # Errors
    /// `Damaged`: the chain does not have `offset` octets, or its numbers do not fit together.
    pub(crate) fn peek(
        &self,
        chain: &Chain,
        offset: usize,
        sink: &mut Sink<'_, '_>,
    ) -> Result<usize, ChainError> {
        let len = chain.len().checked_sub(offset).ok_or(ChainError::Damaged)?.min(sink.room());
        let mut count = 0;
        visit(self.slot, chain, offset, len, |piece| {
            let now = sink.fill(piece.octets(self));
            count += now;
            now == piece.len
        })?;
        Ok(count)
    }

    /// Moves octets from the front to the program's buffers, as many as there are and have room.
    /// Returns their number.
    ///
    /// # Errors
    /// As of [`peek`](Self::peek).
    pub(crate) fn take(&mut self, chain: &mut Chain, sink: &mut Sink<'_, '_>) -> Result<usize, ChainError> {
        let count = self.peek(chain, 0, sink)?;
        self.drop_front(chain, count)?;
        Ok(count)
    }

    /// Drops `count` octets from the front.
    ///
    /// # Errors
    /// `Damaged`: the chain does not have so many.
    pub(crate) fn drop_front(&mut self, chain: &mut Chain, count: usize) -> Result<(), ChainError> {
        let mut left = count;
        let mut steps = Steps::new();
        if count > chain.len() {
            return Err(ChainError::Damaged);
        }
        while left > 0 {
            steps.next()?;
            let block = find(self.slot, chain.first)?;
            let (from, to) = bounds(block)?;
            if left < to - from {
                set_bounds(block, from + left, to);
                chain.octets = chain.octets.saturating_sub(left as u32);
                return Ok(());
            }
            left -= to - from;
            chain.octets = chain.octets.saturating_sub((to - from) as u32);
            self.drop_first(chain, block)?;
        }
        Ok(())
    }

    /// Drops all octets behind the first `len`.
    ///
    /// # Errors
    /// `Damaged`: the numbers of the chain do not fit together.
    pub(crate) fn truncate(&mut self, chain: &mut Chain, len: usize) -> Result<(), ChainError> {
        if len >= chain.len() {
            return Ok(());
        }
        let Some(before) = len.checked_sub(1) else { return self.clear(chain) };
        let mut last = None;
        visit(self.slot, chain, before, 1, |piece| {
            last = Some((piece.lease, piece.from + 1));
            true
        })?;
        let (lease, end) = last.ok_or(ChainError::Damaged)?;
        let block = find(self.slot, lease)?;
        let (from, _) = bounds(block)?;
        (chain.last, chain.octets) = (lease, len as u32);
        self.cut_behind_last(chain)?;
        set_bounds(block, from, end);
        Ok(())
    }

    /// Drops all octets.
    ///
    /// # Errors
    /// `Damaged`: the numbers do not fit together. The chain is empty all the same; blocks that
    /// were not found are free when the stream is gone.
    pub(crate) fn clear(&mut self, chain: &mut Chain) -> Result<(), ChainError> {
        let first = std::mem::take(chain).first;
        compiler_fence(Ordering::SeqCst);
        self.give_back_from(first).map(drop)
    }

    /// Moves all octets of `other` behind those of `chain`, whatever their number in a few steps.
    ///
    /// # Errors
    /// `NoRoom`: a chain cannot have so many blocks; nothing has changed.
    pub(crate) fn concat(&mut self, chain: &mut Chain, other: &mut Chain) -> Result<(), ChainError> {
        if other.first == Lease::NONE || chain.first == Lease::NONE {
            if chain.first == Lease::NONE {
                *chain = std::mem::take(other);
            }
            return Ok(());
        }
        let octets = chain.octets.checked_add(other.octets).ok_or(ChainError::Damaged)?;
        let blocks = chain.blocks.checked_add(other.blocks).ok_or(ChainError::Damaged)?;
        if blocks > MOST_BLOCKS {
            return Err(ChainError::NoRoom);
        }
        let last = find(self.slot, chain.last)?;
        if next(last)? != Lease::NONE {
            return Err(ChainError::Damaged);
        }
        let other = std::mem::take(other);
        set_next(last, other.first);
        (chain.last, chain.blocks, chain.octets) = (other.last, blocks, octets);
        Ok(())
    }
}
