//! The list of entries that this process has made, by set and descriptor.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rddp_real as real;
use smallvec::SmallVec;

use super::pool::Key;

/// A descriptor in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Watch {
    pub(super) fd: c_int,
    pub(super) epoll: c_int,
    pub(super) key: Key,
}

/// All watches of this process.
#[derive(Debug)]
pub struct Watches {
    by_number: BTreeMap<(c_int, c_int), Key>,
    unsettled: BTreeSet<(c_int, c_int)>,
    /// Watches of sockets whose number was closed, by cookie, until the last number is.
    orphans: Vec<(u64, Watch)>,
}

static WATCHES: Mutex<Watches> =
    Mutex::new(Watches { by_number: BTreeMap::new(), unsettled: BTreeSet::new(), orphans: Vec::new() });

/// The number of watches, for callers that do not take the lock; `UNSETTLED` is that of unsettled
/// ones.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static UNSETTLED: AtomicUsize = AtomicUsize::new(0);

/// Locks the watches.
pub fn watches() -> real::Locked<Watches> {
    real::lock(&WATCHES)
}

#[inline]
pub(super) fn any() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

#[inline]
pub(super) fn any_unsettled() -> bool {
    UNSETTLED.load(Ordering::Relaxed) > 0
}

impl Watches {
    /// Adds a watch; returns the key that was in its place.
    pub(super) fn insert(&mut self, watch: Watch) -> Option<Key> {
        let before = self.by_number.insert((watch.fd, watch.epoll), watch.key);
        self.count();
        before.filter(|key| *key != watch.key)
    }

    pub(super) fn find(&self, fd: c_int, epoll: c_int) -> Option<Watch> {
        self.by_number.get(&(fd, epoll)).map(|key| Watch { fd, epoll, key: *key })
    }

    pub(super) fn remove(&mut self, watch: Watch) {
        if self.by_number.get(&(watch.fd, watch.epoll)) == Some(&watch.key) {
            self.by_number.remove(&(watch.fd, watch.epoll));
            self.unsettled.remove(&(watch.fd, watch.epoll));
            self.count();
        }
    }

    /// Returns the watches of this number, one for each set that has it.
    pub(super) fn of(&self, fd: c_int) -> SmallVec<[Watch; 2]> {
        let all = self.by_number.range((fd, c_int::MIN)..=(fd, c_int::MAX));
        all.map(|((fd, epoll), key)| Watch { fd: *fd, epoll: *epoll, key: *key }).collect()
    }

    /// Returns all watches.
    pub(super) fn all(&self) -> impl Iterator<Item = Watch> {
        self.by_number.iter().map(|((fd, epoll), key)| Watch { fd: *fd, epoll: *epoll, key: *key })
    }

    /// Notes whether a watch is unsettled. Returns whether it has become so.
    pub(super) fn set_unsettled(&mut self, watch: Watch, is_unsettled: bool) -> bool {
        let place = (watch.fd, watch.epoll);
        let changed = match is_unsettled && self.by_number.contains_key(&place) {
            true => self.unsettled.insert(place),
            false => self.unsettled.remove(&place),
        };
        if changed {
            self.count();
        }
        changed && is_unsettled
    }

    pub(super) fn unsettled(&self) -> SmallVec<[Watch; 8]> {
        let watch = |(fd, epoll): &(c_int, c_int)| self.find(*fd, *epoll);
        self.unsettled.iter().filter_map(watch).collect()
    }

    pub(super) fn add_orphan(&mut self, cookie: u64, watch: Watch) {
        self.orphans.push((cookie, watch));
    }

    pub(super) fn orphans(&self, cookie: u64) -> SmallVec<[Watch; 2]> {
        self.orphans.iter().filter(|(of, _)| *of == cookie).map(|(_, watch)| *watch).collect()
    }

    pub(super) fn forget_orphans(&mut self, cookie: u64) {
        self.orphans.retain(|(of, _)| *of != cookie);
    }

    fn count(&self) {
        COUNT.store(self.by_number.len(), Ordering::Relaxed);
        UNSETTLED.store(self.unsettled.len(), Ordering::Relaxed);
    }
}
