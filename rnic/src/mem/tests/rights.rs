//! Checks of accesses: rights, PDs, streams, bounds, and the order of the checks.
#![forbid(unsafe_code)]

use rddp_ddp::Stag;
use rddp_rdmap::{AccessError, InvalidateError};

use super::*;
use crate::mem::{Grant, MemError};

/// A use of a region.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Use {
    Write,
    ReadSource,
    Atomic,
    LocalRead,
    LocalWrite,
}

/// All rights of a region whose Tagged Offsets begin at 0.
const ZERO_BASED: Access = ALL.difference(Access::BIND).union(Access::ZERO_BASED);

const USES: [Use; 5] = [Use::Write, Use::ReadSource, Use::Atomic, Use::LocalRead, Use::LocalWrite];

fn check(
    table: &MemTable,
    how: Use,
    stag: Stag,
    to: u64,
    len: u64,
    pd: PdId,
    qp: QpNum,
) -> Result<Grant, AccessError> {
    match how {
        Use::Write => table.check_remote(stag, to, len, Access::REMOTE_WRITE, pd, qp),
        Use::ReadSource => table.check_remote(stag, to, len, Access::REMOTE_READ, pd, qp),
        Use::Atomic => table.check_remote(stag, to, len, Access::REMOTE_ATOMIC, pd, qp),
        Use::LocalRead => table.check_local(stag, to, len, false, pd),
        Use::LocalWrite => table.check_local(stag, to, len, true, pd),
    }
}

/// Returns whether the rights allow a use, written independently of the code under test
/// (draft-hilland-rddp-verbs §7.5).
fn gives(access: Access, how: Use) -> bool {
    match how {
        Use::Write => access.contains(Access::REMOTE_WRITE),
        Use::ReadSource => access.contains(Access::REMOTE_READ),
        Use::Atomic => access.contains(Access::REMOTE_ATOMIC),
        Use::LocalRead => true,
        Use::LocalWrite => access.contains(Access::LOCAL_WRITE),
    }
}

fn all_rights() -> impl Iterator<Item = Access> {
    (0..=Access::all().bits()).filter_map(Access::from_bits)
}

fn legal(access: Access) -> bool {
    let remote_write = access.contains(Access::REMOTE_WRITE) || access.contains(Access::REMOTE_ATOMIC);
    let local_write = access.contains(Access::LOCAL_WRITE);
    let changes = local_write || remote_write;
    let stable = access.contains(Access::STABLE);
    (local_write || !remote_write)
        && !access.contains(Access::BIND | Access::ZERO_BASED)
        && (!stable || !changes)
}

/// RFC 5040 §8.1.1, draft-hilland-rddp-verbs §7.6.3: each use needs its right and no other.
#[test]
fn every_use_needs_exactly_its_right() {
    let table = table();
    for access in all_rights() {
        let region = table.allocate(PD, 64, access, &RegionOptions::default());
        assert_eq!(region.is_ok(), legal(access), "{access:?}");
        let Ok(region) = region else { continue };
        for how in USES {
            for len in [0, 1, 8, 64] {
                let answer = check(&table, how, region.stag(), region.base_to(), len, PD, QP);
                let wanted = if gives(access, how) { Ok(len as usize) } else { Err(AccessError::Rights) };
                assert_eq!(answer.map(|grant| grant.len()), wanted, "{how:?} of {len} with {access:?}");
            }
        }
        table.deregister(region.stag()).unwrap();
    }
}

/// RFC 5042 §6.3.5: a grant for reading cannot be written to, not even by a mistake of the engine.
#[test]
fn only_uses_that_change_octets_get_writable_grants() {
    let table = table();
    let region = allocate(&table, 64, ALL);
    for how in USES {
        let grant = check(&table, how, region.stag(), region.base_to(), 8, PD, QP).unwrap();
        assert_eq!(grant.is_writable(), matches!(how, Use::Write | Use::Atomic | Use::LocalWrite), "{how:?}");
    }
}

#[test]
fn wanting_nothing_or_no_remote_right_is_refused() {
    let table = table();
    let region = allocate(&table, 64, ALL);
    for want in [Access::empty(), Access::LOCAL_WRITE, Access::BIND, Access::REMOTE_INVALIDATE] {
        let answer = table.check_remote(region.stag(), region.base_to(), 8, want, PD, QP);
        assert_eq!(answer.err(), Some(AccessError::Rights), "{want:?}");
    }
}

