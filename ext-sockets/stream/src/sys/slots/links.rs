//! Blocks of a chain as they are linked: found, added, given back, and counted again.

use std::sync::atomic::{Ordering, compiler_fence};

use super::blocks::Lease;
use super::chain::{Chain, ChainError, Chains, MOST_BLOCKS};
use super::home::Slot;
use super::layout::BLOCK;
use super::many::{self, Block, Many};
use super::spans::Piece;

impl Chains<'_> {
    /// Counts again what a process left that died, and gives back blocks without octets at the
    /// ends: a stream whose holder died in the middle of a change ends, so this is for tests of
    /// what is left at each step.
    ///
    /// # Errors
    /// `Damaged`: the blocks are not a chain.
    #[cfg(test)]
    pub(crate) fn mend(&mut self, chain: &mut Chain) -> Result<(), ChainError> {
        let mut steps = Steps::new();
        while chain.first != Lease::NONE {
            steps.next()?;
            let block = find(self.slot, chain.first)?;
            let (from, to) = bounds(block)?;
            if from < to {
                break;
            }
            self.drop_first(chain, block)?;
        }
        *chain = counted(self.slot, chain.first)?;
        self.cut_behind_last(chain)
    }

    /// Checks that all numbers of the chain fit together, in a step for each block.
    ///
    /// # Errors
    /// `Damaged`: they do not.
    #[cfg(test)]
    pub(crate) fn check(&self, chain: &Chain) -> Result<(), ChainError> {
        if counted(self.slot, chain.first)? == *chain { Ok(()) } else { Err(ChainError::Damaged) }
    }

    /// Adds `len` octets, which `write` writes piece by piece.
    pub(super) fn grow(
        &mut self,
        chain: &mut Chain,
        len: usize,
        write: impl FnMut(&mut [u8]),
    ) -> Result<(), ChainError> {
        self.reserve(chain, len)?;
        self.advance(chain, len, write)
    }

    /// Links blocks behind the last one that is in use, until there is room for `len` octets.
    pub(super) fn reserve(&mut self, chain: &mut Chain, len: usize) -> Result<(), ChainError> {
        let mut end = chain.last;
        let room = if end == Lease::NONE { 0 } else { BLOCK - bounds(find(self.slot, end)?)?.1 };
        let wanted = len.saturating_sub(room).div_ceil(BLOCK);
        let blocks = wanted.saturating_add(chain.blocks as usize);
        let overflows = len.saturating_add(chain.len()) > u32::MAX as usize;
        if blocks > MOST_BLOCKS as usize || overflows {
            return Err(ChainError::NoRoom);
        }
        for _ in 0..wanted {
            let Some(number) = many::take(self.slot, Many::Chain) else {
                self.cut_behind_last(chain)?;
                return Err(ChainError::NoRoom);
            };
            let new = Lease::of(number);
            let block = find(self.slot, new)?;
            set_next(block, Lease::NONE);
            set_bounds(block, 0, 0);
            match end {
                Lease::NONE => chain.first = new,
                end => set_next(find(self.slot, end)?, new),
            }
            chain.blocks += 1;
            end = new;
        }
        Ok(())
    }

    /// Adds `len` octets for which room is reserved, when `write` has written them piece by piece.
    /// Gives back what was reserved beyond them.
    pub(super) fn advance(
        &mut self,
        chain: &mut Chain,
        len: usize,
        mut write: impl FnMut(&mut [u8]),
    ) -> Result<(), ChainError> {
        let mut lease = chain.end();
        let (mut left, mut steps) = (len, Steps::new());
        while left > 0 {
            steps.next()?;
            let block = find(self.slot, lease)?;
            let (from, to) = bounds(block)?;
            let now = left.min(BLOCK - to);
            write(Piece { lease, block, from: to, len: now }.octets_mut(self));
            set_bounds(block, from, to + now);
            chain.octets = chain.octets.saturating_add(now as u32);
            if now > 0 {
                chain.last = lease;
            }
            left -= now;
            lease = next(block)?;
        }
        self.cut_behind_last(chain)
    }

    /// Takes the first block off the chain, and gives it back.
    pub(super) fn drop_first(&mut self, chain: &mut Chain, block: Block<'_>) -> Result<(), ChainError> {
        let (first, behind) = (chain.first, next(block)?);
        chain.first = behind;
        chain.blocks = chain.blocks.saturating_sub(1);
        if behind == Lease::NONE {
            *chain = Chain::default();
        }
        // A process that dies here leaves a block that is nobody's until the stream is gone, and
        // not one that is given back and still linked.
        compiler_fence(Ordering::SeqCst);
        #[cfg(test)]
        super::chain_tests::step();
        self.give_back(first);
        Ok(())
    }

    /// Gives back all blocks behind the last one that is in use.
    pub(super) fn cut_behind_last(&mut self, chain: &mut Chain) -> Result<(), ChainError> {
        let behind = match chain.last {
            Lease::NONE => std::mem::take(chain).first,
            last => {
                let block = find(self.slot, last)?;
                let behind = next(block)?;
                if behind == Lease::NONE {
                    return Ok(());
                }
                set_next(block, Lease::NONE);
                behind
            }
        };
        compiler_fence(Ordering::SeqCst);
        let given_back = self.give_back_from(behind)?;
        chain.blocks = chain.blocks.saturating_sub(given_back);
        Ok(())
    }

    /// Gives back a block and all behind it. Returns their number.
    pub(super) fn give_back_from(&mut self, first: Lease) -> Result<u32, ChainError> {
        let (mut lease, mut count, mut steps) = (first, 0, Steps::new());
        while lease != Lease::NONE {
            steps.next()?;
            let behind = next(find(self.slot, lease)?)?;
            #[cfg(test)]
            super::chain_tests::step();
            self.give_back(lease);
            lease = behind;
            count += 1;
        }
        Ok(count)
    }

    fn give_back(&mut self, lease: Lease) {
        if let Some(number) = lease.number() {
            many::give_back(self.slot, Many::Chain, number);
        }
    }
}

