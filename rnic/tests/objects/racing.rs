//! Octets that a program's threads and its peer read and write at the same time, by safe calls
//! alone. `tests/sanitizer` runs this, too: there is no race.

use std::sync::atomic::{AtomicBool, Ordering};

use rddp_rnic::{ConnectOptions, SendWr};

use crate::common::{ALL, connected};

/// Each octet is what it was before or after a write.
#[test]
fn threads_and_a_peer_may_read_and_write_one_region_at_once() {
    // More than is copied with a short message, and no whole number of words.
    const LEN: usize = 5003;
    let (end, peer) = connected(&ConnectOptions::default());
    let (region, other) = (&end.region(LEN, ALL), &peer.region(2 * LEN, ALL));
    let assert_written = |octets: &[u8]| {
        assert!(octets.iter().all(|octet| matches!(octet, 0 | 0x33 | 0x55 | 0xaa)), "{octets:?}");
    };
    other.write(0, &[0x33; LEN]).unwrap();
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        for octet in [0x55, 0xaa] {
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    region.write(0, &[octet; LEN]).unwrap();
                }
            });
        }
        for id in 0..100 {
            peer.qp.post_send(&SendWr::write(id, other.sge(..LEN), region.remote(0))).unwrap();
            peer.qp.post_send(&SendWr::read(id, other.sge(LEN..), region.remote(0))).unwrap();
            assert_written(&region.read(0, LEN).unwrap());
            let mut out = [0; 100];
            region.read_into(3 * id as usize, &mut out).unwrap();
            assert_written(&out);
            (0..2).for_each(|_| _ = peer.success());
            assert_written(&other.read(LEN, LEN).unwrap());
        }
        done.store(true, Ordering::Relaxed);
    });
}
