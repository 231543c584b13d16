//! Notes of threads that are about to sleep, and kicks, which wake them: see `sleepers.rs`.

use super::base::Base;
use super::sleepers::{Note, Sleepers};
use super::sys::is_confined;

impl<'a> Base<'a> {
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
        if !Sleepers::any_in(word) {
            return;
        }
        if is_confined() {
            return self.state.sleepers.expect_silence();
        }
        self.kernel.kick();
        self.state.sleepers.forget(word);
    }
}
