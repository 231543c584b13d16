//! Memory windows (draft-hilland-rddp-verbs §7.10).
#![forbid(unsafe_code)]

use rddp_ddp::Stag;
use rddp_rdmap::{AccessError, InvalidateError};

use super::*;
use crate::mem::{BindWindow, MemError, Window};

const REMOTE: Access = Access::REMOTE.union(Access::REMOTE_INVALIDATE);

/// A region of 64 octets, and a window bound to 16 of them from offset 16 on.
struct Bound {
    table: MemTable,
    region: Arc<Region>,
    window: Arc<Window>,
}

fn request(region: &Region, window: &Window) -> BindWindow {
    BindWindow {
        window: window.stag(),
        region: region.stag(),
        addr: region.base_to() + 16,
        len: 16,
        access: REMOTE,
        pd: PD,
        qp: QP,
        key: None,
    }
}

fn unbound(access: Access) -> Bound {
    let table = table();
    let region = allocate(&table, 64, access);
    let window = table.allocate_window(PD).unwrap();
    Bound { table, region, window }
}

fn bound() -> Bound {
    let all = unbound(Access::LOCAL_WRITE | Access::BIND);
    all.table.bind(&request(&all.region, &all.window)).unwrap();
    all
}

fn error(answer: Result<Stag, MemError>) -> String {
    answer.unwrap_err().to_string()
}

#[test]
fn an_unbound_window_opens_nothing() {
    let Bound { table, region, window } = unbound(ALL);
    assert!(!window.is_valid());
    let answer = table.check_remote(window.stag(), region.base_to(), 1, Access::REMOTE_READ, PD, QP);
    assert_eq!(answer.err(), Some(AccessError::Stag));
}

/// draft-hilland-rddp-verbs §7.6.3: an access through a window does not depend on the region's
/// remote rights.
#[test]
fn a_window_gives_its_own_rights_to_its_own_range() {
    let Bound { table, region, window } = bound();
    let base = region.base_to();
    let check = |to, len| table.check_remote(window.stag(), to, len, Access::REMOTE_WRITE, PD, QP);
    check(base + 16, 16).unwrap().place(0, &[7; 16]).unwrap();
    assert_eq!(octets(&region), [[0; 16], [7; 16], [0; 16], [0; 16]].concat());
    assert_eq!(check(base + 15, 1).err(), Some(AccessError::Bounds));
    assert_eq!(check(base + 31, 2).err(), Some(AccessError::Bounds));
    assert_eq!(check(base + 32, 1).err(), Some(AccessError::Bounds));
    let direct = table.check_remote(region.stag(), base + 16, 1, Access::REMOTE_WRITE, PD, QP);
    assert_eq!(direct.err(), Some(AccessError::Rights));
}

#[test]
fn a_window_without_a_right_does_not_borrow_the_regions() {
    let Bound { table, region, window } = unbound(ALL);
    let read_only = BindWindow { access: Access::REMOTE_READ, ..request(&region, &window) };
    let stag = table.bind(&read_only).unwrap();
    let check = |want| table.check_remote(stag, read_only.addr, 8, want, PD, QP).err();
    assert_eq!(check(Access::REMOTE_READ), None);
    assert_eq!(check(Access::REMOTE_WRITE), Some(AccessError::Rights));
    assert_eq!(check(Access::REMOTE_ATOMIC), Some(AccessError::Rights));
}

/// draft-hilland-rddp-verbs §7.6.3: a window is checked by the QP it was bound on.
#[test]
fn a_window_serves_the_peer_of_one_qp_only() {
    let Bound { table, region, window } = bound();
    let check =
        |qp| table.check_remote(window.stag(), region.base_to() + 16, 1, Access::REMOTE_READ, PD, qp).err();
    assert_eq!(check(QP), None);
    assert_eq!(check(OTHER_QP), Some(AccessError::Pd));
}

#[test]
fn a_window_is_no_memory_for_work_requests() {
    let Bound { table, region, window } = bound();
    let answer = table.check_local(window.stag(), region.base_to() + 16, 1, false, PD);
    assert_eq!(answer.err(), Some(AccessError::Stag));
}

