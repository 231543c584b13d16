//! Slots: taken for a socket, found by its cookie, free again when no process holds it.
//!
//! A process holds a slot until its last call on the socket has ended.

use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::{SharedState, now};
use super::home::{Slab, Slot};
use super::layout::{Entry, OF_SLOTS, SLOTS, slot_at};
use super::pool::{self, Pool};
use super::process::{Known, Process};
use super::{file, left, sound};
use crate::{Options, SameErrno, State};

/// Time in nanoseconds for which a slot stays after its last holder has left. A child that `vfork`
/// or `posix_spawn` made holds the socket from its `exec` on, and cannot say so before the new
/// program has begun.
pub(super) const GRACE: u64 = 30_000_000_000;

/// Attempts to get a part of a new slab, which other processes see as soon as this one does.
pub(super) const A_FEW: usize = 3;

/// The word of a slot in its [`Entry`]: how often it was taken, and by which process; no process:
/// it is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use(u64);

impl Use {
    pub(super) fn of(entry: &Entry) -> Self {
        Self(entry.used.load(Ordering::SeqCst))
    }

    pub(super) const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) const fn is_free(self) -> bool {
        self.0 as u32 == 0
    }

    /// Returns whether a process is freeing the slot.
    const fn is_ending(self) -> bool {
        self.0 as u32 & ENDING != 0
    }

    const fn pid(self) -> u32 {
        self.0 as u32 & !ENDING
    }

    const fn next(self, pid: u32) -> Self {
        Self((self.generation().wrapping_add(1) as u64) << 32 | pid as u64)
    }

    const fn ended_by(self, pid: u32) -> Self {
        Self(self.0 & !(u32::MAX as u64) | (pid | ENDING) as u64)
    }

    const fn free(self) -> Self {
        Self(self.0 & !(u32::MAX as u64))
    }

    /// Replaces the entry's word, if it is this one.
    fn becomes(self, entry: &Entry, other: Self) -> bool {
        entry.used.compare_exchange(self.0, other.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

/// Set beside the ID of the process that frees the slot. No ID on Linux is as large.
const ENDING: u32 = 1 << 31;

/// Result of a search for a socket's state.
#[derive(Debug)]
pub enum Found {
    /// There is no state.
    Nothing,
    /// The state, which the calling process holds now.
    State(SharedState),
    /// A state that this process cannot use: another build's, or a broken one.
    Useless,
}

/// A user's file of states, mapped.
#[derive(Clone, Copy)]
pub struct Slots {
    pool: &'static Pool,
}

impl std::fmt::Debug for Slots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slots")
    }
}

impl Slots {
    /// Opens the file of this user in `folder`, making it if there is none. `None`: there is no
    /// usable file.
    #[must_use]
    pub fn open(folder: &Path, user: u32) -> Option<Self> {
        let _errno = SameErrno::here();
        let pool = Pool::of(folder, user, true)?;
        Some(Self { pool })
    }

    /// Makes a state for the socket of this cookie, held by the calling process. `None`: there is
    /// no room.
    #[must_use]
    pub fn create(self, cookie: u64, options: &Options) -> Option<SharedState> {
        let _errno = SameErrno::here();
        options.check().ok()?;
        let (slab, index) = self.claim()?;
        let entry = &slab.header().entries[index];
        entry.holders.iter().skip(1).for_each(|holder| holder.store(0, Ordering::Relaxed));
        entry.holders[0].store(Process::me().word(), Ordering::Relaxed);
        let at: NonNull<State> = slab.place(slot_at(index)).cast();
        // SAFETY: the slot is this process's alone, and nothing refers to its old state: a slot is
        // free when all its holders have dropped their states, or are gone.
        let made = unsafe {
            clear(at);
            SharedState::begin(at, options)
        };
        if made.is_ok() {
            entry.cookie.store(cookie, Ordering::SeqCst);
        } else {
            free(entry, Use::of(entry));
        }
        made.ok()
    }

    fn claim(self) -> Option<(Slab, usize)> {
        let from = self.pool.free_slot.load(Ordering::Relaxed);
        self.take_free(from)
            .or_else(|| self.take_free(0))
            .or_else(|| (self.pool.sweep_is_due() && self.sweep() > 0).then(|| self.take_free(0)).flatten())
            .or_else(|| (0..A_FEW).find_map(|_| self.take_new()))
    }

