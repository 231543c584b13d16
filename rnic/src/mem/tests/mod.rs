//! The rules of registered memory, checked from outside (draft-hilland-rddp-verbs §7, RFC 5042 §6).

mod cost;
mod invalidation;
mod lifecycle;
mod order;
#[cfg(not(miri))] // which has no memfds
mod positioned;
mod registering;
mod rights;
mod stress;
mod windows;

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use super::{Access, MemLimits, MemTable, PdId, QpNum, Region, RegionOptions};

const PD: PdId = PdId(1);
const OTHER_PD: PdId = PdId(2);
const QP: QpNum = QpNum(17);
const OTHER_QP: QpNum = QpNum(18);

/// Every right that a region may have together.
const ALL: Access = Access::all().difference(Access::ZERO_BASED.union(Access::STABLE));

fn table() -> MemTable {
    MemTable::new(MemLimits::default())
}

fn allocate(table: &MemTable, len: usize, access: Access) -> Arc<Region> {
    table.allocate(PD, len, access, &RegionOptions::default()).unwrap()
}

fn octets(region: &Region) -> Vec<u8> {
    let mut octets = vec![0; region.len()];
    region.read_at(0, &mut octets).unwrap();
    octets
}

/// Memory of a program's own, with octets in front of and behind the registered ones that must not
/// change.
struct Guarded {
    start: NonNull<u8>,
    len: usize,
}

const GUARD: usize = 64;
const GUARD_OCTET: u8 = 0xa5;

impl Guarded {
    fn new(len: usize) -> Self {
        // SAFETY: the layout is not empty, and `alloc` returned space for all of it.
        let start = unsafe {
            let start = alloc(Self::layout(len));
            start.write_bytes(GUARD_OCTET, len + 2 * GUARD);
            start.add(GUARD).write_bytes(0, len);
            start
        };
        Self { start: NonNull::new(start).unwrap(), len }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len + 2 * GUARD, 64).unwrap()
    }

    fn register(&self, table: &MemTable, access: Access) -> Arc<Region> {
        // SAFETY: inside what `new` allocated. The tests drop it after the table and make no
        // references to it.
        unsafe {
            table.register(PD, self.start.add(GUARD), self.len, access, &RegionOptions::default()).unwrap()
        }
    }

    fn is_intact(&self) -> bool {
        (0..GUARD).chain(GUARD + self.len..2 * GUARD + self.len).all(|at| {
            // SAFETY: inside what `new` allocated and wrote.
            unsafe { self.start.add(at).read_volatile() == GUARD_OCTET }
        })
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) };
    }
}
