//! Reads of a registered file: which octets arrive.

use std::sync::atomic::{AtomicBool, Ordering};

use rddp_rnic::{Access, ConnectOptions, Remote, SendWr, Status};

use crate::common::raw::{self, Role, client_server, connect_raw, open_for};
use crate::common::{End, connect_on};
use crate::{LEN, Named, START, Scene, all_options, octets};

#[test]
fn a_read_returns_the_octets_of_its_range() {
    for options in all_options() {
        let scene = Scene::new(&options);
        for len in [0, 1, 100, 1440, 1444, 1448, 16_384, 65_535, 65_536, 65_537, 200_000] {
            for offset in [0, 1, 4095, 65_536, LEN - len] {
                assert!(scene.read_octets(offset, len) == octets(offset..offset + len), "{len} at {offset}");
            }
        }
        assert!(scene.read_octets(0, LEN) == octets(0..LEN));
    }
}

/// Many Reads are answered in turn, each from where it asks.
#[test]
fn reads_in_a_row_do_not_mix_their_octets() {
    for options in all_options() {
        let scene = Scene::new(&options);
        let reads: Vec<_> = (0..8)
            .map(|number| {
                let sink = scene.inbox.sge(number * 100_000..(number + 1) * 100_000);
                SendWr::read(number as u64, sink, scene.region.remote(number * 30_000))
            })
            .collect();
        scene.client.qp.post_sends(&reads).unwrap();
        for number in 0..8 {
            assert_eq!(scene.client.success().wr_id, number as u64);
            let got = scene.inbox.read(number * 100_000, 100_000).unwrap();
            assert!(got == octets(number * 30_000..number * 30_000 + 100_000), "{number}");
        }
    }
}

/// RFC 5044 §4.3: markers stand in the payload.
#[test]
fn markers_stand_between_the_octets() {
    let (end, named) = (End::new(), Named::new());
    let startup = rddp_mpa::StartupConfig { markers: true, ..rddp_test_support::plain() };
    let mut peer = connect_raw(Role::Passive, &end, &client_server(), &startup);
    open_for(&mut peer, &end);
    let region = named.register(&end, Access::REMOTE_READ);
    peer.send(&raw::read_from(1, &region, 300_000));
    assert!(peer.payload(300_000) == octets(0..300_000));
}

#[test]
fn tagged_offsets_may_begin_at_zero() {
    let scene = Scene::with(&ConnectOptions::default(), Access::REMOTE_READ | Access::ZERO_BASED);
    assert_eq!(scene.region.base(), 0);
    assert!(scene.read_octets(5, 1000) == octets(5..1005));
    scene.refuses(Remote { stag: scene.region.stag(), to: LEN as u64 - 10 }, 11, 0x0101);
}

/// Nothing of an earlier Read is left over for a later one.
#[test]
fn a_read_returns_what_was_written_before_it() {
    for options in all_options() {
        let scene = Scene::new(&options);
        for turn in 0..20_u8 {
            scene.named.write(50, &[turn; 2000]);
            // Behind the short one, octets that were read ahead would be those of the next.
            for len in [100_000, 2000] {
                assert_eq!(scene.read_octets(50, len)[..2000], [turn; 2000], "{turn}");
            }
        }
    }
}

/// RFC 5044 §4.4: the CRC is of the octets that are sent, whatever becomes of the file.
#[test]
fn a_file_that_is_written_meanwhile_arrives_with_the_right_crc() {
    for options in all_options() {
        let scene = Scene::new(&options);
        let over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for octet in (0..=1).cycle() {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    scene.named.write(0, &vec![octet; LEN]);
                }
            });
            scene.named.write(0, &vec![0; LEN]);
            let good = (0..30).all(|_| {
                let completion = scene.read(scene.region.remote(0), LEN);
                completion.status == Status::Success
                    && scene.inbox.read(0, LEN).unwrap().iter().all(|octet| *octet < 2)
            });
            over.store(true, Ordering::Relaxed);
            assert!(good);
        });
    }
}

/// A region stays with the file that it was made of.
#[test]
fn a_file_that_is_replaced_or_unlinked_is_read_all_the_same() {
    let scene = Scene::new(&ConnectOptions::default());
    let other = Named::new();
    other.write(0, &[7; LEN]);
    std::fs::rename(&other.path, &scene.named.path).unwrap();
    assert!(scene.read_octets(0, LEN) == octets(0..LEN));
    std::fs::remove_file(&scene.named.path).unwrap();
    assert!(scene.read_octets(0, LEN) == octets(0..LEN));
}

/// draft-hilland-rddp-verbs §7.10: a window lends a part of the region to one peer.
#[test]
fn a_window_shows_its_part_of_the_file() {
    for options in all_options() {
        let scene = Scene::new(&options);
        let window = scene.server.pd.allocate_window().unwrap();
        let part = scene.region.sge(1000..301_000);
        scene.server.qp.post_send(&SendWr::bind(5, window.stag(), part, Access::REMOTE_READ)).unwrap();
        scene.server.success();
        let at = |offset| Remote { stag: window.stag(), to: part.addr + offset };
        assert_eq!(scene.read(at(500), 299_500).status, Status::Success);
        assert!(scene.inbox.read(0, 299_500).unwrap() == octets(1500..301_000));
        assert!(scene.region.deregister().is_err(), "a window is bound to it");
        scene.refuses(at(500), 299_501, 0x0101);
    }
}

/// The Reader's file grows elsewhere: offsets of the region do not move.
#[test]
fn the_range_stays_where_it_was_in_a_file_that_grows() {
    let scene = Scene::new(&ConnectOptions::default());
    scene.named.write(LEN, &[1; 5000]);
    assert!(scene.read_octets(LEN - 100, 100) == octets(LEN - 100..LEN));
    scene.refuses(scene.region.remote(LEN - 100), 101, 0x0101);
}

/// A peer with two connections reads two files of one device at the same time.
#[test]
fn two_files_are_read_side_by_side() {
    for options in all_options() {
        let scene = Scene::new(&options);
        let other = Named::new();
        other.write(0, &[9; LEN]);
        let region = other.register(&scene.server, Access::REMOTE_READ);
        let (second, third) = (End::new(), scene.server.sibling());
        connect_on("127.0.0.1:0", &second, &third, &options, &options);
        let sink = second.region(LEN, Access::LOCAL_WRITE);
        for _ in 0..5 {
            second.qp.post_send(&SendWr::read(2, sink.whole(), region.remote(0))).unwrap();
            assert!(scene.read_octets(0, LEN) == octets(0..LEN));
            second.success();
            assert!(sink.read(0, LEN).unwrap() == [9; LEN]);
        }
    }
}

/// The octets before and behind the range are nobody's.
#[test]
fn the_file_around_the_range_is_out_of_reach() {
    for (before, len) in [(1, 2), (START as u64, 1)] {
        let scene = Scene::new(&ConnectOptions::default());
        let Remote { stag, to } = scene.region.remote(0);
        scene.refuses(Remote { stag, to: to - before }, len, 0x0101);
    }
}