    /// Takes the first slot of a new slab, unless another process makes that one of blocks.
    fn take_new(self) -> Option<(Slab, usize)> {
        let before = self.pool.slots();
        if self.pool.grow(OF_SLOTS) { self.take_free(before) } else { None }
    }

    /// Takes the first free slot from number `from` on.
    fn take_free(self, from: usize) -> Option<(Slab, usize)> {
        let pid = Process::me().pid();
        for slab_number in from / SLOTS..self.pool.count() {
            let Some((slab, _)) = self.pool.slot(slab_number * SLOTS) else { continue };
            let entries = slab.header().entries.iter().enumerate();
            for (index, entry) in entries.skip(from.saturating_sub(slab_number * SLOTS)) {
                let seen = Use::of(entry);
                if seen.is_free() && seen.becomes(entry, seen.next(pid)) {
                    self.pool.free_slot.store(slab_number * SLOTS + index + 1, Ordering::Relaxed);
                    return Some((slab, index));
                }
            }
        }
        None
    }

    /// Searches for the state of the socket of this cookie in the files of this user.
    #[must_use]
    pub fn find(folder: &Path, user: u32, cookie: u64) -> Found {
        let _errno = SameErrno::here();
        match Pool::of(folder, user, false).map_or(Found::Nothing, |pool| Self { pool }.find_here(cookie)) {
            Found::Nothing if file::knows(folder, user, cookie) => Found::Useless,
            found => found,
        }
    }

    fn find_here(self, cookie: u64) -> Found {
        for (_, slab) in self.pool.slabs(OF_SLOTS) {
            let is_it = |entry: &Entry| entry.cookie.load(Ordering::SeqCst) == cookie;
            if let Some(index) = slab.header().entries.iter().position(is_it) {
                return hold(slab, index, cookie);
            }
        }
        Found::Nothing
    }

    /// Frees the slots whose holders are gone, and returns their number.
    pub fn sweep(self) -> usize {
        let _errno = SameErrno::here();
        let mut known = Known::default();
        let mut freed = 0;
        for (number, slab) in self.pool.slabs(OF_SLOTS) {
            for index in 0..SLOTS {
                if is_over(slab, index, &mut known) && free_unheld(slab, index, &mut known) {
                    self.pool.free_slot.fetch_min(number * SLOTS + index, Ordering::Relaxed);
                    freed += 1;
                }
            }
        }
        freed
    }

    #[cfg(test)]
    pub(super) fn pool(self) -> &'static Pool {
        self.pool
    }

    /// Returns how many slots are taken.
    #[must_use]
    pub fn taken(self) -> usize {
        let entries = self.pool.slabs(OF_SLOTS).flat_map(|(_, slab)| &slab.header().entries);
        entries.filter(|entry| !Use::of(entry).is_free()).count()
    }
}

/// Frees, at the exit of the process, the slots that it has left, and removes files that are no
/// longer in use.
pub fn leave_all() {
    let _errno = SameErrno::here();
    left::free_all();
    pool::mapped().for_each(|(_, pool)| pool.leave());
}

/// Removes files of this user that are no longer in use; for root those of all users.
pub fn remove_unused(folder: &Path, user: u32) {
    let _errno = SameErrno::here();
    file::remove_all_unused(folder, user);
}

/// Maps all slabs: this process is about to give up the system calls that map memory.
pub fn map_all() {
    pool::mapped().for_each(|(_, pool)| pool.map_all());
}

/// Joins the holders of a slot that was this socket's a moment ago, if it still is.
fn hold(slab: Slab, index: usize, cookie: u64) -> Found {
    let entry = &slab.header().entries[index];
    let at: NonNull<State> = slab.place(slot_at(index)).cast();
    for _ in 0..TRIES {
        let seen = Use::of(entry);
        if seen.is_ending() {
            std::thread::yield_now();
            continue;
        }
        if seen.is_free() || !sound::is_sound(at) {
            return Found::Useless;
        }
        // SAFETY: the slot is allocated, stays mapped, and was checked to hold a state.
        let state = unsafe { at.as_ref() };
        state.join(Process::me());
        // A process that frees a slot says so first, and then looks for holders.
        if Use::of(entry) == seen && entry.cookie.load(Ordering::SeqCst) == cookie {
            return Found::State(SharedState::of_slot(at));
        }
        state.leave(Process::me());
    }
    Found::Useless
}

