//! The entries of all epoll sets, and the keys that lead to them.

use std::ffi::c_int;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use rddp_real::Wanted;

/// What the kernel has as data of an entry: a tag that no other data has, a generation, a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(pub(super) u64);

const PLACE_BITS: u32 = 18;
const GENERATION_BITS: u32 = 32 - PLACE_BITS;
const MANY: usize = 1 << PLACE_BITS;

/// Zeros are an empty one, but for the tag.
#[repr(C)]
pub(crate) struct Pool {
    tag: AtomicU32,
    /// How many were ever used.
    used: AtomicU32,
    /// The first free one among those, counted from 1, and in the upper half how often that has changed.
    free: AtomicU64,
    entries: [Entry; MANY],
}

/// A descriptor of ours in an epoll set.
#[repr(C)]
pub(super) struct Entry {
    /// Odd while it is in use.
    generation: AtomicU32,
    next_free: AtomicU32,
    data: AtomicU64,
    events: AtomicU32,
    /// What the kernel was last asked to watch for.
    pub(super) asked: AtomicU32,
    /// The number that it was added under.
    fd: AtomicI32,
    /// `EPOLLONESHOT` has fired, and the program has not armed it again.
    disarmed: AtomicBool,
    /// Another process, or another number, may keep it in its set when the last number that is known of is closed.
    shared: AtomicBool,
    /// Of the socket; 0 for what is none.
    cookie: AtomicU64,
}

impl Pool {
    /// Before anybody else knows of it.
    pub(crate) fn begin(&self) {
        // Neither a number nor an address has the highest bit set.
        let tag = RandomState::new().build_hasher().finish() as u32 | 1 << 31;
        self.tag.store(tag, Ordering::Release);
    }

    /// Whether an entry's data could be this.
    pub(super) fn is_key(&self, data: u64) -> bool {
        (data >> 32) as u32 == self.tag.load(Ordering::Relaxed)
    }

    /// The entry, while it is the one that was meant.
    pub(super) fn entry(&self, key: Key) -> Option<&Entry> {
        let entry = self.entries.get(place(key))?;
        (self.key(place(key)) == key && entry.is_used()).then_some(entry)
    }

    /// An entry that is in use from now on. `None`: all are.
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

    /// The kernel does not know of this one any more.
    pub(super) fn free(&self, key: Key) {
        let Some(entry) = self.entry(key) else { return };
        let used = entry.generation.load(Ordering::Relaxed);
        // Somebody else may do the same.
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

    /// What the program asked for last.
    pub(super) fn wanted(&self) -> Wanted {
        Wanted { events: self.events.load(Ordering::Acquire), data: self.data.load(Ordering::Acquire) }
    }

    /// The program asks for something else, and is to be told of it.
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

/// The head of the free list with another first one.
fn changed(free: u64, first: u32) -> u64 {
    (free >> 32).wrapping_add(1) << 32 | u64::from(first)
}
