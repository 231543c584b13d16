//! Registrations of the program's memory: made for each use, out of a pool, or kept for the next
//! one.
//!
//! A registration that is kept has no remote rights between two uses, and each use has an STag of
//! its own: no peer reaches memory of a call that has returned. What a cache saves is the look at
//! the process's mappings, and with a device that pins pages the pinning.

mod kept;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rddp_rnic::{Access, MemError, MemoryRegion, ProtectionDomain};
use rddp_sdp::transport::{Fault, Memory};

use crate::ProgramMemory;
use crate::watch::{Armed, Changes, Moment, Watch};
use kept::{Kept, Key};

/// Ways to register memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// A registration for each use.
    PerCall,
    /// A registration for each use, of which no more than `blocks` are there at a time, with
    /// `octets` each at most. Longer uses have several; octets for which none is left are copied.
    Pool {
        /// Most registrations at a time.
        blocks: usize,
        /// Most octets of each.
        octets: u32,
    },
    /// Registrations are kept for the next use of the same range with the same rights, at most
    /// `entries` with `octets` together; the one that was used least recently makes room. One is
    /// forgotten when its memory is unmapped, moved or discarded, and at `fork`. Where the kernel
    /// does not report that ([`Registry::sees_changes`]), and of mappings of files, none is kept.
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
    /// Octets of them.
    pub pinned_octets: u64,
    /// Registrations that made room for others.
    pub evictions: u64,
    /// Registrations whose memory has changed: see [`Registry::forget`].
    pub forgotten: u64,
    /// Uses for which the pool had no registration.
    pub refusals: u64,
}

/// Registrations of a protection domain.
#[derive(Debug)]
pub struct Registry {
    pd: ProtectionDomain,
    scheme: Scheme,
    watch: Option<&'static Watch>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    kept: Kept,
    /// Registrations of a pool that are in use.
    in_use: usize,
    /// Changes of mappings up to here have been looked at.
    seen: Moment,
    counters: RegistrationCounters,
}

/// A use of a registration, with the offset of its first octet in the region.
#[derive(Debug)]
pub struct Lease {
    pub(crate) region: Arc<MemoryRegion>,
    pub(crate) offset: usize,
    origin: Origin,
    /// A clone of the memory, so that its lender can see that it is in use.
    _memory: ProgramMemory,
}

/// Source of a registration, which decides what becomes of it behind its use.
#[derive(Clone, Copy, Debug)]
enum Origin {
    /// The owner of private memory keeps the registration.
    Private,
    /// The registration ends.
    Made,
    /// The registration ends, and counts in the pool until then.
    Pool,
    /// The registration is kept.
    Kept(Key),
}

impl Registry {
    /// Makes a registry without registrations.
    #[must_use]
    pub fn new(pd: &ProtectionDomain, scheme: Scheme) -> Self {
        let watch = if matches!(scheme, Scheme::Cache { .. }) { Watch::of_process() } else { None };
        let seen = watch.map_or_else(Moment::default, Watch::now);
        let state = State { seen, ..State::default() };
        Registry { pd: pd.clone(), scheme, watch, state: Mutex::new(state) }
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> RegistrationCounters {
        self.state().counters
    }

    /// Returns the number of registrations that are kept, and their octets.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let mut state = self.state();
        self.catch_up(&mut state);
        state.kept.size()
    }

    /// Returns whether changes of the process's mappings are seen, without which nothing is kept.
    #[must_use]
    pub fn sees_changes(&self) -> bool {
        self.watch.is_some()
    }

    /// Returns the greatest length of a use.
    pub(crate) fn longest(&self) -> u32 {
        match self.scheme {
            Scheme::Pool { octets, .. } => octets,
            _ => u32::MAX,
        }
    }

    /// Registers a part of memory for one use with these rights.
    pub(crate) fn lease(
        &self,
        memory: &ProgramMemory,
        part: Range<usize>,
        access: Access,
    ) -> Result<Lease, Fault> {
        let lease = |region, offset, origin| Lease { region, offset, origin, _memory: memory.clone() };
        if let Some(region) = memory.own_region() {
            return Ok(lease(region.clone(), part.start, Origin::Private));
        }
        let (start, ..) = memory.range().filter(|_| part.end <= memory.len()).ok_or(Fault::Address)?;
        let key = Key { start: start + part.start, len: part.len(), access: access | Access::ZERO_BASED };
        let (region, origin) = match self.scheme {
            Scheme::PerCall => (self.register(memory, part, key)?, Origin::Made),
            Scheme::Pool { .. } => (self.draw(memory, part, key)?, Origin::Pool),
            Scheme::Cache { .. } => match self.hit(key)? {
                Some(region) => return Ok(lease(region, 0, Origin::Kept(key))),
                None => self.keep(memory, part, key)?,
            },
        };
        Ok(lease(region, 0, origin))
    }