/// RFC 5041 §7.1, §8.3: the exact octets and not one more, without wrapping. Compared with
/// arithmetic that cannot wrap.
#[test]
fn ranges_are_exact_to_the_octet_and_do_not_wrap() {
    let table = table();
    for access in [ALL, ZERO_BASED] {
        let region = allocate(&table, 4096, access);
        let base = region.base_to();
        let edges = [0, 1, 4095, 4096, 4097, u64::MAX, u64::MAX - 1, u64::MAX - 4096];
        for to in edges.map(|edge| base.wrapping_add(edge)).into_iter().chain(edges) {
            for len in [1, 2, 8, 4095, 4096, 4097, u64::from(u32::MAX), u64::MAX] {
                let end = u128::from(to) + u128::from(len);
                let wanted = if end > 1 << 64 {
                    Err(AccessError::Wrap)
                } else if to < base || end > u128::from(base) + 4096 {
                    Err(AccessError::Bounds)
                } else {
                    Ok(len as usize)
                };
                for how in USES {
                    let answer = check(&table, how, region.stag(), to, len, PD, QP).map(|grant| grant.len());
                    assert_eq!(answer, wanted, "{how:?} of {len} at {to:#x}, region at {base:#x}");
                }
            }
        }
    }
}

/// RFC 5042 §6.2.1, with the worked attack "one octet past the end".
#[test]
#[cfg_attr(miri, ignore = "needs the list of mappings")]
fn octets_around_a_region_never_change() {
    let memory = Guarded::new(256);
    let table = table();
    let region = memory.register(&table, ALL);
    let base = region.base_to();
    for len in 1..=258 {
        for to in base - 2..=base + 258 {
            let answer = table.check_remote(region.stag(), to, len, Access::REMOTE_WRITE, PD, QP);
            if let Ok(grant) = answer {
                grant.place(0, &vec![0xff; len as usize]).unwrap();
            }
        }
    }
    assert_eq!(octets(&region), [0xff; 256]);
    assert!(memory.is_intact());
    drop(table);
}

/// RFC 5040 §8.1.1: all 32 bits of an STag, index and key, count for every use and for
/// invalidation.
#[test]
fn every_bit_of_the_stag_counts() {
    let table = table();
    let region = allocate(&table, 64, ALL);
    for bit in 0..32 {
        let wrong = Stag(region.stag().0 ^ 1 << bit);
        for how in USES {
            let answer = check(&table, how, wrong, region.base_to(), 8, PD, QP);
            assert_eq!(answer.err(), Some(AccessError::Stag), "{how:?}, bit {bit}");
        }
        let wanted = if bit < 8 { InvalidateError::Key } else { InvalidateError::Unknown };
        assert_eq!(table.invalidate_local(wrong, PD, QP), Err(wanted), "bit {bit}");
        assert_eq!(table.invalidate_remote(wrong, PD, QP), Err(wanted), "bit {bit}");
    }
    for wrong in [Stag(0), Stag(0xff), Stag(u32::MAX)] {
        assert_eq!(check(&table, Use::Write, wrong, 0, 8, PD, QP).err(), Some(AccessError::Stag));
        assert_eq!(table.invalidate_remote(wrong, PD, QP), Err(InvalidateError::Unknown));
    }
    assert!(region.is_valid());
}

/// RFC 5041 §8.2, RFC 5042 §6.1.1: a matrix of two PDs, two streams, and every use.
#[test]
fn an_stag_works_only_in_its_pd() {
    let table = table();
    let mine = allocate(&table, 64, ALL);
    let theirs = table.allocate(OTHER_PD, 64, ALL, &RegionOptions::default()).unwrap();
    for (region, owner) in [(&mine, PD), (&theirs, OTHER_PD)] {
        for pd in [PD, OTHER_PD] {
            for qp in [QP, OTHER_QP] {
                for how in USES {
                    let answer = check(&table, how, region.stag(), region.base_to(), 8, pd, qp);
                    let wanted = if pd == owner { Ok(8) } else { Err(AccessError::Pd) };
                    assert_eq!(
                        answer.map(|grant| grant.len()),
                        wanted,
                        "{how:?} of {owner}'s from {pd}, {qp}"
                    );
                }
            }
        }
    }
}