const TRIES: u32 = 1000;

/// Returns whether no process holds the slot, and none has left it a short time ago.
fn is_over(slab: Slab, index: usize, known: &mut Known) -> bool {
    let entry = &slab.header().entries[index];
    let seen = Use::of(entry);
    if seen.is_free() || seen.is_ending() && has_number(known, seen.pid()) {
        return false;
    }
    if entry.cookie.load(Ordering::SeqCst) == 0 {
        return !has_number(known, seen.pid());
    }
    let state = state(slab, index);
    let since = state.holders.left.load(Ordering::SeqCst);
    (since == 0 || now().saturating_sub(since) > GRACE) && !state.is_held(|holder| known.is_alive(holder))
}

/// Zeroes a slot, word by word: a thread that has just left the old state may still look whether
/// others hold it.
///
/// # Safety
/// The slot is the calling process's alone, but for such looks, which are atomic.
unsafe fn clear(at: NonNull<State>) {
    const { assert!(size_of::<State>().is_multiple_of(size_of::<AtomicU64>())) };
    let words = size_of::<State>() / size_of::<AtomicU64>();
    // SAFETY: other threads access the slot by atomics alone; it begins at a multiple of more than
    // a word, and any octets are words.
    let words = unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>().as_ptr(), words) };
    words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
}

fn has_number(known: &mut Known, pid: u32) -> bool {
    known.is_alive(Process::numbered(pid))
}

pub(super) fn state<'a>(slab: Slab, index: usize) -> &'a State {
    let at: NonNull<State> = slab.place(slot_at(index)).cast();
    // SAFETY: the slot is allocated; only atomics in it are read.
    unsafe { at.as_ref() }
}

/// Frees a slot if no process holds it.
fn free_unheld(slab: Slab, index: usize, known: &mut Known) -> bool {
    let entry = &slab.header().entries[index];
    let seen = Use::of(entry);
    if seen.is_free() || seen.is_ending() && has_number(known, seen.pid()) {
        return false;
    }
    let ending = seen.ended_by(Process::me().pid());
    if !seen.becomes(entry, ending) {
        return false;
    }
    // From here on no process can become a holder; those that became one before are seen.
    let is_held = if entry.cookie.load(Ordering::SeqCst) == 0 {
        !seen.is_ending() && has_number(known, seen.pid())
    } else {
        state(slab, index).is_held(|holder| known.is_alive(holder))
    };
    if is_held {
        ending.becomes(entry, if seen.is_ending() { ending.taken() } else { seen });
        return false;
    }
    free(entry, ending)
}

impl Use {
    /// Takes back the freeing.
    const fn taken(self) -> Self {
        Self(self.0 & !(ENDING as u64))
    }
}

fn free(entry: &Entry, seen: Use) -> bool {
    entry.cookie.store(0, Ordering::SeqCst);
    entry.holders.iter().for_each(|holder| holder.store(0, Ordering::Relaxed));
    seen.becomes(entry, seen.free())
}

/// Ends the calling process's hold on a state, to which it has no reference any more.
pub(super) fn leave_slot(state: &State, slot: Slot) {
    if let Some(pool) = slot.slab.home().pool {
        leave(state, slot.slab, pool, slot.number());
    }
}

/// Has the calling process leave a state that lies in a file.
pub(super) fn leave(state: &State, slab: Slab, pool: &'static Pool, number: usize) {
    let _errno = SameErrno::here();
    state.leave(Process::me());
    if !state.is_held(Process::is_alive) {
        let generation = Use::of(&slab.header().entries[number % SLOTS]).generation();
        left::note(pool, number, generation);
    }
}

/// Frees a slot that this process was the last to leave, if no other has come since, and, with
/// `only_if_late`, if that is long ago.
pub(super) fn free_left(pool: &'static Pool, number: usize, generation: u32, only_if_late: bool) -> bool {
    let Some((slab, index)) = pool.slot(number) else { return true };
    let seen = Use::of(&slab.header().entries[index]);
    if seen.is_free() || seen.generation() != generation {
        return true;
    }
    let since = state(slab, index).holders.left.load(Ordering::SeqCst);
    if only_if_late && now().saturating_sub(since) <= GRACE {
        return false;
    }
    if free_unheld(slab, index, &mut Known::default()) {
        pool.free_slot.store(number, Ordering::Relaxed);
    }
    true
}
