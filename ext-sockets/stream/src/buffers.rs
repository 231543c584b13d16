//! Octets that a stream holds outside the kernel: owed to TCP, kept until the program reads them,
//! or sent by the program before the startup was over.
//!
//! A small amount of owed octets has room in the state. All others lie in blocks, which are
//! reserved when they are first needed and given back when they are empty. A reservation can fail.
//!
//! Where no block can be had, a write makes Sends of one FPDU each, which have room in the state,
//! and an FPDU with markers that is read in part stays in the kernel whole.

use super::locks::set;
use super::state::{LITTLE, Rx, Tx};
use super::sys::{BLOCK, Purpose, block, block_mut, give_back, is_confined, reserve};

impl Tx {
    /// Octets that TCP must still get: the rest of an FPDU that it has begun to take, and control
    /// messages.
    pub(super) fn owed(&self) -> &[u8] {
        self.owed_place().get(self.owed.from as usize..self.owed.to as usize).unwrap_or_default()
    }

    /// Returns whether there is something for TCP: octets or the end.
    pub(super) fn owes(&self) -> bool {
        self.owed.from < self.owed.to || (self.fin_due && !self.fin_sent)
    }

    /// Makes room for `count` more owed octets, reserving a block if they need one. `false`: there
    /// is no block, or they are more than a block holds.
    #[must_use]
    pub(super) fn prepare_to_owe(&mut self, count: usize) -> bool {
        let owed = self.owed().len();
        if owed + count <= self.owed_place().len() {
            return true;
        }
        let full = owed + count > BLOCK || block(self, Purpose::Owed).is_some();
        !full && self.change(|tx| tx.owe_in_block(owed))
    }

    /// Moves the `owed` octets that are owed to a block. `false`: there is no block.
    fn owe_in_block(&mut self, owed: usize) -> bool {
        if !reserve(self, Purpose::Owed) {
            return false;
        }
        let (little, from) = (self.little, self.owed.from as usize);
        let little = little.get(from..from + owed).unwrap_or_default();
        if let Some(block) = block_mut(self, Purpose::Owed) {
            block[..little.len()].copy_from_slice(little);
        }
        (self.owed.from, self.owed.to) = (0, owed as u32);
        true
    }

    /// Adds octets to those that are owed. `false`, and nothing has changed, when there is no room
    /// for all of them.
    #[must_use]
    pub(super) fn owe(&mut self, octets: &[u8]) -> bool {
        if !self.prepare_to_owe(octets.len()) {
            return false;
        }
        self.change(|tx| tx.append(octets));
        true
    }

    /// Makes a change that takes several stores, so that the next owner of the lock detects that a
    /// process died in between.
    pub(super) fn change<T>(&mut self, change: impl FnOnce(&mut Self) -> T) -> T {
        // A change may be a part of another.
        let outer = self.changing;
        set(&mut self.changing, true);
        let done = change(self);
        set(&mut self.changing, outer);
        done
    }

    /// Copies octets behind those that are owed, where there is room for them.
    fn append(&mut self, octets: &[u8]) {
        let (from, to) = (self.owed.from as usize, self.owed.to as usize);
        let place = self.owed_place_mut();
        let at = if place.len() - to < octets.len() {
            place.copy_within(from..to, 0);
            to - from
        } else {
            to
        };
        place[at..at + octets.len()].copy_from_slice(octets);
        (self.owed.from, self.owed.to) = ((at + from - to) as u32, (at + octets.len()) as u32);
    }

    /// Counts off owed octets that TCP has taken.
    pub(super) fn paid(&mut self, count: usize) {
        self.owed.from = self.owed.from.saturating_add(count as u32);
        if self.owed.from >= self.owed.to {
            (self.owed.from, self.owed.to, self.unaligned) = (0, 0, 0);
            self.spare_owed();
        }
    }

    /// Gives back the block that [`prepare_to_owe`](Self::prepare_to_owe) reserved, if nothing is
    /// owed.
    pub(super) fn spare_owed(&mut self) {
        if self.owed.from >= self.owed.to && !is_confined() {
            give_back(self, Purpose::Owed);
        }
    }