#[test]
fn a_zero_based_window_counts_from_its_own_start() {
    let Bound { table, region, window } = unbound(Access::LOCAL_WRITE | Access::BIND);
    let access = Access::REMOTE_WRITE | Access::ZERO_BASED;
    let stag = table.bind(&BindWindow { access, ..request(&region, &window) }).unwrap();
    table.check_remote(stag, 0, 2, Access::REMOTE_WRITE, PD, QP).unwrap().place(0, b"ab").unwrap();
    assert_eq!(&octets(&region)[16..18], b"ab");
    assert_eq!(
        table.check_remote(stag, 16, 1, Access::REMOTE_WRITE, PD, QP).err(),
        Some(AccessError::Bounds)
    );
}

/// A region whose Tagged Offsets begin where its owner has chosen has windows like any other.
#[test]
fn a_window_names_its_range_by_the_regions_tagged_offsets() {
    let table = table();
    let options = RegionOptions { base: Some(1 << 40), ..RegionOptions::default() };
    let region = table.allocate(PD, 64, Access::LOCAL_WRITE | Access::BIND, &options).unwrap();
    let window = table.allocate_window(PD).unwrap();
    let stag = table.bind(&request(&region, &window)).unwrap();
    let check = |to| table.check_remote(stag, to, 2, Access::REMOTE_WRITE, PD, QP);
    check((1 << 40) + 16).unwrap().place(0, b"ab").unwrap();
    assert_eq!(&octets(&region)[16..18], b"ab");
    assert_eq!(check((1 << 40) + 15).err(), Some(AccessError::Bounds));
}

/// RFC 5042 §6.1.1: the key changes, so the STag of the last binding is invalid.
#[test]
fn binding_changes_the_key_and_not_the_index() {
    let Bound { table, region, window } = unbound(ALL);
    let before = window.stag();
    let stag = table.bind(&request(&region, &window)).unwrap();
    assert_eq!(stag, window.stag());
    assert_eq!((stag.0 >> 8, stag != before), (before.0 >> 8, true));
    table.invalidate_local(stag, PD, QP).unwrap();
    let chosen = table.bind(&BindWindow { key: Some(0x5a), ..request(&region, &window) }).unwrap();
    assert_eq!(chosen.0, stag.0 & !0xff | 0x5a);
}

/// draft-hilland-rddp-verbs §7.10.2, §7.10.6.1: each condition of a bind is checked, and nothing
/// changes if one fails.
#[test]
fn a_bind_that_breaks_a_rule_is_refused_and_leaves_no_trace() {
    let Bound { table, region, window } = unbound(Access::BIND);
    let good = BindWindow { access: Access::REMOTE_READ, ..request(&region, &window) };
    let plain = allocate(&table, 64, Access::LOCAL_WRITE);
    let foreign = table.allocate(OTHER_PD, 64, ALL, &RegionOptions::default()).unwrap();
    let past_the_end = BindWindow { len: 49, ..good };
    let before_the_start = BindWindow { addr: region.base_to() - 1, ..good };
    let not_covered = BindWindow { access: Access::REMOTE_WRITE, ..good };
    let cases = [
        (BindWindow { window: Stag(window.stag().0 ^ 1), ..good }, "names nothing"),
        (BindWindow { window: region.stag(), ..good }, "names nothing"),
        (BindWindow { region: Stag(region.stag().0 ^ 1), ..good }, "names nothing"),
        (BindWindow { region: window.stag(), ..good }, "names nothing"),
        (BindWindow { pd: OTHER_PD, ..good }, "another protection domain"),
        (BindWindow { region: foreign.stag(), ..good }, "another protection domain"),
        (BindWindow { region: plain.stag(), ..good }, "with the bind right"),
        (past_the_end, "not inside the region"),
        (before_the_start, "not inside the region"),
        (BindWindow { addr: u64::MAX, ..good }, "not inside the region"),
        (not_covered, "need the local write right"),
        (BindWindow { access: Access::REMOTE_ATOMIC, ..good }, "need the local write right"),
        (BindWindow { access: Access::LOCAL_WRITE, ..good }, "remote access only"),
        (BindWindow { access: Access::BIND, ..good }, "remote access only"),
    ];
    for (request, wanted) in cases {
        let said = error(table.bind(&request));
        assert!(said.contains(wanted), "{request:?}: {said}");
        assert!(!window.is_valid());
        assert_eq!(table.windows_of(QP), 0);
    }
    table.bind(&good).unwrap();
    let again = error(table.bind(&BindWindow { window: window.stag(), ..good }));
    assert!(again.contains("already bound"), "{again}");
    assert_eq!(table.windows_of(QP), 1);
}

