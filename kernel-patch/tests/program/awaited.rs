//! Sends and Read Responses, which go where this end has asked for them and nowhere else.

use rddp_ddp::Stag;
use rddp_kernel_patch::kernel::{Awaited, Scope};
use rddp_kernel_patch::layout::{NO_WRITES, Outcome, RECEIVES, SINKS};
use rddp_kernel_patch::segment::{Front, Kind};
use rddp_test_support::{pattern, segment as ulpdus};

use super::common::frame::{fpdu, write_fpdu};
use super::common::net::in_namespace;
use super::common::rounds;
use super::{BASE, CANARIES, CANARY, Flood, LEN, PD, QP, STAG, Scene};

/// A region for receives and sinks, and not for Writes.
pub(crate) const OWN: Stag = Stag(0x00d4_e5f6);

/// A scene with that region, over the same memory.
fn scene(flags: u32) -> Scene {
    let scene = Scene::new(flags);
    assert!(scene.patch.stags().open(OWN, &own(&scene)));
    scene
}

pub(crate) fn own(scene: &Scene) -> Scope {
    Scope { writes: false, own: true, ..scene.scope() }
}

/// Memory of the region from that offset on.
fn awaited(offset: u64, len: usize) -> Awaited {
    Awaited { stag: OWN.0, to: BASE + offset, len: len as u32 }
}

fn send(msn: u32, mo: u32, payload: &[u8]) -> Vec<u8> {
    fpdu(&ulpdus::send(msn, mo, true, payload))
}

fn response(stag: Stag, offset: u64, payload: &[u8]) -> Vec<u8> {
    fpdu(&ulpdus::response(stag, BASE.wrapping_add(offset), true, payload))
}

impl Scene {
    /// Runs the program on an FPDU behind a hole of which nothing may be placed, for this reason.
    fn leaves(&mut self, fpdu: Vec<u8>, why: Outcome) {
        let octets = self.frame(100, fpdu).octets();
        self.refuses(&octets, why);
    }

    /// Runs the program on an FPDU behind a hole that it is to place at that offset.
    fn places(&mut self, fpdu: &[u8], offset: usize, payload: &[u8]) {
        let mut wanted = self.octets();
        wanted[CANARIES + offset..][..payload.len()].copy_from_slice(payload);
        self.run(&self.frame(100, fpdu.to_vec()));
        let (record, good) = self.placing.take().expect("it is placed");
        assert!(good && self.octets() == wanted);
        assert_eq!(record.at, self.scope().start + offset as u64);
        let front = Front::parse(&record.front).unwrap();
        assert!(record.front.starts_with(&fpdu[..front.octets()]));
        assert_eq!((record.len as usize, front.len), (payload.len(), payload.len()));
    }
}

/// RFC 5041 §5.3: the MSN names the receive, and the MO the octet in it.
#[test]
fn a_send_is_placed_into_the_receive_of_its_message() {
    in_namespace(|| {
        let mut scene = scene(0);
        for (number, msn) in [1, 2, 255, 256, u32::MAX, 0].into_iter().enumerate() {
            let offset = 1000 * number;
            scene.placing.open_receive(msn, &awaited(offset as u64, 1000));
            for (mo, len) in [(0, 1), (7, 2), (0, 1000), (997, 3)] {
                let payload = pattern(len, number as u8 + 1);
                scene.places(&send(msn, mo, &payload), offset + mo as usize, &payload);
            }
            scene.placing.close_receive(msn);
        }
        // RFC 5040 §4.3: the other types of Sends, with the STag to invalidate in their header.
        scene.placing.open_receive(3, &awaited(0, 1000));
        for opcode in 4..=6 {
            let mut ulpdu = ulpdus::send(3, 0, true, b"sent");
            ulpdu[1] = 0x40 | opcode;
            ulpdu[2..6].copy_from_slice(&[1, 2, 3, 4]);
            scene.places(&fpdu(&ulpdu), 0, b"sent");
        }
    });
}

/// RFC 5041 §7.1: nothing outside of the receive, and nothing for a message without one.
#[test]
fn a_send_without_room_in_its_receive_is_left_alone() {
    in_namespace(|| {
        let mut scene = scene(0);
        scene.placing.open_receive(5, &awaited(100, 50));
        for (mo, len) in [(0, 51), (50, 1), (49, 2), (u32::MAX, 1), (u32::MAX, 8)] {
            scene.leaves(send(5, mo, &pattern(len, 1)), Outcome::NotAwaited);
        }
        for msn in [4, 6, 5 + RECEIVES, 5u32.wrapping_sub(RECEIVES), 5 << 8, 0] {
            scene.leaves(send(msn, 0, b"data"), Outcome::NotAwaited);
        }
        // Another queue than that of Sends.
        let mut ulpdu = ulpdus::send(5, 0, true, b"data");
        ulpdu[9] = 1;
        scene.leaves(fpdu(&ulpdu), Outcome::NoPayload);
        // The name of another message closes nothing.
        scene.placing.close_receive(5 + RECEIVES);
        scene.places(&send(5, 0, b"data"), 100, b"data");
        scene.placing.close_receive(5);
        scene.leaves(send(5, 0, b"data"), Outcome::NotAwaited);
    });
}