    fn register(
        &self,
        memory: &ProgramMemory,
        part: Range<usize>,
        key: Key,
    ) -> Result<Arc<MemoryRegion>, Fault> {
        let region = memory.register(&self.pd, part, key.access).map_err(|error| match error {
            rddp_rnic::Error::Memory(MemError::NotMapped { .. }) => Fault::Address,
            _ => Fault::Limit,
        })?;
        let counters = &mut self.state().counters;
        counters.pins += 1;
        counters.pinned_octets += key.len as u64;
        Ok(Arc::new(region))
    }

    fn draw(&self, memory: &ProgramMemory, part: Range<usize>, key: Key) -> Result<Arc<MemoryRegion>, Fault> {
        let Scheme::Pool { blocks, octets } = self.scheme else { return Err(Fault::Limit) };
        {
            let mut state = self.state();
            if key.len > octets as usize || state.in_use >= blocks {
                state.counters.refusals += 1;
                return Err(Fault::Limit);
            }
            state.in_use += 1;
        }
        let region = self.register(memory, part, key);
        if region.is_err() {
            self.state().in_use -= 1;
        }
        region
    }

    /// Returns the registration that was kept for such a use, with an STag that is new.
    fn hit(&self, key: Key) -> Result<Option<Arc<MemoryRegion>>, Fault> {
        let mut state = self.state();
        self.catch_up(&mut state);
        let Some(region) = state.kept.take(key) else {
            state.counters.misses += 1;
            return Ok(None);
        };
        state.counters.hits += 1;
        if region.reregister(key.access).is_err() {
            state.kept.remove(key);
            return Err(Fault::Limit);
        }
        Ok(Some(region))
    }

    /// Registers memory, to be kept behind its use if there is room and its changes are seen.
    fn keep(
        &self,
        memory: &ProgramMemory,
        part: Range<usize>,
        key: Key,
    ) -> Result<(Arc<MemoryRegion>, Origin), Fault> {
        // Before the memory is registered, so that no change of it goes unseen.
        let armed = self.watch.and_then(|watch| Some((watch, watch.arm(&key.range()).ok()?)));
        let region = self.register(memory, part, key)?;
        let mut state = self.state();
        let kept = armed.is_some_and(|(watch, armed)| {
            // What has changed meanwhile may be this, and another use may have looked already.
            armed.since == watch.now() && self.has_room(&mut state, key) && {
                state.kept.insert(key, region.clone(), armed);
                true
            }
        });
        Ok((region, if kept { Origin::Kept(key) } else { Origin::Made }))
    }

    /// Makes room for a registration. Returns whether there is any.
    fn has_room(&self, state: &mut State, key: Key) -> bool {
        let Scheme::Cache { entries, octets } = self.scheme else { return false };
        if key.len > octets || state.kept.has(key) {
            return false;
        }
        loop {
            let (count, sum) = state.kept.size();
            if count < entries && sum + key.len <= octets {
                return true;
            }
            if !state.kept.evict() {
                return false;
            }
            state.counters.evictions += 1;
        }
    }

    /// Ends a use: afterwards no peer reaches the memory.
    pub(crate) fn release(&self, lease: Lease) {
        let key = match lease.origin {
            Origin::Private | Origin::Made => return drop(lease),
            Origin::Pool => {
                drop(lease);
                self.state().in_use -= 1;
                return;
            }
            Origin::Kept(key) => key,
        };
        let mut state = self.state();
        self.catch_up(&mut state);
        let is_parked = lease.region.reregister(key.access & !Access::REMOTE).is_ok();
        state.kept.give_back(key, is_parked);
    }

    /// Forgets registrations of a range. Who changes mappings by calls that the kernel does not
    /// report says so before: one that ends the right to write, say. One in use is forgotten when
    /// that use ends.
    pub fn forget(&self, range: Range<usize>) {
        self.state().forget(&range);
    }

    /// Forgets all registrations.
    pub fn forget_all(&self) {
        self.forget(0..usize::MAX);
    }

    /// Forgets the registrations of which the memory has changed since the last look.
    fn catch_up(&self, state: &mut State) {
        let Some(watch) = self.watch else { return };
        match watch.changes_since(&mut state.seen) {
            Changes::Ranges(ranges) => ranges.iter().for_each(|range| state.forget(range)),
            Changes::All => state.forget(&(0..usize::MAX)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn forget(&mut self, range: &Range<usize>) {
        self.counters.forgotten += self.kept.forget(range);
    }
}

#[cfg(test)]
mod tests;