    pub(super) fn owed_place(&self) -> &[u8] {
        block(self, Purpose::Owed).unwrap_or(&self.little)
    }

    fn owed_place_mut(&mut self) -> &mut [u8] {
        if block(self, Purpose::Owed).is_some() {
            return block_mut(self, Purpose::Owed).unwrap_or_default();
        }
        &mut self.little
    }
}

impl Tx {
    /// Returns the octets that the program sent before the startup was over, and that are not
    /// framed yet.
    pub(super) fn early(&self) -> &[u8] {
        let octets = block(self, Purpose::Early).unwrap_or_default();
        octets.get(self.early.from as usize..self.early.to as usize).unwrap_or_default()
    }

    /// Returns room for more early octets, up to [`EARLY`] together: to be filled from its front,
    /// and noted by [`early_added`](Self::early_added). `None`: there is no block.
    pub(super) fn early_room(&mut self) -> Option<&mut [u8]> {
        if !reserve(self, Purpose::Early) {
            return None;
        }
        if self.early.from > 0 {
            self.change(Self::move_early)?;
        }
        let to = self.early.to as usize;
        block_mut(self, Purpose::Early)?.get_mut(to..EARLY)
    }

    /// Moves the early octets to the front of their block, if there is one.
    fn move_early(&mut self) -> Option<()> {
        let (from, to) = (self.early.from as usize, self.early.to as usize);
        let octets = block_mut(self, Purpose::Early)?.get_mut(..EARLY)?;
        octets.copy_within(from..to.max(from), 0);
        (self.early.from, self.early.to) = (0, to.saturating_sub(from) as u32);
        Some(())
    }

    /// Counts `count` octets with which the front of the room has been filled.
    pub(super) fn early_added(&mut self, count: usize) {
        self.early.to = (self.early.to as usize).saturating_add(count).min(EARLY) as u32;
        self.spare_early();
    }

    /// Counts off `count` early octets that have been framed and are taken by TCP or owed to it.
    pub(super) fn early_framed(&mut self, count: usize) {
        self.early.from = (self.early.from as usize).saturating_add(count).min(EARLY) as u32;
        self.spare_early();
    }

    /// Returns whether there is no room for another early octet.
    pub(super) fn early_is_full(&self) -> bool {
        self.early().len() >= EARLY
    }

    /// Drops the early octets, which will never be sent.
    pub(super) fn drop_early(&mut self) {
        self.early_framed(EARLY);
    }

    fn spare_early(&mut self) {
        if self.early.from >= self.early.to {
            (self.early.from, self.early.to) = (0, 0);
            give_back(self, Purpose::Early);
        }
    }
}

impl Rx {
    /// Returns the block of octets that were taken out of the kernel and are not read yet; empty if
    /// there is none.
    pub(super) fn kept(&self) -> &[u8] {
        block(self, Purpose::Kept).unwrap_or_default()
    }

    /// Returns the block for kept octets, reserved now if there is none. `None`: none can be
    /// reserved.
    pub(super) fn kept_mut(&mut self) -> Option<&mut [u8]> {
        #[cfg(test)]
        super::sys::tests::spend_a_block()?;
        if reserve(self, Purpose::Kept) { block_mut(self, Purpose::Kept) } else { None }
    }

    /// Gives the block back if nothing is kept any more.
    pub(super) fn spare_kept(&mut self) {
        let is_used = self.absorbed > 0 || (self.left_is_kept && self.left > 0);
        if !is_used && !is_confined() {
            give_back(self, Purpose::Kept);
        }
    }
}

/// Longest Send whose FPDU, and some control messages behind it, can be owed without a block.
pub(super) const LITTLE_SEND: usize = LITTLE - 192;

/// Octets for which [`Tx::prepare_to_owe`] reserves a block.
pub(super) const MOST_OWED: usize = BLOCK - LITTLE;

/// Most octets that may be sent before the startup is over.
pub(super) const EARLY: usize = 16 * 1024;

// A block has room for the longest FPDU (65535 octets of ULPDU, length, pad, CRC and its markers),
// for the one behind it that ends the message, and for control messages.
const _: () = assert!(BLOCK >= 72 * 1024 && LITTLE < BLOCK && EARLY < BLOCK);

