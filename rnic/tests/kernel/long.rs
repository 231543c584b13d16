//! A connection that has brought more octets than a comparison of sequence numbers reaches
//! (RFC 9293 §3.4) before something is missing for the first time.

use std::time::Duration;

use rddp_ddp::Stag;
use rddp_rnic::{Access, Placement};
use rddp_test_support::segment;

use super::common::raw::write_to;
use super::forged::{frame, inject, scene};
use super::path_test::is_quick;
use super::path_test::net::in_namespace;

const OCTETS: &[u8] = b"octets of a Send";

#[test]
fn a_message_is_confirmed_behind_two_gigabytes_that_were_not_placed() {
    in_namespace(|| {
        let mut scene = scene(Placement::Auto, "lo");
        let target = scene.end.region(60_000, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        let write = scene.peer.frame(&write_to(&target, 0, &vec![1; 60_000]));
        let writes = if is_quick() { 100 } else { (1 << 31) / write.len() + 1 };
        (0..writes).for_each(|_| scene.peer.octets(&write));
        // What is behind TCP's window is not placed.
        while scene.end.qp.counters().fpdus_received <= writes as u64 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let first = scene.peer.frame(&segment::write(Stag(1), 0, true, b""));
        let message = scene.peer.frame(&segment::send(1, 0, true, OCTETS));
        inject(&frame(&scene, first.len() as u32, &message));
        scene.peer.octets(&first);
        assert_eq!((scene.end.success().wr_id, scene.octets(1, OCTETS.len())), (1, OCTETS.to_vec()));
        assert_eq!(scene.end.qp.kernel_counts().map(|counts| counts.confirmed), Some(1));
    });
}
