//! Registered memory between octets that must not be touched.

use std::ptr::NonNull;

use super::device::rights;
use rddp_rnic::{Access, MemoryRegion, ProtectionDomain};

/// Number of octets before and behind the region; a multiple of 8, so that it is aligned.
const GUARD: usize = 64;

/// The octet that the guards are filled with.
const MARK: u8 = 0xa5;

/// A region, and the memory around it with its guards.
pub struct Guarded {
    pub region: MemoryRegion,
    /// Dropped after the region, which is a part of it.
    backing: MemoryRegion,
    /// The octets that the region was last filled with.
    contents: Vec<u8>,
}

impl Guarded {
    pub fn new(pd: &ProtectionDomain, len: usize, access: Access) -> Self {
        let backing = pd.allocate(len + 2 * GUARD, Access::LOCAL_WRITE).unwrap();
        backing.write(0, &vec![MARK; len + 2 * GUARD]).unwrap();
        let start = NonNull::new((backing.base() as usize + GUARD) as *mut u8).unwrap();
        // SAFETY: the range is a part of `backing`, which outlives the region and is only read and
        // written by copying.
        let region = unsafe { pd.register(start, len, rights(access)) }.unwrap();
        let mut guarded = Guarded { region, backing, contents: Vec::new() };
        guarded.fill(&vec![0; len]);
        guarded
    }

    /// Sets the region's octets; [`is_unchanged`](Self::is_unchanged) compares with them.
    pub fn fill(&mut self, octets: &[u8]) {
        self.backing.write(GUARD, octets).unwrap();
        self.contents = octets.to_vec();
    }

    pub fn octets(&self) -> Vec<u8> {
        self.backing.read(GUARD, self.contents.len()).unwrap()
    }

    /// Returns the octets of the last [`fill`](Self::fill).
    pub fn filled(&self) -> &[u8] {
        &self.contents
    }

    /// Returns whether the region's octets are still those of [`fill`](Self::fill).
    pub fn is_unchanged(&self) -> bool {
        self.octets() == self.contents
    }

    /// RFC 5042 §6.2.1: nothing outside the registered octets is touched.
    pub fn assert_guards(&self) {
        let end = GUARD + self.contents.len();
        for at in [0, end] {
            assert_eq!(self.backing.read(at, GUARD).unwrap(), [MARK; GUARD], "octets outside the region");
        }
    }
}
