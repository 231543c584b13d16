//! The locks of the two directions, the invariants of a direction whose lock is free, and the
//! moving of octets under a lock.

use std::sync::atomic::Ordering;

use super::buffers::EARLY;
use super::rx::MAX_TRAILER;
use super::sdp::live;
use super::state::{Rx, Tx};
use super::sys::{BLOCK, Guard, Kernel, Purpose, has_all};
use super::{Errno, Stream};

impl Stream<'_> {
    /// Locks the receiving direction. An owner that gives the lock back has cleared `moving`: if it
    /// is set, the last owner died.
    pub(super) fn lock_rx(&self) -> Result<Guard<'_, Rx>, Errno> {
        let mut rx = self.state.rx.lock()?;
        let half = rx.moving || self.state.asked.is_sdp() && !is_sound_sdp(&mut rx);
        if half || !rx.is_sound() { Err(self.owner_died()) } else { Ok(rx) }
    }

    /// Locks the sending direction, in the same way.
    pub(super) fn lock_tx(&self) -> Result<Guard<'_, Tx>, Errno> {
        let tx = self.state.tx.lock()?;
        let half = tx.moving || tx.framing || tx.changing.load(Ordering::Relaxed);
        if half || !tx.is_sound() { Err(self.owner_died()) } else { Ok(tx) }
    }

    /// Takes `count` octets that the kernel has by `take`. Until that is noted, the state is marked
    /// as moving.
    pub(super) fn moving(
        &self,
        rx: &mut Rx,
        count: usize,
        take: impl FnOnce(&Kernel<'_>) -> Result<usize, Errno>,
    ) -> Result<(), Errno> {
        match self.moving_some(rx, take) {
            Ok(took) if took == count => Ok(()),
            // Another program reads the socket without this library.
            _ => Err(self.owner_died()),
        }
    }

    /// Takes octets into memory of the program, where the kernel stops at a page that is not
    /// mapped. Returns the number of octets.
    pub(super) fn moving_some(
        &self,
        rx: &mut Rx,
        take: impl FnOnce(&Kernel<'_>) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        rx.moving = true;
        let took = take(&self.kernel);
        rx.moving = false;
        match took {
            Err(Errno::FAULT) => Ok(0),
            Err(_) => Err(self.owner_died()),
            took => took,
        }
    }
}

/// Returns whether the values of a connection of SDP fit together.
fn is_sound_sdp(rx: &mut Guard<'_, Rx>) -> bool {
    rx.sdp.is_sound() && rx.rooms.is_sound() && live(rx).is_sound()
}

impl Rx {
    /// Returns whether the values fit together: another process may have written anything.
    #[inline]
    pub(super) fn is_sound(&self) -> bool {
        let (left, kept) = (self.left as usize, self.kept().len());
        let left_end =
            if self.left_is_kept && left > 0 { left.saturating_add(self.kept_at as usize) } else { 0 };
        has_all(self, &[Purpose::Kept])
            && self.trailer as usize <= MAX_TRAILER
            && left <= BLOCK
            && left_end.max(self.absorbed as usize) <= kept
    }
}

impl Tx {
    /// Returns whether the values fit together, as [`Rx::is_sound`] does.
    #[inline]
    pub(super) fn is_sound(&self) -> bool {
        let owed_len = self.owed_place().len();
        has_all(self, &[Purpose::Owed, Purpose::Early])
            && self.owed_from <= self.owed_to
            && self.owed_to as usize <= owed_len
            && self.early_from <= self.early_to
            && self.early_to as usize <= EARLY
    }
}
