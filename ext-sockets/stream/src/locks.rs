//! The locks of the two directions, the invariants of a direction whose lock is free, and the
//! moving of octets under a lock.
//!
//! The locks are taken in the order receiving, sending, and never held while a thread sleeps
//! (`sys/held.rs` asserts both in debug builds). A change that takes octets out of the kernel is
//! marked until everything is counted ([`Guard::moving`]), and so are several stores to numbers and
//! octets that belong together. If a process dies under a mark, the next call of another ends the
//! stream with `ECONNABORTED`, and the peer sees a reset; at any other moment the other processes
//! go on. Octets that the dead process's own call had taken are lost, as with TCP.

use std::io::IoSliceMut;
use std::sync::atomic::{Ordering, compiler_fence};

use super::base::Base;
use super::buffers::EARLY;
use super::kind::Kind;
use super::rx::MAX_TRAILER;
use super::state::{Rx, Tx};
use super::sys::{BLOCK, Guard, Purpose, has_all};
use super::{Errno, Framed};

impl<K: Kind> Framed<'_, K> {
    /// Locks the receiving direction. An owner that gives the lock back has cleared `moving`: if it
    /// is set, the last owner died.
    pub(super) fn lock_rx(&self) -> Result<Guard<'_, Rx>, Errno> {
        let mut rx = self.state.rx.lock()?;
        if rx.moving || !K::is_sound(&mut rx) || !rx.is_sound() { Err(self.damaged()) } else { Ok(rx) }
    }
}

impl Base<'_> {
    /// Locks the sending direction, in the same way.
    pub(super) fn lock_tx(&self) -> Result<Guard<'_, Tx>, Errno> {
        let tx = self.state.tx.lock()?;
        let half = tx.moving || tx.framing || tx.changing;
        if half || !tx.is_sound() { Err(self.damaged()) } else { Ok(tx) }
    }

    /// Drops `count` octets at the front of the kernel's queue, which has them. The caller has
    /// marked the state as [moving](Guard::moving).
    pub(super) fn drop_front(&self, count: usize) -> Result<(), Errno> {
        // Otherwise another program reads the socket without this library.
        if self.kernel.discard(count) == Ok(count) { Ok(()) } else { Err(self.damaged()) }
    }

    /// Takes octets into memory of the program, where the kernel stops at a page that is not
    /// mapped. Returns the number of octets. The caller has marked the state as
    /// [moving](Guard::moving).
    pub(super) fn take_front(&self, pieces: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        match self.kernel.take(pieces) {
            Err(Errno::FAULT) => Ok(0),
            took => took.map_err(|_| self.damaged()),
        }
    }
}

impl Guard<'_, Rx> {
    /// Makes a change that takes octets out of the kernel, and counts them. The state is marked
    /// meanwhile: the kernel does not tell afterwards how many octets a process took that died in
    /// between, so the next owner of the lock ends the stream.
    #[inline(always)]
    pub(super) fn moving<T>(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        // A change may be a part of another.
        let outer = self.moving;
        self.set_moving(true);
        let done = change(self);
        self.set_moving(outer);
        done
    }
}

/// Sets the mark of a change that a process may die in.
#[inline(always)]
pub(super) fn set<M>(mark: &mut M, value: M) {
    // A process dies between two instructions, of which a system call is one: the fences keep the
    // compiler from leaving the mark out, or reordering stores around it.
    compiler_fence(Ordering::SeqCst);
    *mark = value;
    compiler_fence(Ordering::SeqCst);
}

impl Rx {
    /// Sets the mark of octets that are being taken out of the kernel.
    #[inline(always)]
    pub(super) fn set_moving(&mut self, moving: bool) {
        set(&mut self.moving, moving);
    }

    /// Returns whether the values fit together: another process may have written anything.
    #[inline]
    pub(super) fn is_sound(&self) -> bool {
        let (left, kept) = (self.left as usize, self.kept().len());
        let left_end =
            if self.left_is_kept && left > 0 { left.saturating_add(self.kept.at as usize) } else { 0 };
        has_all(self, &[Purpose::Kept])
            && self.trailer as usize <= MAX_TRAILER
            && left <= BLOCK
            && left_end.max(self.absorbed as usize) <= kept
    }
}

impl Tx {
    /// Sets the mark of octets that are being given to the kernel.
    #[inline(always)]
    pub(super) fn set_moving(&mut self, moving: bool) {
        set(&mut self.moving, moving);
    }

    /// Returns whether the values fit together, as [`Rx::is_sound`] does.
    #[inline]
    pub(super) fn is_sound(&self) -> bool {
        let owed_len = self.owed_place().len();
        has_all(self, &[Purpose::Owed, Purpose::Early])
            && self.owed.from <= self.owed.to
            && self.owed.to as usize <= owed_len
            && self.early.from <= self.early.to
            && self.early.to as usize <= EARLY
    }
}
