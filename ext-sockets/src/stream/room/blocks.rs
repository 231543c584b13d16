//! Blocks: memory beside a state for octets that a stream holds outside the kernel.

use std::mem::size_of;
use std::ptr::NonNull;

use crate::stream::State;
use crate::stream::state::{Rx, Tx};

/// Octets in a block: the longest FPDU, the one behind it that ends the message, control messages.
pub(in crate::stream) const BLOCK: usize = 72 * 1024;

/// What a stream may have a block for, each under one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stream) enum Purpose {
    /// Of [`Tx`].
    Owed,
    /// Of [`Tx`].
    Early,
    /// Of [`Rx`].
    Kept,
}

/// The block that a purpose has; all zeros: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(in crate::stream) struct Lease(u32);

/// What lies in a [`State`] and has blocks.
///
/// # Safety
/// The place is that of the value in every state, and there is none outside of one.
pub(in crate::stream) unsafe trait Holder {
    /// Where in a state it lies.
    const AT: usize;

    fn lease(&mut self, purpose: Purpose) -> &mut Lease;
    fn has(&self, purpose: Purpose) -> bool;
}

// SAFETY: the offsets are the compiler's.
unsafe impl Holder for Tx {
    const AT: usize = State::TX;

    fn lease(&mut self, purpose: Purpose) -> &mut Lease {
        if purpose == Purpose::Early { &mut self.early_in } else { &mut self.owed_in }
    }

    fn has(&self, purpose: Purpose) -> bool {
        let lease = if purpose == Purpose::Early { self.early_in } else { self.owed_in };
        lease != Lease(0)
    }
}

// SAFETY: as above.
unsafe impl Holder for Rx {
    const AT: usize = State::RX;

    fn lease(&mut self, _: Purpose) -> &mut Lease {
        &mut self.kept_in
    }

    fn has(&self, _: Purpose) -> bool {
        self.kept_in != Lease(0)
    }
}

/// How long a mapping of a state with its blocks is.
pub(super) const WITH_BLOCKS: usize = size_of::<State>() + 3 * BLOCK;

/// Reserves a block, unless there is one. Whether there is one now.
#[must_use]
pub(in crate::stream) fn reserve(of: &mut impl Holder, purpose: Purpose) -> bool {
    *of.lease(purpose) = Lease(1);
    true
}

/// Gives the block back, if there is one.
pub(in crate::stream) fn give_back(of: &mut impl Holder, purpose: Purpose) {
    *of.lease(purpose) = Lease(0);
}

/// The octets of the block, if there is one.
pub(in crate::stream) fn block<H: Holder>(of: &H, purpose: Purpose) -> Option<&[u8]> {
    // SAFETY: behind every state are its blocks, which whoever has the lock has alone.
    of.has(purpose).then(|| unsafe { std::slice::from_raw_parts(place(of, purpose).as_ptr(), BLOCK) })
}

/// The same for writing.
pub(in crate::stream) fn block_mut<H: Holder>(of: &mut H, purpose: Purpose) -> Option<&mut [u8]> {
    // SAFETY: as above.
    of.has(purpose).then(|| unsafe { std::slice::from_raw_parts_mut(place(of, purpose).as_ptr(), BLOCK) })
}

fn place<H: Holder>(of: &H, purpose: Purpose) -> NonNull<u8> {
    let at = std::ptr::from_ref(of).addr() - H::AT + size_of::<State>() + purpose as usize * BLOCK;
    let at = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: behind something that lies in memory.
    unsafe { NonNull::new_unchecked(at) }
}
