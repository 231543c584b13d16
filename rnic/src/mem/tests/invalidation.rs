//! Invalidation: the parties that may make a region's STag invalid, and the effect
//! (draft-hilland-rddp-verbs §7.8).
#![forbid(unsafe_code)]

use rddp_rdmap::{AccessError, InvalidateError};

use super::*;
use crate::mem::MemError;

fn write(table: &MemTable, region: &Region) -> Option<AccessError> {
    table.check_remote(region.stag(), region.base_to(), 8, Access::REMOTE_WRITE, PD, QP).err()
}

/// RFC 5040 §5.3, RFC 5042 §6.2.2
#[test]
fn an_invalidated_stag_opens_nothing() {
    let table = table();
    for remote in [false, true] {
        let region = allocate(&table, 64, ALL);
        assert_eq!(write(&table, &region), None);
        match remote {
            true => table.invalidate_remote(region.stag(), PD, QP).unwrap(),
            false => table.invalidate_local(region.stag(), PD, QP).unwrap(),
        }
        assert!(!region.is_valid());
        assert_eq!(write(&table, &region), Some(AccessError::Stag));
        let local = table.check_local(region.stag(), region.base_to(), 8, false, PD);
        assert_eq!(local.err(), Some(AccessError::Stag));
    }
}

#[test]
fn invalidating_twice_succeeds() {
    let table = table();
    let region = allocate(&table, 64, ALL);
    for _ in 0..2 {
        assert_eq!(table.invalidate_remote(region.stag(), PD, QP), Ok(()));
        assert_eq!(table.invalidate_local(region.stag(), PD, QP), Ok(()));
    }
}

/// RFC 5042 §6.4.5: a peer invalidates only an STag that was given with that right.
#[test]
fn a_peer_needs_the_right_to_invalidate() {
    let table = table();
    let region = allocate(&table, 64, ALL - Access::REMOTE_INVALIDATE);
    assert_eq!(table.invalidate_remote(region.stag(), PD, QP), Err(InvalidateError::Rights));
    assert_eq!(write(&table, &region), None);
    assert_eq!(table.invalidate_local(region.stag(), PD, QP), Ok(()));
}

/// RFC 5042 §6.1.1, with the worked attack "another tenant's STag".
#[test]
fn another_pd_cannot_invalidate() {
    let table = table();
    let region = allocate(&table, 64, ALL);
    for qp in [QP, OTHER_QP] {
        assert_eq!(table.invalidate_remote(region.stag(), OTHER_PD, qp), Err(InvalidateError::Pd));
        assert_eq!(table.invalidate_local(region.stag(), OTHER_PD, qp), Err(InvalidateError::Pd));
    }
    assert_eq!(write(&table, &region), None);
    table.invalidate_local(region.stag(), PD, QP).unwrap();
    assert_eq!(table.invalidate_local(region.stag(), OTHER_PD, QP), Err(InvalidateError::Pd));
}

/// RFC 5042 §6.2.2: the owner reads and validates received octets after it has taken away the right
/// to change them.
#[test]
fn the_owner_reads_and_writes_an_invalidated_region() {
    let table = table();
    let region = allocate(&table, 8, ALL);
    let grant = table.check_remote(region.stag(), region.base_to(), 8, Access::REMOTE_WRITE, PD, QP).unwrap();
    grant.place(0, b"received").unwrap();
    drop(grant);
    table.invalidate_local(region.stag(), PD, QP).unwrap();
    assert_eq!(octets(&region), b"received");
    region.write_at(2, b"vis").unwrap();
    assert_eq!(octets(&region), b"revisved");
}

/// RFC 5042 §6.1.1: the key changes at each registration of the same index.
#[test]
fn registering_again_changes_the_key_and_may_change_the_rights() {
    let table = table();
    let region = allocate(&table, 64, ALL);
    let first = region.stag();
    table.invalidate_remote(first, PD, QP).unwrap();
    let second = table.reregister(first, Access::REMOTE_READ).unwrap();
    assert_eq!((second, region.is_valid()), (region.stag(), true));
    assert_eq!((second.0 >> 8, second != first), (first.0 >> 8, true));
    assert_eq!(region.access(), Access::REMOTE_READ);
    assert_eq!(write(&table, &region), Some(AccessError::Rights));
    let stale = table.check_remote(first, region.base_to(), 8, Access::REMOTE_READ, PD, QP);
    assert_eq!(stale.err(), Some(AccessError::Stag));
    assert_eq!(table.invalidate_local(first, PD, QP), Err(InvalidateError::Key));
    assert!(matches!(table.reregister(first, ALL), Err(MemError::UnknownStag(_))));
    assert!(matches!(table.deregister(first), Err(MemError::UnknownStag(_))));
    let third = table.reregister(second, ALL).unwrap();
    assert_ne!(third, second, "also without invalidation in between");
    assert_eq!(write(&table, &region), None);
}

#[test]
fn registering_again_keeps_the_rules_for_rights() {
    let table = table();
    let region = allocate(&table, 64, Access::empty());
    let stag = region.stag();
    let refused = table.reregister(stag, Access::REMOTE_WRITE);
    assert!(matches!(refused, Err(MemError::RemoteWriteNeedsLocalWrite)));
    let refused = table.reregister(stag, Access::BIND | Access::ZERO_BASED);
    assert!(matches!(refused, Err(MemError::BindNeedsAddresses)));
    assert_eq!((region.stag(), region.is_valid()), (stag, true));
}
