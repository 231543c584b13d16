//! Registrations that are kept for their next use.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use rddp_rnic::{Access, MemoryRegion};

use super::Armed;

/// Range of addresses and rights that a use asks for. One of a part of the range, or with fewer
/// rights, is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) access: Access,
}

impl Key {
    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    fn overlaps(&self, range: &Range<usize>) -> bool {
        self.start < range.end && range.start < self.start + self.len
    }
}

#[derive(Debug, Default)]
pub(super) struct Kept {
    entries: HashMap<Key, Entry>,
    octets: usize,
    clock: u64,
}

#[derive(Debug)]
pub(super) struct Entry {
    region: Arc<MemoryRegion>,
    last_use: u64,
    /// A region has one STag at a time, so a second use at the same time registers anew.
    in_use: bool,
    /// The memory has changed meanwhile: not to be kept after its use.
    forgotten: bool,
    _armed: Armed,
}

impl Kept {
    /// Returns the number of registrations, and their octets.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.entries.len(), self.octets)
    }

    pub(super) fn has(&self, key: Key) -> bool {
        self.entries.contains_key(&key)
    }

    /// Begins a use of a registration that is not in use.
    pub(super) fn take(&mut self, key: Key) -> Option<Arc<MemoryRegion>> {
        self.clock += 1;
        let entry = self.entries.get_mut(&key).filter(|entry| !entry.in_use)?;
        (entry.in_use, entry.last_use) = (true, self.clock);
        Some(entry.region.clone())
    }

    /// Adds a registration that is in use.
    pub(super) fn insert(&mut self, key: Key, region: Arc<MemoryRegion>, armed: Armed) {
        self.clock += 1;
        self.octets += key.len;
        let entry = Entry { region, last_use: self.clock, in_use: true, forgotten: false, _armed: armed };
        self.entries.insert(key, entry);
    }

    /// Ends a use of a registration, which is kept if it is `usable` and not forgotten.
    pub(super) fn give_back(&mut self, key: Key, usable: bool) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.in_use = false;
        if entry.forgotten || !usable {
            self.remove(key);
        }
    }

    /// Removes registrations of a range, those in use when their use ends. Returns how many it has
    /// met for the first time.
    pub(super) fn forget(&mut self, range: &Range<usize>) -> u64 {
        let overlap = |(key, entry): &(&Key, &Entry)| key.overlaps(range) && !entry.forgotten;
        let keys: Vec<Key> = self.entries.iter().filter(overlap).map(|(key, _)| *key).collect();
        for key in &keys {
            match self.entries.get_mut(key) {
                Some(entry) if entry.in_use => entry.forgotten = true,
                _ => self.remove(*key),
            }
        }
        keys.len() as u64
    }

    /// Removes the entry whose last use is the longest ago; false where all are in use.
    pub(super) fn evict(&mut self) -> bool {
        let idle = self.entries.iter().filter(|(_, entry)| !entry.in_use);
        let Some(key) = idle.min_by_key(|(_, entry)| entry.last_use).map(|(key, _)| *key) else {
            return false;
        };
        self.remove(key);
        true
    }

    pub(super) fn remove(&mut self, key: Key) {
        if self.entries.remove(&key).is_some() {
            self.octets -= key.len;
        }
    }
}
