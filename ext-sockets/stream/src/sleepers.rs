//! Sleepers that wait for a change of the shared state, and not of the kernel's socket.
//!
//! A thread that finds nothing for itself under the lock notes that it is about to sleep by edges.
//! Whoever then changes what it may wait for (credits, a completion, room in front) [kicks]: all
//! sleepers, of all processes, wake and look again. A sleeper that was killed, or left by
//! `siglongjmp`, leaves its note behind; the next kick is made for nobody, and forgets it.
//!
//! The order is: register for edges, collect those that there are, look under the lock, note the
//! sleeper, unlock, sleep. A kick sets `TCP_NOTSENT_LOWAT` to the value that it has, which is an
//! edge of `EPOLLOUT` for the sleepers of every process. Where the kernel does not call the socket
//! writable that alone does nothing, now or later, so `poll` is asked first, which has the kernel
//! announce room.
//!
//! A [confined](crate::confine) process makes no kicks. Once one has the socket, sleepers look from
//! time to time.
//!
//! [kicks]: super::base::Base::kick

use std::sync::atomic::{AtomicU64, Ordering};

/// The count of noted sleepers, which lies in the state. A word of: the number of the kicks, which
/// forget all notes; whether some process that has the socket makes none; the count.
#[repr(transparent)]
#[derive(Debug, Default)]
pub(super) struct Sleepers(AtomicU64);

/// One kick, in the upper half of the word.
const KICK: u64 = 1 << 32;
/// Set if a process that has the socket makes no kicks.
const SILENT: u64 = 1 << 31;
const COUNT: u64 = SILENT - 1;

impl Sleepers {
    /// Notes a sleeper until the note is dropped. Called under the lock with which the sleeper has
    /// looked.
    pub(super) fn note(&self) -> Note<'_> {
        let more = |word: u64| Some(if word & COUNT == COUNT { word } else { word + 1 });
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).unwrap_or_default();
        Note { of: self, kicks: before / KICK }
    }

    /// Notes a wait that another part of the program makes, until the next kick.
    pub(super) fn note_until_kicked(&self) {
        let more = |word: u64| Some(if word & COUNT == COUNT { word } else { word + 1 });
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
    }

    /// Returns whether any sleeper is noted.
    pub(super) fn any(&self) -> bool {
        Self::any_in(self.word())
    }

    /// Returns whether any sleeper is noted in this word.
    pub(super) fn any_in(word: u64) -> bool {
        word & COUNT != 0
    }

    pub(super) fn word(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Forgets the notes, after a kick that began when the word was `word`. If there is a new note
    /// by now they stay, and the next kick forgets them.
    pub(super) fn forget(&self, word: u64) {
        let next = (word & !COUNT).wrapping_add(KICK);
        let _ = self.0.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Notes that a process which has the socket makes no kicks from now on.
    pub(super) fn expect_silence(&self) {
        self.0.fetch_or(SILENT, Ordering::AcqRel);
    }

    /// Returns whether a change may come without a kick.
    pub(super) fn are_not_told(&self) -> bool {
        self.word() & SILENT != 0
    }
}

/// A noted sleeper, until dropped.
#[derive(Debug)]
pub(super) struct Note<'a> {
    of: &'a Sleepers,
    kicks: u64,
}

impl Drop for Note<'_> {
    fn drop(&mut self) {
        let less = |word: u64| (word / KICK == self.kicks && word & COUNT != 0).then(|| word - 1);
        // After a kick the note is forgotten already.
        let _ = self.of.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
    }
}
