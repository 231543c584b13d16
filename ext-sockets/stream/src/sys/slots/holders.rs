//! The processes that hold a socket.
//!
//! The first few holders stand beside the slot, some more in the state, and as many as necessary in
//! a block. A holder is gone when its process is, even if it has not said so.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::super::now;
use super::blocks::{self, Purpose};
use super::home::Slot;
use super::layout::OF_SLOTS;
use super::pool::{self, Pool};
use super::process::{Known, Process};
use super::{claim, file};
use crate::{SameErrno, State};

impl State {
    /// Returns whether the state lies in a file.
    #[must_use]
    pub fn is_in_file(&self) -> bool {
        self.slot().slab.home().pool.is_some()
    }

    pub(super) fn slot(&self) -> Slot {
        // SAFETY: every state belongs to a `SharedState`.
        unsafe { Slot::of(std::ptr::from_ref(self).addr()) }
    }

    /// Returns the `SO_COOKIE` of the socket that this is the state of; 0: other processes cannot
    /// find it.
    #[must_use]
    pub fn cookie(&self) -> u64 {
        self.slot().entry().cookie.load(Ordering::Relaxed)
    }

    fn holders(&self) -> impl Iterator<Item = &AtomicU64> {
        let many = blocks::holders(self.slot(), &self.holders.more_in).unwrap_or_default();
        self.slot().entry().holders.iter().chain(&self.holders.more).chain(many)
    }

    /// Notes that this process holds the socket.
    pub fn join(&self, process: Process) {
        match () {
            () if self.has_beside(process) => {}
            () if self.has(process) => FAR.store(true, Ordering::Relaxed),
            () => self.enter(process, &mut Known::default()),
        }
        // Behind the entry: see `expect_holder`.
        self.holder_came();
    }

    fn has(&self, process: Process) -> bool {
        self.holders().any(|holder| holder.load(Ordering::Relaxed) == process.word())
    }

    fn has_beside(&self, process: Process) -> bool {
        self.slot().entry().holders.iter().any(|holder| holder.load(Ordering::Relaxed) == process.word())
    }

    /// Notes that process `parent` is about to `fork`: the child holds the socket before it can say
    /// so, and its parent may close its own descriptor first. A child that is killed before it has
    /// said anything is expected as long as `parent` lives. Places of holders that are gone, which
    /// `known` finds out, are used again.
    pub fn expect_child_of(&self, parent: Process, known: &mut Known) {
        self.enter(parent.child(), known);
    }

    /// Notes that the child `process` of `parent` runs. It takes the place of an expected one:
    /// another thread may be about to fork, too.
    pub fn join_child_of(&self, parent: Process, process: Process) {
        if !self.holders().any(|holder| expected_is(holder, parent, process.word())) {
            self.join(process);
        }
    }

    /// Notes that the `fork` of `parent` has failed.
    pub fn forget_child_of(&self, parent: Process) {
        let _ = self.holders().any(|holder| expected_is(holder, parent, 0));
    }

    fn enter(&self, process: Process, known: &mut Known) {
        let near = self.slot().entry().holders.iter();
        if take_place(near.clone(), process) {
            return;
        }
        let _errno = SameErrno::here();
        near.clone().for_each(|holder| forget_dead(holder, known));
        if take_place(near, process) {
            return;
        }
        FAR.store(true, Ordering::Relaxed);
        if take_place(self.holders(), process) {
            return;
        }
        self.holders().for_each(|holder| forget_dead(holder, known));
        if take_place(self.holders(), process) {
            return;
        }
        blocks::reserve_for_holders(self.slot(), &self.holders.more_in);
        if !take_place(self.holders(), process) {
            // Without a block the holder is taken for alive as long as any process has the file
            // mapped.
            self.holders.uncounted.store(true, Ordering::SeqCst);
        }
    }

    /// Notes that this process does not hold the socket any more.
    pub fn leave(&self, process: Process) {
        self.holders.left.store(now(), Ordering::SeqCst);
        for holder in self.holders() {
            if holder.load(Ordering::Relaxed) == process.word() {
                let _ = holder.compare_exchange(process.word(), 0, Ordering::SeqCst, Ordering::Relaxed);
            }
        }
    }

    /// Returns whether `is_alive` is true of one of the holders.
    pub fn is_held(&self, mut is_alive: impl FnMut(Process) -> bool) -> bool {
        let mut holders = self.holders().filter_map(|holder| Process::of_word(holder.load(Ordering::SeqCst)));
        self.holders.uncounted.load(Ordering::SeqCst) || holders.any(&mut is_alive)
    }

