//! Sends and Writes of this end whose source is a registered file.

use rddp_rnic::{Access, ConnectOptions, RecvWr, SendWr, Sge, Status};

use crate::{LEN, Scene, all_options, octets};

/// Has the server send this, by a Send and by a Write, and returns what the client got, which is
/// the same both times.
fn sent(scene: &Scene, gather: &[Sge]) -> Vec<u8> {
    let len = gather.iter().map(|sge| sge.len as usize).sum();
    scene.client.qp.post_recv(RecvWr::one(1, scene.inbox.sge(LEN..2 * LEN))).unwrap();
    let write = SendWr::write(2, gather.to_vec(), scene.inbox.remote(0)).unsignaled();
    scene.server.qp.post_sends(&[write, SendWr::send(3, gather.to_vec())]).unwrap();
    assert_eq!(scene.client.success().byte_len as usize, len);
    scene.server.success();
    let received = scene.inbox.read(LEN, len).unwrap();
    assert!(scene.inbox.read(0, len).unwrap() == received);
    received
}

#[test]
fn a_message_has_the_octets_of_its_range() {
    for options in all_options() {
        let scene = Scene::new(&options);
        // The server may send once it has received.
        scene.read_octets(0, 1);
        for len in [0, 1, 100, 1025, 1440, 1448, 2049, 16_384, 65_536, 200_000, LEN] {
            for offset in [0, LEN - len] {
                let got = sent(&scene, &[scene.region.sge(offset..offset + len)]);
                assert!(got == octets(offset..offset + len), "{len} at {offset}");
            }
        }
    }
}

/// A short message that is posted alone goes past the queue.
#[test]
fn a_short_message_has_the_octets_of_its_range() {
    let scene = Scene::new(&ConnectOptions::default());
    scene.read_octets(0, 1);
    for len in [1, 100, 1024] {
        scene.client.qp.post_recv(RecvWr::one(1, scene.inbox.whole())).unwrap();
        scene.server.qp.post_send(&SendWr::send(2, scene.region.sge(7..7 + len))).unwrap();
        scene.client.success();
        scene.server.success();
        assert_eq!(scene.inbox.read(0, len).unwrap(), octets(7..7 + len));
    }
}

/// A header in memory before the octets of the file, and a trailer behind them.
#[test]
fn memory_and_files_stand_in_one_message() {
    for options in all_options() {
        let scene = Scene::new(&options);
        scene.read_octets(0, 1);
        let memory = scene.server.region(2000, Access::LOCAL_WRITE);
        memory.write(0, &[5; 2000]).unwrap();
        for len in [10, 3000, 100_000] {
            let gather =
                [memory.sge(..100), scene.region.sge(..len), memory.sge(100..), scene.region.sge(9..99)];
            let wanted = [&[5; 100][..], &octets(0..len), &[5; 1900], &octets(9..99)].concat();
            assert!(sent(&scene, &gather) == wanted, "{len}");
        }
    }
}

#[test]
fn a_message_has_what_was_written_before_it_was_posted() {
    for options in all_options() {
        let scene = Scene::new(&options);
        scene.read_octets(0, 1);
        for turn in 0..20 {
            scene.named.write(0, &[turn; 100_000]);
            for len in [100_000, 3000] {
                assert!(sent(&scene, &[scene.region.sge(..len)]) == vec![turn; len], "{turn}");
            }
        }
    }
}

/// draft-hilland-rddp-verbs §8.3.2: the peer is told of a failure of this end (0x0000).
#[test]
fn a_message_of_a_file_that_is_cut_short_fails() {
    for options in all_options() {
        for (kept, len) in [(0, 1), (0, 3000), (100_000, 200_000)] {
            for writes in [false, true] {
                let scene = Scene::new(&options);
                scene.read_octets(0, 1);
                scene.named.cut(kept);
                let gather = scene.region.sge(0..len);
                let request = match writes {
                    true => SendWr::write(2, gather, scene.inbox.remote(0)),
                    false => SendWr::send(2, gather),
                };
                scene.client.qp.post_recv(RecvWr::one(1, scene.inbox.whole())).unwrap();
                scene.server.qp.post_send(&request).unwrap();
                assert_eq!(scene.server.next().status, Status::LocalProtection, "{kept} {len}");
                assert_eq!(scene.client.next().status, Status::Flushed);
                let received = scene.client.qp.terminate_received().map(|terminate| terminate.code.0);
                assert_eq!(received, Some(0x0000));
                scene.others_go_on();
            }
        }
    }
}

/// An FPDU that TCP has begun when the registration ends is sent; nothing that follows it is.
#[test]
fn a_message_whose_file_is_deregistered_meanwhile_ends_whole_or_fails() {
    for options in all_options() {
        let scene = Scene::new(&options);
        scene.read_octets(0, 1);
        let write = SendWr::write(2, scene.region.whole(), scene.inbox.remote(0));
        let count = 100;
        scene.server.qp.post_sends(&vec![write; count]).unwrap();
        scene.region.deregister().unwrap();
        let statuses: Vec<_> = (0..count).map(|_| scene.server.next().status).collect();
        let whole = statuses.iter().take_while(|status| **status == Status::Success).count();
        let failed = [Status::LocalProtection, Status::Flushed];
        assert!(statuses[whole..].iter().all(|status| failed.contains(status)), "{statuses:?}");
        scene.others_go_on();
    }
}
