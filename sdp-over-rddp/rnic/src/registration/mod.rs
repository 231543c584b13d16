//! Registrations of the program's memory: made for each call, or kept for the next one.
//!
//! A registration that is kept has no remote rights between two uses, and each use has an STag of
//! its own: no peer reaches memory of a call that has returned. What a cache saves is the look at
//! the process's mappings.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use rddp_rnic::{Access, MemoryRegion, ProtectionDomain};
use rddp_sdp::transport::{Fault, Memory};

use crate::ProgramMemory;

/// Ways to register memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// A registration for each use.
    PerCall,
    /// Registrations are kept for the next use of the same range with the same rights, at most
    /// `entries` with `octets` together; the one that was used least recently makes room.
    Cache {
        /// Most registrations that are kept.
        entries: usize,
        /// Most octets of them together.
        octets: usize,
    },
}

/// Counters of a [`Registry`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegistrationCounters {
    /// Uses that found a registration.
    pub hits: u64,
    /// Uses that did not.
    pub misses: u64,
    /// Registrations made: memory that a device would have pinned.
    pub pins: u64,
    /// Registrations that made room for others, or were forgotten.
    pub evictions: u64,
}

/// Registrations of a protection domain.
#[derive(Debug)]
pub struct Registry {
    pd: ProtectionDomain,
    scheme: Scheme,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    entries: HashMap<Key, Entry>,
    octets: usize,
    clock: u64,
    counters: RegistrationCounters,
}

/// Start, length, and rights of a use.
type Key = (usize, usize, Access);

#[derive(Debug)]
struct Entry {
    region: Arc<MemoryRegion>,
    last_use: u64,
    /// A region has one STag at a time, so a second use at the same time registers anew.
    in_use: bool,
    /// The memory was given back meanwhile: not to be kept after its use.
    forgotten: bool,
}

/// One use of a registration, with the offset of its first octet in the region.
#[derive(Debug)]
pub struct Lease {
    pub(crate) region: Arc<MemoryRegion>,
    pub(crate) offset: usize,
    key: Option<Key>,
    /// A clone of the memory, so that its lender can see that it is in use.
    _memory: ProgramMemory,
}

impl Registry {
    /// Makes a registry without registrations.
    #[must_use]
    pub fn new(pd: &ProtectionDomain, scheme: Scheme) -> Self {
        Registry { pd: pd.clone(), scheme, kept: Mutex::default() }
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> RegistrationCounters {
        self.kept().counters
    }

    /// Returns the number of registrations that are kept, and their octets.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let kept = self.kept();
        (kept.entries.len(), kept.octets)
    }

    /// Registers a part of memory for one use with these rights.
    pub(crate) fn lease(
        &self,
        memory: &ProgramMemory,
        part: Range<usize>,
        access: Access,
    ) -> Result<Lease, Fault> {
        if let Some(region) = memory.own_region() {
            return Ok(Lease {
                region: region.clone(),
                offset: part.start,
                key: None,
                _memory: memory.clone(),
            });
        }
        let (start, len, _) = memory.range().filter(|_| part.end <= memory.len()).ok_or(Fault::Address)?;
        debug_assert!(part.end <= len);
        let access = access | Access::ZERO_BASED;
        let key = (start + part.start, part.len(), access);
        if let Some(lease) = self.hit(key, memory)? {
            return Ok(lease);
        }
        let region = memory.register(&self.pd, part, access).map_err(|error| match error {
            rddp_rnic::Error::Memory(rddp_rnic::MemError::NotMapped { .. }) => Fault::Address,
            _ => Fault::Limit,
        })?;
        Ok(self.made(key, region, memory))
    }

    fn hit(&self, key: Key, memory: &ProgramMemory) -> Result<Option<Lease>, Fault> {
        let mut kept = self.kept();
        kept.clock += 1;
        let now = kept.clock;
        let Some(entry) = kept.entries.get_mut(&key).filter(|entry| !entry.in_use && !entry.forgotten) else {
            kept.counters.misses += 1;
            return Ok(None);
        };
        (entry.in_use, entry.last_use) = (true, now);
        let region = entry.region.clone();
        kept.counters.hits += 1;
        if region.reregister(key.2).is_err() {
            kept.remove(key);
            return Err(Fault::Limit);
        }
        Ok(Some(Lease { region, offset: 0, key: Some(key), _memory: memory.clone() }))
    }

    fn made(&self, key: Key, region: MemoryRegion, memory: &ProgramMemory) -> Lease {
        let _memory = memory.clone();
        let region = Arc::new(region);
        let mut kept = self.kept();
        kept.counters.pins += 1;
        let Scheme::Cache { entries, octets } = self.scheme else {
            return Lease { region, offset: 0, key: None, _memory };
        };
        if key.1 > octets || kept.entries.contains_key(&key) {
            return Lease { region, offset: 0, key: None, _memory };
        }
        while kept.entries.len() >= entries || kept.octets + key.1 > octets {
            if !kept.evict() {
                return Lease { region, offset: 0, key: None, _memory };
            }
        }
        let last_use = kept.clock;
        kept.octets += key.1;
        let entry = Entry { region: region.clone(), last_use, in_use: true, forgotten: false };
        kept.entries.insert(key, entry);
        Lease { region, offset: 0, key: Some(key), _memory }
    }