    /// Returns whether another process than the calling one holds it.
    #[must_use]
    pub fn is_held_by_others(&self) -> bool {
        let _errno = SameErrno::here();
        let me = Process::me();
        self.is_held(|holder| holder != me && holder.is_alive())
    }
}

/// Notes that `parent` is about to `fork`: its child is expected to hold all that `parent` holds in
/// files. Reads only what is packed beside the slots, as a process may have thousands.
pub fn expect_children(parent: Process, known: &mut Known) {
    each_with(parent, |state, _| state.expect_child_of(parent, known));
}

/// Notes that the child `process` of `parent` runs.
pub fn join_children(parent: Process, process: Process) {
    each_with(parent.child(), |state, near| {
        if !near.is_some_and(|holder| expected_is(holder, parent, process.word())) {
            state.join_child_of(parent, process);
        }
    });
}

/// Notes that the `fork` of `parent` has failed: one child less is expected.
pub fn forget_children(parent: Process) {
    each_with(parent.child(), |state, _| state.forget_child_of(parent));
}

/// Puts `new` in the place of an expected child of `parent`, if it is here.
fn expected_is(holder: &AtomicU64, parent: Process, new: u64) -> bool {
    let expected = parent.child().word();
    holder.load(Ordering::Relaxed) == expected
        && holder.compare_exchange(expected, new, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}

/// Ends the calling process's hold on sockets in this user's file, when it begins to run a program,
/// but for those that it `has`, by their cookies: `exec` has closed the others.
pub fn leave_closed(folder: &Path, user: u32, has: impl Fn(u64) -> bool) {
    let _errno = SameErrno::here();
    let path = file::path(folder, user);
    if !path.exists() {
        return;
    }
    let me = Process::me();
    // Most processes that begin have held nothing, and need not map the file.
    if pool::mapped().next().is_some() || file::is_held_by(&path, user, me) {
        Pool::of(folder, user, false);
        each_with(me, |state, _| {
            if !has(state.cookie()) {
                claim::leave_slot(state, state.slot());
            }
        });
    }
}

/// Passes the states in files that this process holds to `look`, each with the process's place if
/// that is beside the slot.
fn each_with(holder: Process, mut look: impl FnMut(&State, Option<&AtomicU64>)) {
    for (_, pool) in pool::mapped() {
        for (_, slab) in pool.slabs(OF_SLOTS) {
            for (index, entry) in slab.header().entries.iter().enumerate() {
                let mut near = entry.holders.iter();
                let found = near.find(|place| place.load(Ordering::Relaxed) == holder.word());
                let is_full = || entry.holders.iter().all(|place| place.load(Ordering::Relaxed) != 0);
                let is_taken = || entry.cookie.load(Ordering::Relaxed) != 0;
                let may_be_far = || is_full() || FAR.load(Ordering::Relaxed) && is_taken();
                if found.is_some() || (may_be_far() && claim::state(slab, index).has(holder)) {
                    look(claim::state(slab, index), found);
                }
            }
        }
    }
}

/// Set when this process, or one that it was forked from, holds a socket, or expects a child to,
/// with a place away from the slot: all places beside it were taken, and may be free again now.
static FAR: AtomicBool = AtomicBool::new(false);

fn take_place<'a>(mut holders: impl Iterator<Item = &'a AtomicU64>, process: Process) -> bool {
    holders.any(|holder| {
        holder.load(Ordering::Relaxed) == 0
            && holder.compare_exchange(0, process.word(), Ordering::SeqCst, Ordering::Relaxed).is_ok()
    })
}

/// Empties the place of a process that is gone and has not said so.
fn forget_dead(holder: &AtomicU64, known: &mut Known) {
    let word = holder.load(Ordering::Relaxed);
    if Process::of_word(word).is_some_and(|process| !known.is_alive(process)) {
        let _ = holder.compare_exchange(word, 0, Ordering::SeqCst, Ordering::Relaxed);
    }
}

impl Purpose {
    /// Number of holders that fit a block.
    pub(super) const HOLDERS_LEN: usize = super::layout::BLOCK / size_of::<AtomicU64>();
}

#[cfg(test)]
mod tests {
    use super::super::super::SharedState;
    use super::*;
    use crate::{Options, Role};

