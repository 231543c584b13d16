//! The entries of all epoll sets, and the keys that lead to them.

use std::ffi::c_int;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use super::interest::{EDGES, ONESHOT};
use rddp_real::Wanted;

/// The data that the kernel has of an entry: a tag that no other data has, a generation, and a
/// place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(pub(super) u64);

const PLACE_BITS: u32 = 18;
const GENERATION_BITS: u32 = 32 - PLACE_BITS;
const MANY: usize = 1 << PLACE_BITS;

/// The pool of entries. Memory of zeros is an empty pool, but for the tag.
#[repr(C)]
pub(crate) struct Pool {
    tag: AtomicU32,
    /// The number of entries that were ever used.
    used: AtomicU32,
    /// The first free one among the used entries, counted from 1; in the upper half, a count of the
    /// changes.
    free: AtomicU64,
    entries: [Entry; MANY],
}

/// A descriptor of ours in an epoll set.
#[repr(C)]
pub(super) struct Entry {
    /// The generation of the entry; odd while it is in use.
    generation: AtomicU32,
    next_free: AtomicU32,
    data: AtomicU64,
    events: AtomicU32,
    /// The events that the kernel was last asked to watch for.
    pub(super) asked: AtomicU32,
    /// The number that the socket was added under.
    fd: AtomicI32,
    /// `EPOLLONESHOT` has fired, and the program has not armed the entry again.
    disarmed: AtomicBool,
    /// Another process, or another number, may keep the entry in its set when the last known number
    /// is closed.
    shared: AtomicBool,
    /// The cookie of the socket; 0 for any other file.
    cookie: AtomicU64,
}

impl Pool {
    /// Sets the tag of a new pool, before any other thread has it.
    pub(crate) fn begin(&self) {
        // Programs use numbers or addresses as data, and neither has the highest bit set.
        let tag = RandomState::new().build_hasher().finish() as u32 | 1 << 31;
        self.tag.store(tag, Ordering::Release);
    }

    /// Returns whether `data` looks like a key.
    pub(super) fn is_key(&self, data: u64) -> bool {
        (data >> 32) as u32 == self.tag.load(Ordering::Relaxed)
    }

    /// Returns the entry of a key, while it is still in use for that key.
    pub(super) fn entry(&self, key: Key) -> Option<&Entry> {
        let entry = self.entries.get(place(key))?;
        (self.key(place(key)) == key && entry.is_used()).then_some(entry)
    }

    /// Takes an entry into use; `None` if all are in use.
    pub(super) fn claim(&self, fd: c_int, cookie: u64, wanted: Wanted) -> Option<(&Entry, Key)> {
        let place = self.pop().or_else(|| self.unused())?;
        let entry = &self.entries[place];
        entry.want(wanted);
        entry.fd.store(fd, Ordering::Relaxed);
        entry.cookie.store(cookie, Ordering::Relaxed);
        entry.shared.store(false, Ordering::Relaxed);
        entry.generation.fetch_add(1, Ordering::Release);
        Some((entry, self.key(place)))
    }

    /// Frees an entry that the kernel does not have any more.
    pub(super) fn free(&self, key: Key) {
        let Some(entry) = self.entry(key) else { return };
        let used = entry.generation.load(Ordering::Relaxed);
        // Another process may free the entry at the same time.
        let freed = entry.generation.compare_exchange(used, used + 1, Ordering::AcqRel, Ordering::Relaxed);
        if used % 2 == 1 && freed.is_ok() {
            self.push(place(key));
        }
    }

    fn key(&self, place: usize) -> Key {
        let generation = self.entries[place].generation.load(Ordering::Acquire) % (1 << GENERATION_BITS);
        let tag = u64::from(self.tag.load(Ordering::Relaxed));
        Key(tag << 32 | u64::from(generation) << PLACE_BITS | place as u64)
    }

    fn unused(&self) -> Option<usize> {
        let more = |used| (used < MANY as u32).then(|| used + 1);
        let used = self.used.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
        used.ok().map(|used| used as usize)
    }

    fn pop(&self) -> Option<usize> {
        let rest = |free: u64| {
            let first = (free as u32).checked_sub(1)?;
            let next = self.entries[first as usize].next_free.load(Ordering::Relaxed);
            Some(changed(free, next))
        };
        let free = self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, rest).ok()?;
        Some(free as u32 as usize - 1)
    }

    fn push(&self, place: usize) {
        let more = |free: u64| {
            self.entries[place].next_free.store(free as u32, Ordering::Relaxed);
            Some(changed(free, place as u32 + 1))
        };
        let _ = self.free.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
    }
}

impl Entry {
    fn is_used(&self) -> bool {
        self.generation.load(Ordering::Acquire) % 2 == 1
    }

    /// Returns the events and the data that the program asked for last.
    pub(super) fn wanted(&self) -> Wanted {
        Wanted { events: self.events.load(Ordering::Acquire), data: self.data.load(Ordering::Acquire) }
    }

    /// Sets the events and the data that the program asks for, and arms the entry.
    pub(super) fn want(&self, wanted: Wanted) {
        self.data.store(wanted.data, Ordering::Release);
        self.events.store(wanted.events, Ordering::Release);
        self.disarmed.store(false, Ordering::Release);
    }

    pub(super) fn fd(&self) -> c_int {
        self.fd.load(Ordering::Relaxed)
    }

    pub(super) fn cookie(&self) -> u64 {
        self.cookie.load(Ordering::Relaxed)
    }

    pub(super) fn is_disarmed(&self) -> bool {
        self.disarmed.load(Ordering::Acquire)
    }

    pub(super) fn set_disarmed(&self, disarmed: bool) {
        self.disarmed.store(disarmed, Ordering::Release);
    }

    /// Disarms the entry. Returns whether it was armed.
    pub(super) fn disarms(&self) -> bool {
        !self.disarmed.swap(true, Ordering::AcqRel)
    }

    /// Returns whether the kernel was asked for edges, and the program has asked otherwise.
    pub(super) fn waits_by_edges(&self) -> bool {
        let asked = self.asked.load(Ordering::Acquire);
        asked & EDGES != 0 && (asked ^ self.wanted().events) & (EDGES | ONESHOT) != 0
    }

    pub(super) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    pub(super) fn set_shared(&self) {
        self.shared.store(true, Ordering::Relaxed);
    }
}

fn place(key: Key) -> usize {
    key.0 as usize % MANY
}

/// Returns the head of the free list with another first entry.
fn changed(free: u64, first: u32) -> u64 {
    (free >> 32).wrapping_add(1) << 32 | u64::from(first)
}
