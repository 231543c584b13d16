//! Numbers in memory that this end's program and its peer use at the same time (RFC 7306 §5.3).

use rddp_rnic::{Access, Atomics, ConnectOptions, MemError, SendWr};

use crate::common::device::{needs, needs_software};
use crate::common::{ALL, connected};

/// Nothing that either end adds is lost.
#[test]
fn the_program_and_its_peer_add_to_one_number() {
    const TIMES: u64 = 300;
    needs_software("atomics that a program's own are whole beside");
    let (active, passive) = connected(&ConnectOptions::default());
    let (numbers, sink) = (passive.region(24, ALL), active.region(8, Access::LOCAL_WRITE));
    numbers.write_u64(8, 1 << 40).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..100 * TIMES).for_each(|_| _ = numbers.fetch_add_u64(8, 3).unwrap()));
        for id in 0..TIMES {
            active.qp.post_send(&SendWr::fetch_add(id, sink.whole(), numbers.remote(8), 1)).unwrap();
            active.success();
        }
    });
    assert_eq!(numbers.read_u64(8).unwrap(), (1 << 40) + TIMES + 100 * TIMES * 3);
    assert_eq!([0, 16].map(|offset| numbers.read_u64(offset).unwrap()), [0, 0]);
    assert!(sink.read_u64(0).unwrap() > 1 << 40, "the number before, in this machine's byte order");
}

#[test]
fn a_number_is_swapped_where_it_is_the_expected_one() {
    needs("atomics", |device| device.atomics != Atomics::None);
    let (active, passive) = connected(&ConnectOptions::default());
    let (lock, sink) = (passive.region(8, ALL), active.region(8, Access::LOCAL_WRITE));
    assert_eq!([lock.cmp_swap_u64(0, 0, 5).unwrap(), lock.cmp_swap_u64(0, 0, 6).unwrap()], [0, 5]);
    active.qp.post_send(&SendWr::cmp_swap(1, sink.whole(), lock.remote(0), 5, 7)).unwrap();
    active.success();
    assert_eq!((sink.read_u64(0).unwrap(), lock.read_u64(0).unwrap()), (5, 7));
}

/// RFC 7306 §5.1.
#[test]
fn a_number_that_is_not_whole_in_memory_is_refused() {
    let (end, _peer) = connected(&ConnectOptions::default());
    let region = end.region(24, ALL);
    for offset in [1, 4, 15] {
        assert!(matches!(region.read_u64(offset), Err(MemError::Misaligned { .. })));
        assert!(matches!(region.fetch_add_u64(offset, 1), Err(MemError::Misaligned { .. })));
    }
    for offset in [17, 24, usize::MAX - 7] {
        assert!(matches!(region.write_u64(offset, 1), Err(MemError::OutOfBounds { .. })));
    }
    assert_eq!(region.read(0, 24).unwrap(), [0; 24]);
}
