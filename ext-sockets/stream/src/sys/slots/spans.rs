//! Octets of a chain as pieces of its blocks, copied one by one, or lent to the kernel together.

use std::io::{IoSlice, IoSliceMut};

use super::blocks::Lease;
use super::chain::{Chain, ChainError, Chains, PIECES};
use super::home::Slot;
use super::layout::BLOCK;
use super::links::{Steps, bounds, find, next};
use super::many::Block;

/// Octets of a chain, or free room behind them, in one block.
#[derive(Clone, Copy)]
pub(super) struct Piece<'b> {
    pub(super) lease: Lease,
    pub(super) block: Block<'b>,
    pub(super) from: usize,
    pub(super) len: usize,
}

impl Piece<'_> {
    pub(super) fn octets<'a>(&self, _chains: &'a Chains<'_>) -> &'a [u8] {
        // SAFETY: the block is memory of the stream's chains, stays mapped as long as the state,
        // and is written through a `Chains` alone that is borrowed for that; there is one.
        let all = unsafe { std::slice::from_raw_parts(self.block.at.as_ptr(), BLOCK) };
        all.get(self.from..self.from + self.len).unwrap_or_default()
    }

    pub(super) fn octets_mut<'a>(&self, _chains: &'a mut Chains<'_>) -> &'a mut [u8] {
        // SAFETY: as in `octets`, and the only `Chains` is borrowed alone.
        let all = unsafe { std::slice::from_raw_parts_mut(self.block.at.as_ptr(), BLOCK) };
        all.get_mut(self.from..self.from + self.len).unwrap_or_default()
    }
}

/// Calls `visitor` for the pieces of `len` octets from `offset` on, until it returns `false`.
///
/// # Errors
/// `Damaged`: the chain does not have so many octets, or not where it says.
pub(super) fn visit<'b>(
    slot: Slot,
    chain: &Chain,
    offset: usize,
    len: usize,
    mut visitor: impl FnMut(Piece<'b>) -> bool,
) -> Result<(), ChainError> {
    if offset.checked_add(len).is_none_or(|end| end > chain.len()) {
        return Err(ChainError::Damaged);
    }
    let (mut lease, mut skip, mut left) = (chain.first, offset, len);
    let mut steps = Steps::new();
    while left > 0 {
        steps.next()?;
        let block = find(slot, lease)?;
        let (from, to) = bounds(block)?;
        let before = skip.min(to - from);
        let now = left.min(to - from - before);
        if now > 0 && !visitor(Piece { lease, block, from: from + before, len: now }) {
            return Ok(());
        }
        (skip, left) = (skip - before, left - now);
        lease = next(block)?;
    }
    Ok(())
}

/// Pieces of a chain that lie in different blocks.
pub(super) struct Pieces<'b> {
    list: [Option<Piece<'b>>; PIECES],
    count: usize,
}

impl<'b> Pieces<'b> {
    /// Returns the pieces of the octets from `offset` on: of `len` octets, or of as many as so many
    /// pieces have.
    pub(super) fn of(slot: Slot, chain: &Chain, offset: usize, len: usize) -> Result<Self, ChainError> {
        let mut pieces = Self { list: [None; PIECES], count: 0 };
        let mut added = Ok(true);
        visit(slot, chain, offset, len, |piece| {
            added = pieces.add(piece);
            added == Ok(true)
        })?;
        added.map(|_| pieces)
    }

    /// Returns the pieces of `len` octets of room that is reserved behind a chain.
    pub(super) fn behind(slot: Slot, chain: &Chain, len: usize) -> Result<Self, ChainError> {
        let mut pieces = Self { list: [None; PIECES], count: 0 };
        let (mut lease, mut left) = (chain.end(), len);
        let mut steps = Steps::new();
        while left > 0 {
            steps.next()?;
            let block = find(slot, lease)?;
            let (_, to) = bounds(block)?;
            let now = left.min(BLOCK - to);
            if now > 0 && !pieces.add(Piece { lease, block, from: to, len: now })? {
                break;
            }
            left -= now;
            lease = next(block)?;
        }
        Ok(pieces)
    }

    /// Adds a piece. `false`: there is no place for it. An error if its block is in the list: a
    /// damaged chain.
    fn add(&mut self, piece: Piece<'b>) -> Result<bool, ChainError> {
        if self.list.iter().flatten().any(|other| other.block.at == piece.block.at) {
            return Err(ChainError::Damaged);
        }
        let Some(place) = self.list.get_mut(self.count) else { return Ok(false) };
        *place = Some(piece);
        self.count += 1;
        Ok(true)
    }

    /// Lends the pieces for writing.
    pub(super) fn lend<R>(
        &self,
        chains: &mut Chains<'_>,
        body: impl FnOnce(&mut [IoSliceMut<'_>]) -> R,
    ) -> R {
        let _alone = chains;
        let mut lent: [IoSliceMut<'_>; PIECES] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        for (lent, piece) in lent.iter_mut().zip(self.list.iter().flatten()) {
            // SAFETY: as in `Piece::octets_mut`; `add` has checked that no two pieces are of one
            // block, and a piece lies within its block.
            let octets =
                unsafe { std::slice::from_raw_parts_mut(piece.block.at.as_ptr().add(piece.from), piece.len) };
            *lent = IoSliceMut::new(octets);
        }
        body(&mut lent[..self.count])
    }

    /// Lends the pieces for reading.
    pub(super) fn show<R>(&self, chains: &Chains<'_>, body: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        let mut lent = [IoSlice::new(&[]); PIECES];
        for (lent, piece) in lent.iter_mut().zip(self.list.iter().flatten()) {
            *lent = IoSlice::new(piece.octets(chains));
        }
        body(&lent[..self.count])
    }
}
