//! The program's memory: regions with canaries around them, and the STags that open them.
//!
//! It is registered once and lasts as long as the process, since every registration looks at all of the process's
//! mappings. What an input takes away is given back before the next one. Octets that no peer may ever read have their
//! top bit set, all others have not.

use std::ops::Range;
use std::ptr::NonNull;

use rddp_ddp::Stag;
use rddp_rnic::{Access, MemoryRegion, ProtectionDomain, Remote, Rnic, Sge};

/// What a region is for.
pub(super) struct Spec {
    pub(super) len: usize,
    pub(super) access: Access,
    /// Of another protection domain than the QP's.
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

/// Where receives, sinks, windows and what is sent are.
pub(super) const RECEIVES: usize = 4;
pub(super) const SINKS: usize = 5;
pub(super) const BINDABLE: usize = 6;
pub(super) const SOURCE: usize = 9;

/// The part of the bindable region that windows are bound in.
pub(super) const BOUND: Range<usize> = 500..1500;

/// Octets between regions.
const GAP: usize = 256;

/// All of it.
pub(super) struct Arena {
    pub(super) rnic: Rnic,
    pub(super) pd: ProtectionDomain,
    other: ProtectionDomain,
    start: NonNull<u8>,
    /// Where each region begins.
    at: [usize; SPECS.len()],
    /// The octets as they are at first.
    image: Vec<u8>,
    regions: Vec<MemoryRegion>,
}

// SAFETY: the pointer is to leaked memory, which any thread may copy from and to.
unsafe impl Send for Arena {}

impl Arena {
    pub(super) fn new() -> Self {
        let rnic = Rnic::open().unwrap();
        let (pd, other) = (rnic.alloc_pd(), rnic.alloc_pd());
        let mut at = [0; SPECS.len()];
        let mut end = GAP;
        for (number, spec) in SPECS.iter().enumerate() {
            // All but the atomics' region begin at odd places.
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
        // SAFETY: inside of the leaked memory, which nobody has a reference to.
        unsafe { pd.register(self.start.add(self.at[number]), len, access) }.unwrap()
    }

    /// Everything as it was at first.
    pub(super) fn renew(&mut self) {
        // SAFETY: all of the leaked memory, which nobody has a reference to.
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

    /// All octets as they are now.
    pub(super) fn octets(&self) -> Vec<u8> {
        let mut octets = vec![0; self.image.len()];
        // SAFETY: as many octets as there are, copied through raw pointers.
        unsafe { self.start.copy_to_nonoverlapping(NonNull::from(&mut octets[..]).cast(), octets.len()) };
        octets
    }

    pub(super) fn image(&self) -> &[u8] {
        &self.image
    }

    /// Where a part of a region is among the octets, if all of it is inside.
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

    /// The place at an offset that need not be inside.
    pub(super) fn remote(&self, number: usize, offset: u64) -> Remote {
        Remote { stag: self.stag(number), to: self.regions[number].base().wrapping_add(offset) }
    }

    pub(super) fn sge(&self, number: usize, range: Range<usize>) -> Sge {
        self.regions[number].sge(range)
    }

    /// What an access by a peer would reach, going by the STag: the region, and the octets if all of them are inside.
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
