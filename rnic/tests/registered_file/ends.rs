//! Reads that fail: the file is cut short, the STag is stale. Only their connection ends.

use rddp_rnic::{Access, ConnectOptions, MemError, RecvWr, SendWr, Status};

use crate::common::PATIENCE;
use crate::{LEN, Scene, all_options, octets};

/// RFC 5040 §4.8: what is no longer there is out of bounds.
#[test]
fn a_read_of_a_file_that_is_cut_short_is_refused() {
    for options in all_options() {
        for (kept, len) in [(0, 1), (0, 200_000), (100_000, 100_001), (100_000, 300_000)] {
            let scene = Scene::new(&options);
            scene.named.cut(kept);
            assert!(scene.read_octets(0, kept) == octets(0..kept));
            scene.refuses(scene.region.remote(0), len, 0x0101);
            assert!(matches!(scene.region.read(kept, 1), Err(MemError::Faulted(_))));
        }
    }
}

/// The Response ends where the file does; the octets before have been sent.
#[test]
fn a_file_that_is_cut_short_while_it_is_read_ends_that_connection_alone() {
    for options in all_options() {
        let scene = Scene::new(&options);
        let refused = std::thread::scope(|threads| {
            threads.spawn(|| {
                for len in (0..LEN).rev().step_by(20_000) {
                    scene.named.cut(len);
                }
            });
            (0..10_000).any(|_| scene.read(scene.region.remote(0), LEN).status == Status::RemoteAccess)
        });
        assert!(refused);
        scene.others_go_on();
    }
}

/// RFC 5040 §4.8: 0x0100.
#[test]
fn a_stale_stag_opens_nothing() {
    let invalidations: [fn(&Scene); 4] = [
        |scene| scene.region.deregister().unwrap(),
        |scene| {
            scene.server.qp.post_send(&SendWr::invalidate(1, scene.region.stag())).unwrap();
            scene.server.success();
        },
        |scene| {
            scene.server.qp.post_recv(RecvWr::new(1, [])).unwrap();
            let empty = scene.inbox.sge(0..0);
            scene.client.qp.post_send(&SendWr::send_invalidate(1, empty, scene.region.stag())).unwrap();
            scene.client.success();
            scene.server.success();
        },
        |scene| assert_ne!(scene.region.stag(), scene.region.reregister(Access::REMOTE_READ).unwrap()),
    ];
    for invalidate in invalidations {
        let scene = Scene::new(&ConnectOptions::default());
        let before = scene.region.remote(0);
        assert!(scene.read_octets(0, LEN) == octets(0..LEN));
        invalidate(&scene);
        scene.refuses(before, 1, 0x0100);
    }
}

#[test]
fn a_region_that_is_registered_again_is_read_by_its_new_stag() {
    let scene = Scene::new(&ConnectOptions::default());
    scene.region.reregister(Access::REMOTE_READ).unwrap();
    assert!(scene.read_octets(0, LEN) == octets(0..LEN));
}

/// Deregistration waits for reads in flight, and for no others.
#[test]
fn a_region_is_deregistered_while_it_is_read() {
    for options in all_options() {
        let scene = Scene::new(&options);
        let status = std::thread::scope(|threads| {
            threads.spawn(|| {
                assert!(scene.client.cq.wait(Some(PATIENCE)).unwrap());
                scene.region.deregister().unwrap();
                assert!(matches!(scene.region.read(0, 1), Err(MemError::Deregistered)));
            });
            let read = SendWr::read(1, scene.inbox.sge(0..LEN), scene.region.remote(0));
            scene.client.qp.post_sends(&vec![read; 100]).unwrap();
            (0..100).map(|_| scene.client.next().status).find(|status| *status != Status::Success)
        });
        assert!(matches!(status, None | Some(Status::RemoteAccess)), "{status:?}");
    }
}