/// A window is stable only to a region that is, and then opens nothing to be written.
#[test]
fn a_window_is_stable_if_its_region_is() {
    let stable = Access::REMOTE_READ | Access::STABLE;
    for (region, window, wanted) in [
        (Access::BIND | Access::STABLE, stable, None),
        (Access::BIND | Access::STABLE, Access::REMOTE_READ, None),
        (Access::BIND, stable, Some("has to be stable, too")),
        (Access::BIND | Access::LOCAL_WRITE, stable, Some("has to be stable, too")),
        (Access::BIND | Access::STABLE, stable | Access::REMOTE_WRITE, Some("need the local write right")),
        (Access::BIND | Access::LOCAL_WRITE, stable | Access::REMOTE_WRITE, Some("has to be stable, too")),
    ] {
        let Bound { table, region, window: bound } = unbound(region);
        let answer = table.bind(&BindWindow { access: window, ..request(&region, &bound) });
        match wanted {
            Some(wanted) => assert!(error(answer).contains(wanted), "{window:?}"),
            None => {
                let to = region.base_to() + 16;
                let grant = table.check_remote(answer.unwrap(), to, 16, Access::REMOTE_READ, PD, QP).unwrap();
                assert_eq!(grant.is_stable(), window.contains(Access::STABLE));
            }
        }
    }
}

#[test]
fn an_invalid_region_takes_no_window() {
    let Bound { table, region, window } = unbound(ALL);
    table.invalidate_local(region.stag(), PD, QP).unwrap();
    assert!(error(table.bind(&request(&region, &window))).contains("is invalid"));
}

/// draft-hilland-rddp-verbs §5.2.2, §7.8, §7.9: a region with windows bound stays as it is.
#[test]
fn a_region_with_windows_is_neither_deregistered_nor_invalidated() {
    let Bound { table, region, window } = bound();
    let stag = region.stag();
    assert!(matches!(table.deregister(stag), Err(MemError::WindowsBound { windows: 1, .. })));
    assert!(matches!(table.reregister(stag, ALL), Err(MemError::WindowsBound { windows: 1, .. })));
    assert_eq!(table.invalidate_local(stag, PD, QP), Err(InvalidateError::WindowsBound));
    assert!(region.is_valid() && window.is_valid());
    table.deallocate_window(window.stag()).unwrap();
    table.deregister(stag).unwrap();
}

/// draft-hilland-rddp-verbs §7.10.6.3: a window is unbound on the QP on which it is bound; after
/// that, by its PD, without effect.
#[test]
fn invalidating_a_window_unbinds_it() {
    let Bound { table, region, window } = bound();
    let stag = window.stag();
    assert_eq!(table.windows_of(QP), 1);
    assert_eq!(table.invalidate_local(stag, PD, OTHER_QP), Err(InvalidateError::Pd));
    assert_eq!(table.invalidate_remote(stag, PD, OTHER_QP), Err(InvalidateError::Pd));
    assert_eq!(table.invalidate_remote(stag, PD, QP), Ok(()));
    assert!(!window.is_valid());
    assert_eq!(table.windows_of(QP), 0);
    let answer = table.check_remote(stag, region.base_to() + 16, 1, Access::REMOTE_READ, PD, QP);
    assert_eq!(answer.err(), Some(AccessError::Stag));
    assert_eq!(table.invalidate_remote(stag, PD, QP), Ok(()));
    assert_eq!(table.invalidate_local(stag, PD, OTHER_QP), Ok(()));
    assert_eq!(table.invalidate_local(stag, OTHER_PD, QP), Err(InvalidateError::Pd));
    table.deregister(region.stag()).unwrap();
}

/// RFC 5042 §6.4.5
#[test]
fn a_peer_needs_the_right_to_invalidate_a_window() {
    let Bound { table, region, window } = unbound(ALL);
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let stag = table.bind(&BindWindow { access, ..request(&region, &window) }).unwrap();
    assert_eq!(table.invalidate_remote(stag, PD, QP), Err(InvalidateError::Rights));
    assert!(window.is_valid());
    assert_eq!(table.invalidate_local(stag, PD, QP), Ok(()));
}