/// RFC 5040 §5.2: a Response goes to the sink of its Read, by STag and Tagged Offset.
#[test]
fn a_read_response_is_placed_into_an_open_sink() {
    in_namespace(|| {
        let mut scene = scene(0);
        for number in 0..u64::from(SINKS) {
            scene.placing.open_sink(number, &awaited(100 * number, 100));
        }
        for number in [0, 1, 7, 31] {
            let at = 100 * number as usize;
            let payload = pattern(100, number as u8);
            scene.places(&response(OWN, at as u64, &payload), at, &payload);
            scene.places(&response(OWN, at as u64 + 99, b"!"), at + 99, b"!");
        }
        // No slot is left, and then there is one.
        scene.placing.open_sink(99, &awaited(4000, 100));
        scene.leaves(response(OWN, 4000, b"data"), Outcome::NotAwaited);
        scene.placing.close_sink(99);
        scene.placing.close_sink(3);
        scene.leaves(response(OWN, 300, b"data"), Outcome::NotAwaited);
        scene.placing.open_sink(99, &awaited(4000, 100));
        scene.places(&response(OWN, 4000, b"data"), 4000, b"data");
    });
}

#[test]
fn a_read_response_outside_of_every_sink_is_left_alone() {
    in_namespace(|| {
        let mut scene = scene(0);
        scene.placing.open_sink(1, &awaited(100, 50));
        for (offset, len) in [(99, 1), (99, 4), (149, 2), (150, 1), (100, 51), (0u64.wrapping_sub(BASE), 4)] {
            scene.leaves(response(OWN, offset, &pattern(len, 1)), Outcome::NotAwaited);
        }
        for stag in [STAG, Stag(OWN.0 ^ 1), Stag(0)] {
            scene.leaves(response(stag, 100, b"data"), Outcome::NotAwaited);
        }
        scene.leaves(write_fpdu(OWN, BASE + 100, b"data"), Outcome::Refused);
        scene.placing.close_sink(2);
        scene.places(&response(OWN, 100, b"data"), 100, b"data");
    });
}

/// RFC 5042 §6.1.1, §6.2.1: what this end's requests may not use, the program does not either.
#[test]
fn receives_and_sinks_are_placed_only_where_their_stag_is_open_to_this_end() {
    in_namespace(|| {
        let mut scene = scene(0);
        scene.placing.open_receive(1, &awaited(0, 100));
        scene.placing.open_sink(1, &awaited(0, 100));
        let fpdus = [send(1, 0, b"data"), response(OWN, 0, b"data")];
        for scope in [
            Scope { own: false, writes: true, ..own(&scene) },
            Scope { pd: PD + 1, ..own(&scene) },
            Scope { qp: QP + 1, ..own(&scene) },
            Scope { len: 3, ..own(&scene) },
            Scope { base: BASE + 1, ..own(&scene) },
        ] {
            scene.patch.stags().close(OWN);
            assert!(!scene.patch.stags().is_open_to_own(OWN));
            assert!(scene.patch.stags().open(OWN, &scope));
            assert_eq!(scene.patch.stags().is_open_to_own(OWN), scope.own);
            for fpdu in &fpdus {
                scene.leaves(fpdu.clone(), Outcome::Refused);
            }
        }
        assert!(!scene.patch.stags().is_open_to_own(STAG));
        assert!(!scene.patch.stags().is_open_to_own(Stag(OWN.0 ^ 0xf000_0000)));
        scene.patch.stags().close(OWN);
        for fpdu in fpdus {
            scene.leaves(fpdu, Outcome::Refused);
        }
    });
}

#[test]
fn no_write_is_placed_for_a_peer_that_may_not_write() {
    in_namespace(|| {
        let mut scene = scene(NO_WRITES);
        scene.leaves(write_fpdu(STAG, BASE, b"data"), Outcome::Refused);
        scene.placing.open_receive(1, &awaited(0, 100));
        scene.places(&send(1, 0, b"data"), 0, b"data");
    });
}

#[test]
fn nothing_is_placed_once_placement_has_stopped() {
    in_namespace(|| {
        let mut scene = scene(0);
        let fpdu = write_fpdu(STAG, BASE, b"data");
        scene.run(&scene.frame(100, fpdu.clone()));
        scene.placing.stop();
        scene.run(&scene.frame(200, fpdu.clone()));
        assert!(scene.placing.take().is_some(), "what was placed before");
        scene.placing.pass(scene.placing.first_seq());
        scene.leaves(fpdu, Outcome::Contended);
    });
}

/// RFC 5041 §5.4: once this end's program has been told of a message, no octet of it changes.
#[test]
fn no_octet_changes_after_a_receive_or_a_sink_is_closed() {
    in_namespace(|| {
        let mut scene = scene(0);
        let part = pattern(700, 9);
        let both = [send(1, 0, &part), response(OWN, 1000, &part)].concat();
        let frame = scene.frame(100, both).octets();
        let flood = Flood::of(&mut scene, frame);
        let (mut placed, mut round) = ([0; 2], 0);
        while round < rounds(2_000) || placed.iter().any(|count| *count < rounds(100)) {
            scene.placing.open_receive(1, &awaited(0, 700));
            scene.placing.open_sink(1, &awaited(1000, 700));
            std::thread::yield_now();
            scene.placing.close_receive(1);
            scene.placing.close_sink(1);
            scene.fill(CANARIES, &[CANARY; 2000]);
            for _ in 0..50 {
                assert!(scene.octets()[CANARIES..][..2000] == [CANARY; 2000]);
            }
            while let Some((record, _)) = scene.placing.take() {
                let kind = Front::parse(&record.front).unwrap().kind;
                placed[usize::from(kind == Kind::Response)] += 1;
            }
            round += 1;
        }
        flood.end(&mut scene);
        assert!(scene.octets()[..CANARIES] == [CANARY; CANARIES] && LEN > 2000);
    });
}