#[cfg(test)]
mod tests {
    use super::super::sys::SharedState;
    use super::super::{Calls, Options, Role, Stream, Why};
    use super::{BLOCK, EARLY, Tx};

    fn state() -> SharedState {
        SharedState::anonymous(&Options::new(Role::Initiator)).unwrap()
    }

    #[test]
    fn owed_octets_go_out_in_order_and_have_a_limit() {
        let state = state();
        let mut tx = state.tx.lock().unwrap();
        assert!(tx.owe(&[1; 60_000]));
        tx.paid(50_000);
        assert!(tx.owe(&[2; 60_000]), "room that was paid is used again");
        assert!(!tx.owe(&[3; 10_000]));
        assert_eq!(tx.owed().len(), 70_000);
        assert!(tx.owed()[..10_000].iter().all(|octet| *octet == 1));
        assert!(tx.owed()[10_000..].iter().all(|octet| *octet == 2));
        tx.paid(70_000);
        assert!(!tx.owes());
    }

    #[test]
    fn kept_octets_must_lie_in_their_block() {
        let state = state();
        let is_sound = |left: usize, kept_at: usize, absorbed: usize, left_is_kept: bool| {
            let mut rx = state.rx.lock().unwrap();
            (rx.left, rx.kept.at) = (left as u32, kept_at as u32);
            (rx.absorbed, rx.left_is_kept) = (absorbed as u32, left_is_kept);
            rx.is_sound()
        };
        assert!(is_sound(10, 0, 0, false) && is_sound(0, 9, 0, true));
        assert!(!is_sound(10, 0, 0, true) && !is_sound(0, 0, 10, false), "nothing is kept");
        assert!(state.rx.lock().unwrap().kept_mut().is_some());
        assert!(is_sound(10, BLOCK - 10, 0, true) && is_sound(0, 0, BLOCK, false));
        assert!(!is_sound(10, BLOCK - 9, 0, true) && !is_sound(0, 0, BLOCK + 1, false));
        assert!(
            !is_sound(u32::MAX as usize, u32::MAX as usize, 0, true) && !is_sound(BLOCK + 1, 0, 0, false)
        );
        let calls = Calls::libc();
        state.set_framed();
        let read = Stream::new(-1, &state, &calls).unwrap().available();
        assert_eq!((read, state.ended().unwrap().why), (Ok(0), Why::Damaged));
    }

    #[test]
    fn owed_octets_move_to_a_block_when_they_grow() {
        let state = state();
        let mut tx = state.tx.lock().unwrap();
        assert!(tx.owe(&[1; 900]));
        tx.paid(100);
        assert!(tx.owe(&[2; 2000]));
        assert_eq!(tx.owed(), [[1; 800].as_slice(), &[2; 2000]].concat());
        tx.paid(2799);
        assert_eq!(tx.owed(), [2]);
        tx.paid(1);
        assert!(tx.owe(&[3; 10]));
        assert_eq!(tx.owed(), [3; 10]);
    }

    #[test]
    fn early_octets_are_kept_up_to_a_limit_and_leave_from_the_front() {
        let state = state();
        let mut tx = state.tx.lock().unwrap();
        let keep = |tx: &mut Tx, octets: &[u8]| {
            let room = tx.early_room().unwrap();
            let count = octets.len().min(room.len());
            room[..count].copy_from_slice(&octets[..count]);
            tx.early_added(count);
            count
        };
        assert_eq!(tx.early(), []);
        assert_eq!(keep(&mut tx, &[1; 10_000]), 10_000);
        assert_eq!(keep(&mut tx, &[2; 10_000]), EARLY - 10_000);
        assert_eq!((keep(&mut tx, &[3; 1]), tx.early_is_full()), (0, true));
        tx.early_framed(9_999);
        assert_eq!(keep(&mut tx, &[3; 1]), 1);
        assert_eq!(tx.early().len(), EARLY - 9_998);
        assert_eq!(tx.early()[..2], [1, 2]);
        assert_eq!(tx.early().last(), Some(&3));
        tx.early_framed(EARLY);
        assert_eq!(tx.early(), []);
    }
}
