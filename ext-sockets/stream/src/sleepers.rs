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
//! [kicks]: Stream::kick

use std::sync::atomic::{AtomicU64, Ordering};

use super::patience::Patience;
use super::sys::{handlers_restart, is_confined};
use super::{Errno, Stream};

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
    fn note_until_kicked(&self) {
        let more = |word: u64| Some(if word & COUNT == COUNT { word } else { word + 1 });
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
    }

    /// Returns whether any sleeper is noted.
    pub(super) fn any(&self) -> bool {
        self.word() & COUNT != 0
    }

    fn word(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Forgets the notes, after a kick that began when the word was `word`. If there is a new note
    /// by now they stay, and the next kick forgets them.
    fn forget(&self, word: u64) {
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

impl<'a> Stream<'a> {
    /// Waits by edges for what `look` looks for, as the descriptor's flags say. Returns when
    /// something has happened; the caller then tries again.
    ///
    /// `look` is called when no event and no [kick](Self::kick) can be missed any more. It returns
    /// `None` if what the caller waits for is there. Else it returns a [note](Self::note_sleeper),
    /// made before it gave the lock back.
    pub(super) fn wait_by_edges<'n>(
        &self,
        patience: &Patience,
        look: impl FnOnce() -> Result<Option<Note<'n>>, Errno>,
    ) -> Result<(), Errno> {
        if patience.is_none() || self.is_nonblocking()? {
            self.pay_by_the_way();
            return Err(Errno::WOULD_BLOCK);
        }
        self.wait_by_edges_in_any_case(patience, look)
    }

    /// Waits by edges whatever the descriptor's flags say.
    pub(super) fn wait_by_edges_in_any_case<'n>(
        &self,
        patience: &Patience,
        look: impl FnOnce() -> Result<Option<Note<'n>>, Errno>,
    ) -> Result<(), Errno> {
        if patience.is_over() {
            return Err(Errno::WOULD_BLOCK);
        }
        let others = self.kernel.progress_other_sockets();
        let recheck = self.recheck();
        let slept = self.kernel.sleep_by_edges(recheck, || {
            let Some(note) = look()? else { return Ok(None) };
            // Asked after the note: a process that gives up its kicks wakes those noted before.
            let untold = self.state.sleepers.are_not_told().then_some(recheck);
            let longest = [patience.left(), self.deadline(), others, untold].into_iter().flatten().min();
            Ok(Some((note, longest)))
        });
        match slept {
            // The kernel never restarts `epoll_wait` (signal(7)): see `wait_in_any_case`.
            Err(Errno::INTERRUPTED) if !patience.has_limit() && handlers_restart() => Ok(()),
            slept => slept,
        }
    }

    /// Notes the calling thread as a sleeper. `wake_at` is `SO_RCVLOWAT` as the kernel has it: it
    /// becomes 1, and stays so while [sleepers are noted](Sleepers::any), as each octet may be for
    /// another of them. The caller holds the lock.
    pub(super) fn note_sleeper(&self, wake_at: &mut u32) -> Note<'a> {
        let note = self.state.sleepers.note();
        if *wake_at > 1 && self.kernel.wake_at(1).is_ok() {
            *wake_at = 1;
        }
        note
    }

    /// Notes the calling thread as a sleeper that needs whole FPDUs alone: `SO_RCVLOWAT` stays what
    /// the FPDU in front asks for. The caller holds the lock.
    pub(super) fn note_waiter(&self) -> Note<'a> {
        self.state.sleepers.note()
    }

    /// Notes, until the next kick, that a wait of the program is about to sleep: nobody tells when
    /// it ends. The caller holds the lock.
    pub(super) fn note_wait_of_program(&self) {
        self.state.sleepers.note_until_kicked();
    }

    /// Wakes the sleepers of a process that is about to [confine](crate::confine) itself: they must
    /// look from time to time from now on, as it makes no kicks.
    pub fn announce_confinement(&self) {
        self.state.sleepers.expect_silence();
        let _tx = self.state.tx.lock();
        self.restore_linger();
        if self.state.sleepers.any() {
            self.kernel.kick();
        }
    }

    /// Wakes the threads that are noted as sleepers, if there are any. Called under the lock by
    /// whoever has changed what another call may wait for.
    pub(super) fn kick(&self) {
        let word = self.state.sleepers.word();
        if word & COUNT == 0 {
            return;
        }
        if is_confined() {
            return self.state.sleepers.expect_silence();
        }
        self.kernel.kick();
        self.state.sleepers.forget(word);
    }
}
