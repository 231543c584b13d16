//! Octets that the program was told are sent, and that are kept here: before this end may send, or
//! for want of the peer's credits. If the last process that has the socket dies, nobody sends them,
//! and TCP's FIN would tell the peer that it has got everything. So meanwhile the kernel's
//! `SO_LINGER` is the one that resets the connection at its last close.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use super::Errno;
use super::base::Base;
use super::state::{State, Tx};
use super::sys::is_confined;

/// Reasons for which octets are kept. There is one at a time: what waits for credits comes behind
/// all that was sent before this end might send.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    Early = 1,
    Spilled = 2,
}

/// Values of `SO_LINGER`: whether it is on, and its seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linger {
    /// Not 0: it is on.
    pub on: c_int,
    /// The time in seconds.
    pub seconds: c_int,
}

impl Linger {
    const RESET: Self = Self { on: 1, seconds: 0 };

    fn of(word: u64) -> (u8, Self) {
        let on = c_int::from(word & 1 << 32 != 0);
        ((word >> 56) as u8, Self { on, seconds: (word as u32).cast_signed() })
    }

    fn word(self, kept: u8) -> u64 {
        u64::from(kept) << 56 | u64::from(self.on != 0) << 32 | u64::from(self.seconds.cast_unsigned())
    }
}

impl State {
    /// Returns `SO_LINGER` as the program has it, while the kernel has another.
    #[must_use]
    pub fn linger(&self) -> Option<Linger> {
        let word = self.flow.linger.load(Ordering::Acquire);
        (word != 0).then(|| Linger::of(word).1)
    }

    /// Sets `SO_LINGER` as the program is to have it, while the kernel has another. Returns whether
    /// that is so.
    pub fn set_linger(&self, linger: Linger) -> bool {
        let changed = |word| (word != 0).then(|| linger.word(Linger::of(word).0));
        self.flow.linger.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed).is_ok()
    }
}

impl Base<'_> {
    /// Notes what is owed, and whether octets are kept until this end may send.
    pub(super) fn note_owed(&self, tx: &Tx) {
        let is_kept = self.state.note_owed(tx);
        self.note_kept(Kept::Early, is_kept);
    }

    /// Notes whether octets are kept for this reason.
    #[inline]
    pub(super) fn note_kept(&self, kept: Kept, is_kept: bool) {
        let word = self.state.flow.linger.load(Ordering::Acquire);
        if is_kept || word != 0 {
            self.note_change(kept, is_kept, word);
        }
    }

    #[cold]
    fn note_change(&self, kept: Kept, is_kept: bool, word: u64) {
        let is_noted = Linger::of(word).0 == kept as u8;
        if is_kept && word == 0 {
            let _ = self.reset_at_death(kept);
        } else if !is_kept && is_noted {
            self.restore_linger();
        }
    }

    /// Gives the kernel the program's `SO_LINGER` again.
    #[cold]
    pub(super) fn restore_linger(&self) {
        if self.state.linger().is_some() && !is_confined() {
            let (_, linger) = Linger::of(self.state.flow.linger.swap(0, Ordering::AcqRel));
            let _ = self.kernel.set_linger(linger);
        }
    }

    #[cold]
    fn reset_at_death(&self, kept: Kept) -> Result<(), Errno> {
        let linger = self.kernel.linger()?;
        self.kernel.set_linger(Linger::RESET)?;
        self.state.flow.linger.store(linger.word(kept as u8), Ordering::Release);
        Ok(())
    }
}
