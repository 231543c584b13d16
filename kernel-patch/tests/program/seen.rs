//! Octets that come by again, and holes, of which user space is told before TCP has the segments.

use std::cmp::Ordering;
use std::ops::Range;

use rddp_kernel_patch::kernel::Told::{Again, Hole};
use rddp_kernel_patch::kernel::{Guide, Most, Run, Told, Untold};
use rddp_kernel_patch::layout::{Outcome, PLACE_ALL, TOLD};
use rddp_test_support::{Random, pattern};

use super::common::frame::{Frame, IP, TCP, write_fpdu};
use super::common::net::{in_namespace, inject};
use super::{BASE, STAG, Scene};

impl Scene {
    /// Runs the program on a segment of 28 octets, so many octets behind the next one.
    fn brings(&self, behind: u32) {
        self.run(&self.frame(behind, write_fpdu(STAG, BASE, b"octets")));
    }

    /// Returns what the program has told, counted from the next octet that TCP expects.
    fn told(&mut self) -> Vec<Told> {
        let first = self.placing.first_seq();
        let of = |it: Range<u32>| it.start.wrapping_sub(first)..it.end.wrapping_sub(first);
        let taken = std::iter::from_fn(|| self.placing.take_told().unwrap());
        let taken = taken.map(|told| match told {
            Again(octets) => Again(of(octets)),
            Hole(octets) => Hole(of(octets)),
        });
        taken.collect()
    }
}

#[test]
fn segments_that_come_once_leave_holes_and_nothing_else() {
    in_namespace(|| {
        for flags in [0, PLACE_ALL] {
            let mut scene = Scene::new(flags);
            for behind in [0, 28, 100, 128, 1000] {
                scene.brings(behind);
            }
            assert_eq!(scene.told(), [Hole(56..100), Hole(156..1000)]);
        }
    });
}

/// Segments are told of whether they are placed or not, in order or behind a hole.
#[test]
fn octets_that_come_again_are_told_of() {
    in_namespace(|| {
        for flags in [0, PLACE_ALL] {
            let mut scene = Scene::new(flags);
            scene.brings(100);
            scene.brings(100);
            assert_eq!(scene.told(), [Hole(0..100), Again(100..128)]);
            // A part of the hole is filled, and a segment has a part of what came.
            scene.brings(72);
            scene.brings(120);
            assert_eq!(scene.told(), [Again(72..100), Again(120..128)]);
            scene.brings(0);
            scene.brings(0);
            assert_eq!(scene.told(), [Again(0..28), Again(0..28)]);
            // A part of it is in front of what is expected, and then all of it.
            scene.brings(0u32.wrapping_sub(10));
            scene.brings(0u32.wrapping_sub(28));
            scene.brings(148);
            assert_eq!(scene.told(), [Again(0u32.wrapping_sub(10)..18)]);
        }
    });
}

/// TCP, or IP, may take what the program does not.
#[test]
fn segments_that_are_not_placed_are_told_of_all_the_same() {
    in_namespace(|| {
        let mut scene = Scene::new(0);
        scene.brings(100);
        assert_eq!(scene.told(), [Hole(0..100)]);
        let right = scene.frame(100, write_fpdu(STAG, BASE, b"octets"));
        let mut cases = vec![scene.frame(100, vec![1; 28]).octets()];
        for flags in [0x11, 0x19, 0x30, 0] {
            cases.push(Frame { flags, ..right.clone() }.octets());
        }
        cases.push(Frame { ack: right.ack.wrapping_add(1 << 20), ..right.clone() }.octets());
        let mut wrong = right.octets();
        wrong[TCP + 25] ^= 1; // and a wrong checksum
        cases.push(wrong);
        for frame in cases {
            scene.patch.run(&frame).unwrap();
            assert_eq!(scene.told(), [Again(100..128)]);
        }
        // In a state in which nothing is placed.
        scene.own.shutdown(std::net::Shutdown::Write).unwrap();
        scene.brings(100);
        assert_eq!(scene.told(), [Again(100..128)]);
        // An acknowledgement has no octets.
        scene.run(&scene.frame(100, Vec::new()));
        assert_eq!(scene.told(), []);
    });
}

