//! Slots for receives and for sinks of Reads, by which the program knows them: as many as there
//! are, and only for memory that is open to them.

use std::time::Duration;

use rddp_ddp::Stag;
use rddp_kernel_patch::layout::{RECEIVES, SINKS};
use rddp_mpa::StartupConfig;
use rddp_rnic::{Access, ConnectOptions, KernelPlacement, Placement, RecvWr, Remote, SendWr, Status};
use rddp_test_support::{plain, segment};

use super::common::raw::{client_server, listen_for, open_for};
use super::hostile::{Scene, part};
use super::path_test::net::in_namespace;

/// The message that has come in part keeps its slot, and there is one less for those behind it.
#[test]
fn a_message_is_placed_to_its_end_before_receives_without_number() {
    in_namespace(|| {
        let kernel = KernelPlacement { interfaces: vec!["lo".into()], trusted: true };
        let mut scene = Scene::with(kernel, Placement::Kernel, |config| config.max_recv = 512);
        for id in 3..=u64::from(RECEIVES) + 1 {
            scene.end.qp.post_recv(RecvWr::one(id, scene.region.sge(part(3)))).unwrap();
        }
        scene.send_in_vain(&segment::send(1, 0, false, b"one half, "));
        scene.peer.send(&segment::send(1, 10, true, b"and the other"));
        assert_eq!((scene.end.success().wr_id, scene.placed()), (1, 2));
        assert_eq!(scene.octets(1, 23), b"one half, and the other");
    });
}

/// RFC 5042 §6.2.1: the right to write was there when the receive was posted, and the program told
/// of it; it is not when the message comes.
#[test]
fn a_receive_whose_memory_has_lost_its_right_does_not_change() {
    in_namespace(|| {
        let mut scene = Scene::new();
        let stag = scene.region.stag();
        // Under another key each time, until it is the same again.
        while scene.region.reregister(Access::REMOTE_READ).unwrap() != stag {}
        scene.send_in_vain(&segment::send(1, 0, true, b"message"));
        assert_eq!(scene.end.next().status, Status::LocalProtection);
        assert_eq!(scene.octets(1, 7), [0; 7]);
    });
}

#[test]
fn reads_into_memory_that_the_kernel_does_not_reach_take_no_slots() {
    in_namespace(|| {
        let scene = Scene::new();
        let end = scene.end.sibling_with(|config| config.placement = Placement::Kernel);
        let many = 2 * SINKS as u16;
        let options = ConnectOptions { ord: many, ..client_server() };
        let (mut peer, _) = listen_for(&end, &options, &StartupConfig { ird: many, ..plain() });
        open_for(&mut peer, &end);
        let plain = end.region(8, Access::LOCAL_WRITE);
        for id in 0..=u64::from(SINKS) {
            let sink = if id < u64::from(SINKS) { plain.whole() } else { scene.region.sge(0..8) };
            end.qp.post_send(&SendWr::read(id, sink, Remote { stag: Stag(5), to: 0 })).unwrap();
        }
        let responses: Vec<_> = (0..=SINKS)
            .map(|_| peer.read_request())
            .map(|request| segment::response(request.sink_stag, request.sink_to, true, b"response"))
            .collect();
        for (id, response) in responses.iter().enumerate() {
            if id == SINKS as usize {
                std::thread::sleep(Duration::from_millis(50)); // till nobody has the gate
            }
            peer.send(response);
            assert_eq!(end.success().wr_id, id as u64);
        }
        assert_eq!(scene.region.read(0, 8).unwrap(), b"response");
        assert_eq!(end.qp.kernel_counts().map(|counts| counts.placed), Some(1));
    });
}