    /// Ends a use: afterwards no peer reaches the memory.
    pub(crate) fn release(&self, lease: Lease) {
        let Some(key) = lease.key else {
            // Private memory stays registered for its owner, program memory does not.
            return drop(lease);
        };
        let mut kept = self.kept();
        let parked = key.2 & !Access::REMOTE;
        let is_parked = lease.region.reregister(parked).is_ok();
        let Some(entry) = kept.entries.get_mut(&key) else { return };
        entry.in_use = false;
        if entry.forgotten || !is_parked {
            kept.remove(key);
        }
    }

    /// Forgets registrations of a range: for `munmap`, `mremap` and `madvise`, before they take
    /// effect. One in use is forgotten when that use ends.
    pub fn forget(&self, range: Range<usize>) {
        let mut kept = self.kept();
        let overlaps = |key: &Key| key.0 < range.end && range.start < key.0 + key.1;
        let keys: Vec<Key> = kept.entries.keys().copied().filter(overlaps).collect();
        for key in keys {
            match kept.entries.get_mut(&key) {
                Some(entry) if entry.in_use => entry.forgotten = true,
                _ => kept.remove(key),
            }
        }
    }

    /// Forgets all registrations: before `fork`, after which a page belongs to whoever writes to it
    /// first.
    pub fn forget_all(&self) {
        self.forget(0..usize::MAX);
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Removes the entry whose last use is the longest ago. One in use is never removed.
    fn evict(&mut self) -> bool {
        let idle = self.entries.iter().filter(|(_, entry)| !entry.in_use);
        let Some(key) = idle.min_by_key(|(_, entry)| entry.last_use).map(|(key, _)| *key) else {
            return false;
        };
        self.remove(key);
        true
    }

    fn remove(&mut self, key: Key) {
        if self.entries.remove(&key).is_some() {
            self.octets -= key.1;
            self.counters.evictions += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use rddp_rnic::Rnic;

    use super::*;

    #[allow(unsafe_code)]
    fn lend(octets: &mut [u8]) -> ProgramMemory {
        let ptr = NonNull::from(&mut *octets).cast();
        // SAFETY: the tests use neither the slice nor its memory while a lease is out.
        unsafe { ProgramMemory::lent(ptr, octets.len(), true) }
    }

    fn registry(entries: usize, octets: usize) -> Registry {
        Registry::new(&Rnic::open().unwrap().alloc_pd(), Scheme::Cache { entries, octets })
    }

    #[test]
    fn a_range_that_is_used_again_is_a_hit_with_another_stag() {
        let (registry, mut octets) = (registry(4, 1 << 20), vec![0; 4096]);
        let memory = lend(&mut octets);
        let lease = registry.lease(&memory, 0..4096, Access::REMOTE_READ).unwrap();
        let (region, first) = (lease.region.clone(), lease.region.stag());
        registry.release(lease);
        assert_ne!(region.stag(), first, "the STag of a use that is over is not valid any more");
        let lease = registry.lease(&memory, 0..4096, Access::REMOTE_READ).unwrap();
        assert_ne!(lease.region.stag(), first);
        registry.release(lease);
        let RegistrationCounters { hits, misses, pins, .. } = registry.counters();
        assert_eq!((hits, misses, pins), (1, 1, 1));
    }

    #[test]
    fn other_rights_and_longer_ranges_are_misses() {
        let (registry, mut octets) = (registry(8, 1 << 20), vec![0; 4096]);
        let memory = lend(&mut octets);
        let sink = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        for (part, access) in
            [(0..2048, Access::REMOTE_READ), (0..2048, sink), (0..4096, sink), (1..2048, sink)]
        {
            let lease = registry.lease(&memory, part.clone(), access).unwrap();
            assert_eq!(lease.region.len(), part.len());
            registry.release(lease);
        }
        assert_eq!((registry.counters().hits, registry.counters().misses), (0, 4));
    }

    #[test]
    fn the_limits_hold_and_what_is_in_use_stays() {
        let (registry, mut octets) = (registry(2, 3000), vec![0; 8192]);
        let memory = lend(&mut octets);
        let held = registry.lease(&memory, 0..1000, Access::REMOTE_READ).unwrap();
        for start in [1000, 2000, 3000] {
            let lease = registry.lease(&memory, start..start + 1000, Access::REMOTE_READ).unwrap();
            registry.release(lease);
            assert!(registry.size().0 <= 2 && registry.size().1 <= 3000);
        }
        registry.release(held);
        let held = registry.lease(&memory, 0..1000, Access::REMOTE_READ).unwrap();
        assert_eq!(registry.counters().hits, 1, "the one in use was kept all the time");
        let big = registry.lease(&memory, 0..2500, Access::REMOTE_READ).unwrap();
        assert!(registry.size().1 <= 3000);
        registry.release(big);
        registry.release(held);
    }

    #[test]
    fn a_range_that_was_unmapped_is_a_miss() {
        let (registry, mut octets) = (registry(4, 1 << 20), vec![0; 4096]);
        let memory = lend(&mut octets);
        let start = octets.as_ptr().addr();
        let (used, idle) = (0..1024, 2048..4096);
        let held = registry.lease(&memory, used.clone(), Access::REMOTE_READ).unwrap();
        let lease = registry.lease(&memory, idle.clone(), Access::REMOTE_READ).unwrap();
        registry.release(lease);
        registry.forget(start..start + 4096);
        assert_eq!(registry.size().0, 1, "what is in use is forgotten at its end");
        registry.release(held);
        assert_eq!(registry.size(), (0, 0));
        for part in [used, idle] {
            let lease = registry.lease(&memory, part, Access::REMOTE_READ).unwrap();
            registry.release(lease);
        }
        assert_eq!(registry.counters().hits, 0);
    }
}