/// RFC 8200 §4: TCP takes segments behind other headers.
#[test]
fn segments_behind_other_headers_are_told_of() {
    in_namespace(|| {
        for headers in [&[60_u8][..], &[0], &[43, 60], &[0, 60, 43, 60]] {
            let mut scene = Scene::between("::1", 0);
            scene.brings(100);
            let mut frame = scene.frame(100, write_fpdu(STAG, BASE, b"octets")).octets();
            for next in headers.iter().rev() {
                frame.splice(IP + 40..IP + 40, [frame[IP + 6], 0, 1, 4, 0, 0, 0, 0]);
                frame[IP + 5] += 8;
                frame[IP + 6] = *next;
            }
            scene.patch.run(&frame).unwrap();
            assert_eq!(scene.told(), [Hole(0..100), Again(100..128)], "{headers:?}");
            assert_eq!(scene.placing.left(Outcome::NotWhole), 1);
        }
    });
}

/// IEEE 802.1Q: a tag with VLAN 0 is a priority alone, and Linux takes the frame as one without.
#[test]
fn segments_with_a_priority_tag_are_told_of() {
    in_namespace(|| {
        let mut scene = Scene::new(0);
        let _attached = scene.patch.attach("lo").unwrap();
        let mut frame = scene.frame(100, write_fpdu(STAG, BASE, b"octets")).octets();
        frame.splice(12..12, [0x81, 0, 0, 0]);
        inject(&frame);
        while scene.placing.counts().segments == 0 {
            std::thread::yield_now();
        }
        scene.brings(100);
        assert_eq!(scene.told(), [Hole(0..100), Again(100..128)]);
    });
}

/// An IP length of 0: more than the field can tell.
#[test]
fn segments_joined_to_more_than_65535_octets_are_told_of() {
    in_namespace(|| {
        for addr in ["127.0.0.1", "::1"] {
            let mut scene = Scene::between(addr, 0);
            scene.brings(100);
            let mut frame = scene.frame(100, write_fpdu(STAG, BASE, b"octets")).octets();
            let len = if addr == "::1" { IP + 4 } else { IP + 2 };
            frame[len..len + 2].fill(0);
            scene.patch.run_joined(&frame, 50).unwrap();
            assert_eq!(scene.told(), [Hole(0..100), Again(100..128)]);
        }
    });
}

/// Octets that TCP takes though they lie behind its window, or begin in it.
#[test]
fn what_begins_in_the_window_counts_as_having_come() {
    in_namespace(|| {
        let mut scene = Scene::new(0);
        let window = scene.patch.ask(scene.tuple).map(|it| it.window_end.wrapping_sub(it.rcv_nxt)).unwrap();
        scene.brings(window - 4);
        scene.brings(window - 28);
        assert_eq!(scene.told(), [Hole(0..window - 4), Again(window - 28..window)]);
        // And what lies behind it, or far in front of it, does not: anybody could send that.
        for behind in [window, window + 1000, 1 << 30, 1 << 31, (1 << 31) + window, 3 << 30] {
            scene.brings(behind);
        }
        scene.brings(window - 10);
        assert_eq!(scene.told(), [Again(window - 10..window + 18)]);
    });
}

/// The sequence numbers of a fragment that is not the first are not known.
#[test]
fn nothing_is_known_behind_a_fragment() {
    in_namespace(|| {
        // With a whole header of TCP, and with the least that a fragment has.
        for len in [48, 8] {
            let mut scene = Scene::new(0);
            let mut fragment = scene.frame(100, write_fpdu(STAG, BASE, b"octets")).octets();
            fragment[IP + 6] = 0x20;
            fragment[IP + 3] = 20 + len;
            fragment.truncate(TCP + usize::from(len));
            scene.patch.run(&fragment).unwrap();
            assert_eq!(scene.placing.take_told(), Err(Untold));
            assert_eq!(scene.placing.take_told(), Err(Untold), "for good");
        }
        let mut scene = Scene::between("::1", 0);
        let mut fragment = scene.frame(100, write_fpdu(STAG, BASE, b"octets")).octets();
        fragment[IP + 6] = 44;
        fragment.splice(IP + 40..IP + 40, [6, 0, 0, 1, 0, 0, 0, 7]);
        scene.patch.run(&fragment).unwrap();
        assert_eq!(scene.placing.take_told(), Err(Untold));
    });
}

