//! Registration of a program's memory: refusals, and the cost (RFC 5042 §7.3).

use std::time::Instant;

use super::*;
use crate::mem::MemError;
use crate::mem::alloc::Mapping;

const GIB: usize = 1 << 30;

fn map(len: usize) -> Mapping {
    Mapping::new(len, &RegionOptions::default()).unwrap()
}

fn register(table: &MemTable, ptr: NonNull<u8>, len: usize, access: Access) -> Result<Arc<Region>, MemError> {
    register_with(table, ptr, len, access, &RegionOptions::default())
}

fn register_with(
    table: &MemTable,
    ptr: NonNull<u8>,
    len: usize,
    access: Access,
    options: &RegionOptions,
) -> Result<Arc<Region>, MemError> {
    // SAFETY: the tests of this file either unmap nothing before the table is gone, or see
    // the registration refused.
    unsafe { table.register(PD, ptr, len, access, options) }
}

fn protect(mapping: &Mapping, offset: usize, len: usize, rights: i32) {
    // SAFETY: part of a mapping of the test's own, of which no reference exists.
    let answer = unsafe { libc::mprotect(mapping.ptr().add(offset).as_ptr().cast(), len, rights) };
    assert_eq!(answer, 0);
}

/// Returns the number of pages of a mapped range that are in memory.
fn resident(start: *mut u8, len: usize) -> usize {
    let mut pages = vec![0_u8; len / 4096];
    // SAFETY: room for one octet for each page; asking about memory touches none.
    let answer = unsafe { libc::mincore(start.cast(), len, pages.as_mut_ptr().cast()) };
    assert_eq!(answer, 0);
    pages.iter().filter(|page| *page & 1 != 0).count()
}

#[test]
#[cfg_attr(miri, ignore = "needs the list of mappings")]
fn registering_a_gibibyte_touches_no_page() {
    let memory = map(GIB);
    let table = table();
    let start = Instant::now();
    let region = register(&table, memory.ptr(), GIB, ALL).unwrap();
    let took = start.elapsed();
    assert_eq!(resident(memory.ptr().as_ptr(), GIB), 0);
    table
        .check_remote(region.stag(), region.base_to() + 5000, 1, Access::REMOTE_WRITE, PD, QP)
        .unwrap()
        .place(0, b"x")
        .unwrap();
    assert_eq!(resident(memory.ptr().as_ptr(), GIB), 1);
    table.deregister(region.stag()).unwrap();
    println!("registering 1 GiB took {took:?}");
}

#[test]
#[cfg_attr(miri, ignore = "takes a gibibyte")]
fn allocating_a_gibibyte_touches_no_page_and_gives_zeros() {
    let table = table();
    let region = allocate(&table, GIB, ALL);
    assert_eq!(resident(region.as_ptr(), GIB), 0);
    let mut last = [1; 16];
    region.read_at(GIB - 16, &mut last).unwrap();
    assert_eq!(last, [0; 16]);
}

#[test]
#[cfg_attr(miri, ignore = "needs the list of mappings")]
fn populating_brings_every_page_in() {
    let len = 1 << 20;
    let memory = map(len);
    let table = table();
    let options = RegionOptions { populate: true, ..RegionOptions::default() };
    let part = memory.ptr().addr().get() + 100;
    register_with(&table, NonNull::new(part as *mut u8).unwrap(), len - 200, ALL, &options).unwrap();
    assert_eq!(resident(memory.ptr().as_ptr(), len), len / 4096);
    let region = table.allocate(PD, len, ALL, &options).unwrap();
    assert_eq!(resident(region.as_ptr(), len), len / 4096);
    let lazy = allocate(&table, len, ALL);
    assert_eq!(resident(lazy.as_ptr(), len), 0);
    drop(table);
}

#[test]
#[cfg_attr(miri, ignore = "needs the list of mappings")]
fn locking_keeps_pages_in_memory_and_says_what_to_raise_when_refused() {
    let len = 64 << 10;
    let memory = map(len);
    let table = table();
    let options = RegionOptions { lock: true, ..RegionOptions::default() };
    match register_with(&table, memory.ptr(), len, ALL, &options) {
        Ok(region) => {
            assert_eq!(resident(memory.ptr().as_ptr(), len), len / 4096);
            table.deregister(region.stag()).unwrap();
        }
        Err(refused) => assert!(refused.to_string().contains("RLIMIT_MEMLOCK"), "{refused}"),
    }
}

