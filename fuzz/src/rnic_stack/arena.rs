//! The program's memory: regions with canaries around them, and their STags.
//!
//! The memory is registered once and lasts as long as the process, since every registration looks
//! through all mappings of the process. What an input revokes is granted again before the next
//! input. Octets that no peer may ever read have their top bit set, all others have it clear.

use std::ops::Range;
use std::ptr::NonNull;

use rddp_ddp::Stag;
use rddp_rnic::{Access, MemoryRegion, ProtectionDomain, Remote, Rnic, Sge};

/// The purpose of a region.
pub(super) struct Spec {
    pub(super) len: usize,
    pub(super) access: Access,
    /// A region of another protection domain than the QP's.
    foreign: bool,
}

const fn spec(len: usize, access: Access) -> Spec {
    Spec { len, access, foreign: false }
}

const RW: Access = Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);

/// The regions, by their numbers.
pub(super) const SPECS: [Spec; 10] = [
    spec(12_000, RW),
    spec(3000, Access::REMOTE_READ),
    spec(777, Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::ZERO_BASED)),
    Spec { len: 1000, access: RW, foreign: true },
    spec(14_000, Access::LOCAL_WRITE),
    spec(12_000, Access::LOCAL_WRITE),
    spec(4000, Access::LOCAL_WRITE.union(Access::BIND)),
    spec(64, Access::LOCAL_WRITE.union(Access::REMOTE_ATOMIC)),
    spec(2000, RW.union(Access::REMOTE_INVALIDATE)),
    spec(8000, Access::empty()),
];

/// Numbers of the regions for receives, sinks, windows and messages that are sent.
pub(super) const RECEIVES: usize = 4;
pub(super) const SINKS: usize = 5;
pub(super) const BINDABLE: usize = 6;
pub(super) const SOURCE: usize = 9;

/// The part of the bindable region in which windows are bound.
pub(super) const BOUND: Range<usize> = 500..1500;

/// Octets between regions.
const GAP: usize = 256;

/// Octets of the whole memory.
pub(super) struct Arena {
    pub(super) rnic: Rnic,
    pub(super) pd: ProtectionDomain,
    other: ProtectionDomain,
    start: NonNull<u8>,
    /// The offset at which each region begins.
    at: [usize; SPECS.len()],
    /// The initial octets.
    image: Vec<u8>,
    regions: Vec<MemoryRegion>,
}

// SAFETY: the pointer is to leaked memory, which is accessed only by copies that any thread may
// make.
unsafe impl Send for Arena {}

impl Arena {
    pub(super) fn new() -> Self {
        let rnic = Rnic::open().unwrap();
        let (pd, other) = (rnic.alloc_pd(), rnic.alloc_pd());
        let mut at = [0; SPECS.len()];
        let mut end = GAP;
        for (number, spec) in SPECS.iter().enumerate() {
            // All regions but that of atomics begin at odd offsets.
            at[number] =
                end.next_multiple_of(8) + if spec.access.contains(Access::REMOTE_ATOMIC) { 0 } else { 3 };
            end = at[number] + spec.len + GAP;
        }
        let image = image(&at, end);
        let start = NonNull::from(Vec::leak(image.clone())).cast();
        let mut arena = Arena { rnic, pd, other, start, at, image, regions: Vec::new() };
        for number in 0..SPECS.len() {
            let region = arena.register(number);
            arena.regions.push(region);
        }
        arena
    }

    fn register(&self, number: usize) -> MemoryRegion {
        let Spec { len, access, foreign } = SPECS[number];
        let pd = if foreign { &self.other } else { &self.pd };
        // SAFETY: the range is inside the leaked memory, to which no reference exists.
        unsafe { pd.register(self.start.add(self.at[number]), len, access) }.unwrap()
    }

    /// Sets all octets to their initial values.
    pub(super) fn renew(&mut self) {
        // SAFETY: the range is all of the leaked memory, to which no reference exists.
        unsafe {
            self.start.copy_from_nonoverlapping(NonNull::from(&self.image[..]).cast(), self.image.len())
        };
        for (number, spec) in SPECS.iter().enumerate() {
            if self.regions[number].is_valid() {
                continue;
            }
            if self.regions[number].reregister(spec.access).is_err() {
                self.regions[number] = self.register(number);
            }
        }
    }

    /// Returns all octets as they are now.
    pub(super) fn octets(&self) -> Vec<u8> {
        let mut octets = vec![0; self.image.len()];
        // SAFETY: the copy has as many octets as the memory, and is made through raw pointers.
        unsafe { self.start.copy_to_nonoverlapping(NonNull::from(&mut octets[..]).cast(), octets.len()) };
        octets
    }

    pub(super) fn image(&self) -> &[u8] {
        &self.image
    }

    /// Returns the place of a part of a region among all octets, if all of it is inside the region.
    pub(super) fn range(&self, number: usize, from: u64, len: u64) -> Option<Range<usize>> {
        let end = from.checked_add(len)?;
        let at = self.at[number];
        (end <= SPECS[number].len as u64).then(|| at + from as usize..at + end as usize)
    }

    pub(super) fn region(&self, number: usize) -> &MemoryRegion {
        &self.regions[number]
    }

    pub(super) fn stag(&self, number: usize) -> Stag {
        self.regions[number].stag()
    }

    /// Returns the place at an offset that need not be inside the region.
    pub(super) fn remote(&self, number: usize, offset: u64) -> Remote {
        Remote { stag: self.stag(number), to: self.regions[number].base().wrapping_add(offset) }
    }

    pub(super) fn sge(&self, number: usize, range: Range<usize>) -> Sge {
        self.regions[number].sge(range)
    }

    /// Returns what an access by a peer would reach, judged by the STag: the region, and the place
    /// of the octets if all of them are inside.
    pub(super) fn reach(&self, stag: Stag, to: u64, len: u64) -> Option<(usize, Option<Range<usize>>)> {
        let number = self.regions.iter().position(|region| region.stag() == stag)?;
        let from = to.wrapping_sub(self.regions[number].base());
        Some((number, self.range(number, from, len)))
    }
}

fn image(at: &[usize], len: usize) -> Vec<u8> {
    let mut image: Vec<u8> = (0..len).map(|at| 0xc0 | (at % 64) as u8).collect();
    for (number, spec) in SPECS.iter().enumerate() {
        let octets = &mut image[at[number]..at[number] + spec.len];
        let readable = spec.access.contains(Access::REMOTE_READ) && !spec.foreign;
        for (at, octet) in octets.iter_mut().enumerate() {
            let lent = number == BINDABLE && BOUND.contains(&at);
            *octet = (at % 61) as u8 | if readable || lent { 0 } else { 0x80 };
        }
    }
    image
}
