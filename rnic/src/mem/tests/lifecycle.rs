//! Lifetimes of registrations and STags, and the table's own counts.

use std::collections::HashSet;

use rddp_rdmap::{AccessError, InvalidateError};

use super::*;
use crate::capabilities::CAPABILITIES;
use crate::mem::MemError;

#[test]
fn a_deregistered_stag_is_unknown() {
    let table = table();
    let region = allocate(&table, 64, ALL);
    let stag = region.stag();
    table.deregister(stag).unwrap();
    assert!(!region.is_valid());
    let answer = table.check_remote(stag, region.base_to(), 8, Access::REMOTE_WRITE, PD, QP);
    assert_eq!(answer.err(), Some(AccessError::Stag));
    assert_eq!(table.invalidate_local(stag, PD, QP), Err(InvalidateError::Unknown));
    assert!(matches!(table.deregister(stag), Err(MemError::UnknownStag(_))));
    assert!(matches!(table.reregister(stag, ALL), Err(MemError::UnknownStag(_))));
}

#[test]
fn memory_of_our_own_outlives_its_registration_while_somebody_has_it() {
    let table = table();
    let region = allocate(&table, 8, ALL);
    region.write_at(0, b"still on").unwrap();
    table.deregister(region.stag()).unwrap();
    drop(table);
    assert_eq!(octets(&region), b"still on");
}

#[test]
#[cfg_attr(miri, ignore = "needs the list of mappings")]
fn memory_of_the_programs_is_not_touched_after_deregistration() {
    let memory = Guarded::new(64);
    let table = table();
    let region = memory.register(&table, ALL);
    region.write_at(0, b"x").unwrap();
    table.deregister(region.stag()).unwrap();
    assert!(matches!(region.read_at(0, &mut [0]), Err(MemError::Deregistered)));
    assert!(matches!(region.write_at(0, b"y"), Err(MemError::Deregistered)));
}

#[test]
#[cfg_attr(miri, ignore = "needs the list of mappings")]
fn dropping_the_table_ends_every_registration() {
    let memory = Guarded::new(64);
    let table = table();
    let region = memory.register(&table, ALL);
    let window = table.allocate_window(PD).unwrap();
    let bind = crate::mem::BindWindow {
        window: window.stag(),
        region: region.stag(),
        addr: region.base_to(),
        len: 8,
        access: Access::REMOTE_WRITE,
        pd: PD,
        qp: QP,
        key: None,
    };
    table.bind(&bind).unwrap();
    drop(table);
    assert!(!region.is_valid() && !window.is_valid());
    assert!(matches!(region.read_at(0, &mut [0]), Err(MemError::Deregistered)));
}

#[test]
fn reads_and_writes_of_the_owner_stay_inside() {
    let table = table();
    let region = allocate(&table, 8, Access::empty());
    region.write_at(4, b"last").unwrap();
    region.write_at(8, b"").unwrap();
    for offset in [5, 8, 9, usize::MAX] {
        assert!(matches!(region.write_at(offset, b"four"), Err(MemError::OutOfBounds { .. })), "{offset}");
        assert!(matches!(region.read_at(offset, &mut [0; 4]), Err(MemError::OutOfBounds { .. })), "{offset}");
    }
    assert_eq!(octets(&region), b"\0\0\0\0last");
}

#[test]
fn the_limit_of_stags_counts_regions_and_windows_that_are_there() {
    // A table of the device's size would take a million of them.
    assert_eq!(MemLimits::default().stags, CAPABILITIES.max_stags);
    let table = MemTable::new(MemLimits { stags: 2 });
    let region = allocate(&table, 8, ALL);
    let window = table.allocate_window(PD).unwrap();
    let refused = table.allocate(PD, 8, ALL, &RegionOptions::default());
    assert!(matches!(refused, Err(MemError::TooManyStags { limit: 2 })));
    assert!(matches!(table.allocate_window(PD), Err(MemError::TooManyStags { limit: 2 })));
    table.deregister(region.stag()).unwrap();
    table.allocate_window(PD).unwrap();
    table.deallocate_window(window.stag()).unwrap();
    assert_eq!(table.len(), 1);
}

#[test]
fn objects_are_counted_by_their_pd() {
    let table = table();
    let region = allocate(&table, 8, ALL);
    let window = table.allocate_window(PD).unwrap();
    assert_eq!((table.objects_of(PD), table.objects_of(OTHER_PD)), (2, 0));
    table.deregister(region.stag()).unwrap();
    assert_eq!(table.objects_of(PD), 1);
    table.deallocate_window(window.stag()).unwrap();
    assert_eq!(table.objects_of(PD), 0);
    assert!(table.is_empty());
}

/// RFC 5042 §6.1.1: no early reuse, and no two live STags with one index.
#[test]
fn ten_thousand_registrations_never_meet_an_index_again() {
    let table = table();
    let count = if cfg!(miri) { 300 } else { 10_000 };
    let mut seen = HashSet::new();
    let mut live = Vec::new();
    for turn in 0..count {
        let window = table.allocate_window(PD).unwrap();
        assert!(window.stag().0 >> 8 != 0);
        assert!(seen.insert(window.stag().0 >> 8), "{} is used again", window.stag());
        // Half of them stay, the others go at once.
        match turn % 2 {
            0 => live.push(window),
            _ => table.deallocate_window(window.stag()).unwrap(),
        }
    }
    assert_eq!(table.len(), count / 2);
}

#[test]
fn every_one_of_many_regions_is_found_and_kept_apart() {
    let table = table();
    let count = if cfg!(miri) { 200 } else { 3_000 };
    let regions: Vec<_> = (0..count).map(|_| allocate(&table, 8, ALL)).collect();
    for (number, region) in regions.iter().enumerate() {
        let grant =
            table.check_remote(region.stag(), region.base_to(), 8, Access::REMOTE_WRITE, PD, QP).unwrap();
        grant.place(0, &number.to_le_bytes()).unwrap();
    }
    for (number, region) in regions.iter().enumerate() {
        assert_eq!(octets(region), number.to_le_bytes());
        table.deregister(region.stag()).unwrap();
    }
    assert!(table.is_empty());
}

#[test]
fn handles_tell_what_they_are() {
    let table = table();
    let region = allocate(&table, 64, Access::REMOTE_READ);
    assert_eq!((region.pd(), region.len(), region.access()), (PD, 64, Access::REMOTE_READ));
    assert_eq!(region.base_to(), region.as_ptr().addr() as u64);
    let said = format!("{region:?}");
    assert!(said.contains("REMOTE_READ") && said.contains("valid: true"), "{said}");
    let window = table.allocate_window(PD).unwrap();
    assert_eq!((window.pd(), window.access()), (PD, Access::empty()));
    assert!(format!("{window:?}").contains("valid: false"));
}