/// Returns the block of a chain that a number says.
pub(super) fn find<'b>(slot: Slot, lease: Lease) -> Result<Block<'b>, ChainError> {
    let block = lease.number().and_then(|number| many::find(slot, Many::Chain, number));
    block.ok_or(ChainError::Damaged)
}

/// Counts what is linked from a block on. Blocks behind the last one with octets are counted as
/// well.
#[cfg(test)]
fn counted(slot: Slot, first: Lease) -> Result<Chain, ChainError> {
    let mut chain = Chain { first, ..Chain::default() };
    let (mut lease, mut steps) = (first, Steps::new());
    while lease != Lease::NONE {
        steps.next()?;
        let block = find(slot, lease)?;
        let (from, to) = bounds(block)?;
        if from < to {
            chain.last = lease;
        }
        chain.octets += (to - from) as u32;
        chain.blocks += 1;
        lease = next(block)?;
    }
    Ok(chain)
}

/// Returns which octets of a block are in use: from, and up to but without.
pub(super) fn bounds(block: Block<'_>) -> Result<(usize, usize), ChainError> {
    let word = block.entry.holders[0].load(Ordering::Relaxed);
    let (from, to) = (word as u32 as usize, (word >> 32) as usize);
    if from <= to && to <= BLOCK { Ok((from, to)) } else { Err(ChainError::Damaged) }
}

/// Says which octets of a block are in use. By one store, which no change of the octets before it
/// and no change of the chain behind it passes.
pub(super) fn set_bounds(block: Block<'_>, from: usize, to: usize) {
    compiler_fence(Ordering::SeqCst);
    #[cfg(test)]
    super::chain_tests::step();
    block.entry.holders[0].store(from as u64 | (to as u64) << 32, Ordering::Release);
    compiler_fence(Ordering::SeqCst);
}

/// Returns the block behind this one.
pub(super) fn next(block: Block<'_>) -> Result<Lease, ChainError> {
    Lease::of_word(block.entry.cookie.load(Ordering::Relaxed)).ok_or(ChainError::Damaged)
}

/// Links a block behind this one, by one store, as [`set_bounds`] does.
pub(super) fn set_next(block: Block<'_>, lease: Lease) {
    compiler_fence(Ordering::SeqCst);
    #[cfg(test)]
    super::chain_tests::step();
    block.entry.cookie.store(lease.word(), Ordering::Release);
    compiler_fence(Ordering::SeqCst);
}

/// The steps that an operation may take: one for each block that a chain may have.
pub(super) struct Steps(u32);

impl Steps {
    pub(super) const fn new() -> Self {
        Self(MOST_BLOCKS + 1)
    }

    pub(super) fn next(&mut self) -> Result<(), ChainError> {
        self.0 = self.0.checked_sub(1).ok_or(ChainError::Damaged)?;
        Ok(())
    }
}