    fn state() -> SharedState {
        SharedState::anonymous(&Options::new(Role::Responder)).unwrap()
    }

    fn process(number: u64) -> Process {
        Process::of_word(number).unwrap()
    }

    #[test]
    fn a_child_that_is_expected_holds_the_socket_when_its_parent_has_closed_it() {
        let state = state();
        let (parent, child) = (process(100), process(101));
        let is_held = |alive: &[Process]| {
            state.is_held(|holder| alive.iter().any(|one| [*one, one.child()].contains(&holder)))
        };
        state.leave(Process::me());
        state.join(parent);
        state.expect_child_of(parent, &mut Known::default());
        state.leave(parent);
        assert!(is_held(&[parent, child]), "the child has not said yet that it is there");
        assert!(!is_held(&[]), "a parent that is gone has no children to come");
        state.join_child_of(parent, child);
        assert!(is_held(&[child]) && !is_held(&[parent]));
        state.leave(child);
        assert!(!is_held(&[parent, child]));
    }

    #[test]
    fn two_threads_may_fork_at_once() {
        let state = state();
        state.leave(Process::me());
        state.expect_child_of(process(100), &mut Known::default());
        state.expect_child_of(process(100), &mut Known::default());
        state.join_child_of(process(100), process(101));
        state.leave(process(101));
        assert!(state.is_held(|_| true), "the other child is still expected");
        state.join_child_of(process(100), process(102));
        state.leave(process(102));
        assert!(!state.is_held(|_| true));
    }

    #[test]
    fn a_fork_that_fails_takes_one_child_back() {
        let state = state();
        state.leave(Process::me());
        state.expect_child_of(process(100), &mut Known::default());
        state.expect_child_of(process(100), &mut Known::default());
        state.forget_child_of(process(100));
        assert!(state.is_held(|_| true), "another thread's fork");
        state.forget_child_of(process(100));
        assert!(!state.is_held(|_| true));
    }

    #[test]
    fn any_number_of_processes_hold_a_socket_and_leave_it() {
        let state = state();
        let mut known = Known::default();
        for number in 1..=300 {
            state.expect_child_of(alive(number, &mut known), &mut known);
        }
        for number in 1..=300 {
            let child = process(number).child();
            assert!(state.is_held(|holder| holder == child));
            state.leave(child);
            assert!(!state.is_held(|holder| holder == child));
        }
        assert!(!state.is_held(|_| true));
    }

    #[test]
    fn the_places_of_dead_holders_are_used_again() {
        let state = state();
        let mut known = Known::default();
        let stays = alive(1, &mut known).child();
        state.enter(stays, &mut known);
        for number in 2..=300 {
            known.note(process(number).child(), false);
            state.enter(process(number).child(), &mut known);
        }
        assert!(state.is_held(|holder| holder == stays));
        assert_eq!(state.holders.more_in.load(Ordering::Relaxed), 0, "no block was needed");
    }

    /// Returns a state in a file that processes 1 to 5 hold, the last of them with a place away
    /// from its slot.
    fn held_by_five(folder: &Path, known: &mut Known) -> SharedState {
        // SAFETY: takes nothing and cannot fail.
        let user = unsafe { libc::geteuid() };
        let slots = claim::Slots::open(folder, user).unwrap();
        let state = slots.create(1, &Options::new(Role::Responder)).unwrap();
        state.leave(Process::me());
        for number in 1..=5 {
            known.note(process(number), true);
            state.enter(process(number), known);
        }
        state
    }

    #[test]
    fn the_child_of_a_holder_far_from_the_slot_is_expected_and_joins() {
        let folder = tempfile::tempdir().unwrap();
        let mut known = Known::default();
        let state = held_by_five(folder.path(), &mut known);
        state.leave(process(1));
        expect_children(process(5), &mut known);
        assert!(state.is_held(|holder| holder == process(5).child()));
        join_children(process(5), process(6));
        assert!(state.is_held(|holder| holder == process(6)));
        // The child was expected when there was no place beside the slot, and joins when there is
        // one.
        state.enter(process(7), &mut known);
        state.expect_child_of(process(2), &mut known);
        state.leave(process(3));
        join_children(process(2), process(8));
        assert!(state.is_held(|holder| holder == process(8)));
    }

    fn alive(number: u64, known: &mut Known) -> Process {
        known.note(process(number).child(), true);
        process(number)
    }
}