#[test]
#[cfg_attr(miri, ignore = "needs the list of mappings")]
fn memory_that_is_not_mapped_is_refused_by_address() {
    let table = table();
    // Below the lowest address that the kernel lets programs map.
    let refused =
        register(&table, NonNull::new(0x1000 as *mut u8).unwrap(), 16, Access::empty()).unwrap_err();
    assert!(matches!(refused, MemError::NotMapped { at: 0x1000, .. }));
    assert!(refused.to_string().contains("0x1000"), "{refused}");
    assert!(table.is_empty());
}

#[test]
#[cfg_attr(miri, ignore = "needs the list of mappings")]
fn memory_past_the_end_of_the_address_space_is_refused() {
    let table = table();
    let refused = register(&table, NonNull::dangling(), usize::MAX, Access::empty()).unwrap_err();
    assert!(matches!(refused, MemError::Wrap { .. } | MemError::NotMapped { .. }), "{refused}");
    let refused =
        register(&table, NonNull::new(8 as *mut u8).unwrap(), usize::MAX, Access::empty()).unwrap_err();
    assert!(matches!(refused, MemError::Wrap { .. }), "{refused}");
}

#[test]
#[cfg_attr(miri, ignore = "needs the list of mappings")]
fn read_only_memory_takes_no_right_that_writes() {
    let memory = map(3 * 4096);
    protect(&memory, 4096, 4096, libc::PROT_READ);
    let table = table();
    for access in [Access::LOCAL_WRITE, Access::LOCAL_WRITE | Access::REMOTE_WRITE, ALL] {
        let refused = register(&table, memory.ptr(), 3 * 4096, access).unwrap_err();
        let at = memory.ptr().addr().get() as u64 + 4096;
        assert!(
            matches!(refused, MemError::NotPermitted { at: found, write: true } if found == at),
            "{refused}"
        );
        assert!(refused.to_string().contains("write permission"), "{refused}");
    }
    let region = register(&table, memory.ptr(), 3 * 4096, Access::REMOTE_READ).unwrap();
    assert!(matches!(region.write_at(4096, b"x"), Err(MemError::ReadOnly)));
    assert!(matches!(region.fetch_modify_u64(4096, true, Some), Err(MemError::ReadOnly)));
    assert_eq!(region.fetch_modify_u64(4096, false, Some).unwrap(), 0);
    let refused = table.reregister(region.stag(), Access::LOCAL_WRITE);
    assert!(matches!(refused, Err(MemError::ReadOnly)));
    register(&table, memory.ptr(), 4096, ALL).unwrap();
    drop(table);
}

#[test]
#[cfg_attr(miri, ignore = "needs the list of mappings")]
fn memory_without_read_permission_is_refused() {
    let memory = map(2 * 4096);
    protect(&memory, 4096, 4096, libc::PROT_NONE);
    let table = table();
    let refused = register(&table, memory.ptr(), 4097, Access::empty()).unwrap_err();
    assert!(matches!(refused, MemError::NotPermitted { write: false, .. }), "{refused}");
    register(&table, memory.ptr(), 4096, ALL).unwrap();
    drop(table);
}

#[test]
#[cfg_attr(miri, ignore = "needs the list of mappings")]
fn memory_of_several_mappings_side_by_side_is_one_region() {
    let memory = map(8 * 4096);
    // Different advice splits a mapping into several.
    for page in [1, 3, 5] {
        // SAFETY: part of a mapping of the test's own; the advice is about dumps only.
        let answer = unsafe {
            libc::madvise(memory.ptr().add(page * 4096).as_ptr().cast(), 4096, libc::MADV_DONTDUMP)
        };
        assert_eq!(answer, 0);
    }
    let table = table();
    let region = register(&table, memory.ptr(), 8 * 4096, ALL).unwrap();
    let grant =
        table.check_remote(region.stag(), region.base_to(), 8 * 4096, Access::REMOTE_WRITE, PD, QP).unwrap();
    grant.place(0, &vec![7; 8 * 4096]).unwrap();
    drop(grant);
    assert_eq!(octets(&region), vec![7; 8 * 4096]);
    drop(table);
}

#[test]
fn rights_are_checked_before_memory_is() {
    let table = table();
    let refused = register(&table, NonNull::dangling(), 16, Access::REMOTE_ATOMIC).unwrap_err();
    assert!(matches!(refused, MemError::RemoteWriteNeedsLocalWrite));
}