#[test]
fn a_deallocated_window_is_unknown() {
    let Bound { table, region, window } = bound();
    let stag = window.stag();
    table.deallocate_window(stag).unwrap();
    assert!(!window.is_valid());
    assert_eq!((table.windows_of(QP), table.len()), (0, 1));
    assert_eq!(table.invalidate_local(stag, PD, QP), Err(InvalidateError::Unknown));
    assert!(matches!(table.deallocate_window(stag), Err(MemError::UnknownStag(_))));
    let answer = table.check_remote(stag, region.base_to() + 16, 1, Access::REMOTE_READ, PD, QP);
    assert_eq!(answer.err(), Some(AccessError::Stag));
}

#[test]
fn regions_and_windows_are_not_taken_for_each_other() {
    let Bound { table, region, window } = bound();
    assert!(matches!(table.deallocate_window(region.stag()), Err(MemError::UnknownStag(_))));
    assert!(matches!(table.deregister(window.stag()), Err(MemError::UnknownStag(_))));
    assert!(matches!(table.reregister(window.stag(), ALL), Err(MemError::UnknownStag(_))));
}

#[test]
fn a_region_deregistered_with_its_windows_leaves_them_unbound() {
    let Bound { table, region, window } = bound();
    let other = allocate(&table, 64, ALL);
    let kept = table.allocate_window(PD).unwrap();
    table.bind(&request(&other, &kept)).unwrap();
    table.deregister_with_windows(region.stag()).unwrap();
    assert!(!region.is_valid() && !window.is_valid());
    assert!(kept.is_valid(), "it is bound elsewhere");
    assert_eq!(table.windows_of(QP), 1);
    let answer = table.check_remote(window.stag(), region.base_to() + 16, 1, Access::REMOTE_READ, PD, QP);
    assert_eq!(answer.err(), Some(AccessError::Stag));
    table.bind(&request(&other, &window)).unwrap();
}

/// A window of type 1 of the C verbs: binds take the place of each other, on any QP and region.
#[test]
fn a_rebindable_window_is_bound_again_and_unbound_by_no_octets() {
    let Bound { table, region: first, .. } = unbound(Access::LOCAL_WRITE | Access::BIND);
    let second = allocate(&table, 64, Access::LOCAL_WRITE | Access::BIND);
    let window = table.allocate_rebindable_window(PD).unwrap();
    let reads = |stag, region: &Region, qp| {
        table.check_remote(stag, region.base_to() + 16, 1, Access::REMOTE_READ, PD, qp).err()
    };
    let one = table.bind(&request(&first, &window)).unwrap();
    let on_other = BindWindow { qp: OTHER_QP, ..request(&second, &window) };
    let two = table.bind(&on_other).unwrap();
    assert_ne!(one, two);
    assert_eq!(reads(one, &first, QP), Some(AccessError::Stag));
    assert_eq!((reads(two, &second, OTHER_QP), reads(two, &second, QP)), (None, Some(AccessError::Pd)));
    assert_eq!((table.windows_of(QP), table.windows_of(OTHER_QP)), (0, 1));
    table.deregister(first.stag()).unwrap();
    // One that is refused changes nothing.
    let refused = BindWindow { len: 49, ..request(&second, &window) };
    assert!(error(table.bind(&refused)).contains("not inside the region"));
    assert_eq!((reads(two, &second, OTHER_QP), window.stag()), (None, two));
    let key = Some((two.0 as u8).wrapping_add(1));
    let none = BindWindow { len: 0, key, region: Stag(0), ..request(&second, &window) };
    let three = table.bind(&none).unwrap();
    assert_eq!(
        (three, window.stag(), window.is_valid()),
        (Stag(two.0 & !0xff | u32::from((two.0 as u8).wrapping_add(1))), three, false)
    );
    for stag in [two, three] {
        assert_eq!(reads(stag, &second, OTHER_QP), Some(AccessError::Stag));
    }
    assert_eq!((table.windows_of(QP), table.windows_of(OTHER_QP)), (0, 0));
    let four = table.bind(&request(&second, &window)).unwrap();
    assert_eq!(reads(four, &second, QP), None);
    assert_eq!(table.windows_of(QP), 1);
}

/// A window that is bound once may be bound to no octets: its STag is valid and opens none.
#[test]
fn a_window_of_no_octets_opens_nothing() {
    let Bound { table, region, window } = unbound(Access::LOCAL_WRITE | Access::BIND);
    let stag = table.bind(&BindWindow { len: 0, ..request(&region, &window) }).unwrap();
    assert!(window.is_valid());
    let answer = table.check_remote(stag, region.base_to() + 16, 1, Access::REMOTE_READ, PD, QP);
    assert_eq!(answer.err(), Some(AccessError::Bounds));
}