/// RFC 5041 §8.2: an STag given to one stream cannot be used by the peers of others.
#[test]
fn an_stag_given_to_one_qp_works_only_there() {
    let table = table();
    let options = RegionOptions { qp: Some(QP), ..RegionOptions::default() };
    let region = table.allocate(PD, 64, ALL, &options).unwrap();
    for how in [Use::Write, Use::ReadSource, Use::Atomic] {
        assert!(check(&table, how, region.stag(), region.base_to(), 8, PD, QP).is_ok(), "{how:?}");
        let answer = check(&table, how, region.stag(), region.base_to(), 8, PD, OTHER_QP);
        assert_eq!(answer.err(), Some(AccessError::Pd), "{how:?}");
    }
    assert_eq!(table.invalidate_remote(region.stag(), PD, OTHER_QP), Err(InvalidateError::Pd));
    assert_eq!(table.invalidate_remote(region.stag(), PD, QP), Ok(()));
}

/// RFC 5041 §7.1: the first fault in this order is the one that the peer is told of.
#[test]
fn faults_are_found_in_the_order_of_the_rfc() {
    let table = table();
    let region = allocate(&table, 64, Access::REMOTE_READ);
    let (stag, base) = (region.stag(), region.base_to());
    let write = |stag, to, pd| table.check_remote(stag, to, 8, Access::REMOTE_WRITE, pd, QP).err();
    let read = |to| table.check_remote(stag, to, 8, Access::REMOTE_READ, PD, QP).err();
    assert_eq!(write(Stag(stag.0 ^ 1), u64::MAX, OTHER_PD), Some(AccessError::Stag));
    assert_eq!(write(stag, u64::MAX, OTHER_PD), Some(AccessError::Pd));
    assert_eq!(write(stag, u64::MAX, PD), Some(AccessError::Rights));
    assert_eq!(read(u64::MAX), Some(AccessError::Wrap));
    assert_eq!(read(base + 60), Some(AccessError::Bounds));
    assert_eq!(read(base + 56), None);
}

#[test]
fn a_zero_based_region_counts_from_zero() {
    let table = table();
    let region = allocate(&table, 64, ZERO_BASED);
    assert_eq!(region.base_to(), 0);
    let grant = table.check_remote(region.stag(), 60, 4, Access::REMOTE_WRITE, PD, QP).unwrap();
    grant.place(0, b"tail").unwrap();
    assert_eq!(&octets(&region)[56..], b"\0\0\0\0tail");
}

#[test]
fn a_region_without_octets_grants_none() {
    let table = table();
    let region = allocate(&table, 0, ALL);
    assert!(region.is_empty());
    let answer = table.check_remote(region.stag(), region.base_to(), 1, Access::REMOTE_WRITE, PD, QP);
    assert_eq!(answer.err(), Some(AccessError::Bounds));
}

/// The Tagged Offset of the first octet is its owner's choice, and the address then opens nothing.
#[test]
fn a_region_begins_at_the_tagged_offset_that_its_owner_chooses() {
    let table = table();
    let last = u64::MAX - 16;
    let zero_based = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::ZERO_BASED;
    for (base, access, first) in
        [(Some(0), ALL, 0), (Some(5), ALL, 5), (Some(last), ALL, last), (Some(5), zero_based, 0)]
    {
        let options = RegionOptions { base, ..RegionOptions::default() };
        let region = table.allocate(PD, 16, access, &options).unwrap();
        assert_eq!(region.base_to(), first);
        let remote = |to| check(&table, Use::Write, region.stag(), to, 2, PD, QP);
        remote(first + 3).unwrap().place(0, b"ab").unwrap();
        assert_eq!(octets(&region)[2..6], *b"\0ab\0");
        assert_eq!(remote(first + 15).err(), Some(AccessError::Bounds));
        let local = |to| check(&table, Use::LocalWrite, region.stag(), to, 1, PD, QP).err();
        assert_eq!((local(first), local(first + 15)), (None, None));
        let address = region.as_ptr().addr() as u64;
        assert_eq!([local(address), remote(address).err()], [Some(AccessError::Bounds); 2], "{base:?}");
    }
    for base in [last + 1, u64::MAX] {
        let options = RegionOptions { base: Some(base), ..RegionOptions::default() };
        let refused = table.allocate(PD, 16, ALL, &options).unwrap_err();
        assert!(matches!(refused, MemError::Wrap { addr, len: 16 } if addr == base), "{refused}");
    }
}

/// Registering again changes rights and key, and not the Tagged Offsets.
#[test]
fn a_chosen_tagged_offset_lasts_as_long_as_the_region() {
    let table = table();
    let options = RegionOptions { base: Some(1 << 50), ..RegionOptions::default() };
    let region = table.allocate(PD, 16, ALL, &options).unwrap();
    let stag = table.reregister_region(&region, Access::REMOTE_READ).unwrap();
    assert!(check(&table, Use::ReadSource, stag, 1 << 50, 16, PD, QP).is_ok());
}