/// Before anything has come, too: a segment with sequence number 0 is not the next.
#[test]
fn a_segment_of_nobody_knows_where_changes_nothing() {
    in_namespace(|| {
        for _ in 0..4 {
            let mut scene = Scene::new(0);
            scene.run(&Frame { seq: 0, ack: 0, ..scene.frame(0, vec![1; 8]) });
            assert_eq!(scene.told(), []);
            scene.placing.note_read(scene.placing.first_seq().wrapping_add(1000), 1000);
            assert_eq!(scene.placing.counts().octets_unseen, 1000);
        }
    });
}

/// The reader may have looked at the number of words before one more was too much.
#[test]
fn what_cannot_be_told_of_is_not_forgotten() {
    in_namespace(|| {
        let mut scene = Scene::new(0);
        scene.brings(100);
        scene.told();
        for _ in 0..3 {
            for _ in 0..TOLD {
                scene.brings(100);
            }
            assert_eq!(scene.told(), vec![Again(100..128); TOLD as usize]);
        }
        for _ in 0..=TOLD {
            scene.brings(100);
        }
        assert_eq!(scene.placing.take_told(), Err(Untold));
    });
}

/// Octets of a hole are read, and nobody has seen them come.
#[test]
fn octets_that_come_another_way_leave_nothing_certain() {
    in_namespace(|| {
        let scene = Scene::new(0);
        scene.brings(1000);
        scene.run(&scene.frame(9000, vec![1; 100]));
        let mut guide = Guide::new(scene.placing, 0);
        guide.note_read(1000, 1000);
        assert_eq!(guide.placing().counts().octets_unseen, 1000);
        let most = Most { sure: 1000, looked_at: 1000 };
        assert_eq!(guide.enter_run(1000, 28, most), Run { octets: 28, is_sure: false });
    });
}

/// Octets that were read before the program told of the hole count once.
#[test]
fn unseen_octets_are_counted_once() {
    in_namespace(|| {
        let scene = Scene::new(0);
        let frame = scene.frame(2000, vec![1; 100]).octets();
        let mut guide = Guide::new(scene.placing, 0);
        guide.note_read(500, 500);
        assert_eq!(guide.placing().counts().octets_unseen, 500);
        scene.patch.run(&frame).unwrap();
        guide.note_read(600, 100);
        assert_eq!(guide.placing().counts().octets_unseen, 600);
    });
}

/// A hole that is filled, by segments that come once.
#[test]
fn octets_that_fill_a_hole_have_come_once() {
    in_namespace(|| {
        let scene = Scene::new(PLACE_ALL);
        for behind in [56, 28, 0] {
            scene.brings(behind);
        }
        let mut guide = Guide::new(scene.placing, 0);
        let most = Most { sure: 1000, looked_at: 1000 };
        // All are for the same octets, and only what was placed last counts.
        guide.note_read(0, 0);
        assert_eq!(guide.enter_run(0, 84, most), Run { octets: 28, is_sure: true });
    });
}

/// There would be no space for more after a while, and then a look at everything.
#[test]
fn what_has_come_again_is_taken_with_every_read() {
    in_namespace(|| {
        let scene = Scene::new(PLACE_ALL);
        let [first, behind] =
            [0, 28].map(|behind| scene.frame(behind, write_fpdu(STAG, BASE, b"octets")).octets());
        let Scene { patch, placing, .. } = scene;
        let mut guide = Guide::new(placing, 0);
        patch.run(&first).unwrap();
        guide.note_read(28, 28);
        for _ in 0..2 * TOLD {
            patch.run(&first).unwrap();
            guide.note_read(28, 0);
        }
        patch.run(&behind).unwrap();
        let most = Most { sure: 1000, looked_at: 1000 };
        assert_eq!(guide.enter_run(28, 28, most), Run { octets: 28, is_sure: true });
    });
}

/// A model of what is told: the last octet that has come.
#[test]
fn random_segments_are_told_of_as_a_model_says() {
    in_namespace(|| {
        let mut scene = Scene::new(PLACE_ALL);
        let mut random = Random::new(5);
        let mut top = 0;
        for _ in 0..super::common::rounds(2_000) {
            let (start, len) = (random.below(20_000) as u32, 1 + random.below(1400) as u32);
            scene.run(&scene.frame(start, pattern(len as usize, 1)));
            let told = match start.cmp(&top) {
                Ordering::Less => vec![Again(start..(start + len).min(top))],
                Ordering::Equal => vec![],
                Ordering::Greater => vec![Hole(top..start)],
            };
            assert_eq!(scene.told(), told);
            top = top.max(start + len);
        }
    });
}
