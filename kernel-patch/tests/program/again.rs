//! Octets that come by again, of which user space is told before TCP has them.

use rddp_kernel_patch::kernel::{Guide, Most, Run, Untold};
use rddp_kernel_patch::layout::{AGAIN, PLACE_ALL};
use rddp_test_support::{Random, pattern};

use super::common::frame::{IP, TCP, seal, write_fpdu};
use super::common::net::in_namespace;
use super::{BASE, STAG, Scene};

impl Scene {
    /// Runs the program on a segment of 28 octets, so many octets behind the next one.
    fn brings(&self, behind: u32) {
        self.run(&self.frame(behind, write_fpdu(STAG, BASE, b"octets")));
    }

    /// Returns what has come by again, counted from the next octet that TCP expects: first octets,
    /// and those behind the last.
    fn again(&mut self) -> Vec<(u32, u32)> {
        let first = self.placing.first_seq();
        let taken = std::iter::from_fn(|| self.placing.take_again().unwrap());
        taken.map(|it| (it.start.wrapping_sub(first), it.end.wrapping_sub(first))).collect()
    }
}

#[test]
fn segments_that_come_once_are_not_told_of() {
    in_namespace(|| {
        for flags in [0, PLACE_ALL] {
            let mut scene = Scene::new(flags);
            for behind in [0, 28, 100, 128, 1000] {
                scene.brings(behind);
            }
            assert_eq!(scene.again(), []);
        }
    });
}

/// The same holds for segments that are placed, in order or not.
#[test]
fn octets_that_come_again_are_told_of() {
    in_namespace(|| {
        for flags in [0, PLACE_ALL] {
            let mut scene = Scene::new(flags);
            scene.brings(100);
            scene.brings(100);
            assert_eq!(scene.again(), [(100, 128)]);
            // A hole is filled, and the segment behind it has a part of what came.
            scene.brings(72);
            scene.brings(120);
            assert_eq!(scene.again(), [(72, 100), (120, 128)]);
            scene.brings(0);
            scene.brings(0);
            assert_eq!(scene.again(), [(0, 28), (0, 28)]);
            // In front of what is expected, and all of it behind the last octet that came.
            scene.brings(0u32.wrapping_sub(10));
            scene.brings(148);
            assert_eq!(scene.again(), [(0u32.wrapping_sub(10), 18)]);
        }
    });
}

/// TCP, or IP, may take what the program does not.
#[test]
fn segments_that_are_not_placed_are_told_of_all_the_same() {
    in_namespace(|| {
        let mut scene = Scene::new(0);
        scene.brings(100);
        let right = scene.frame(100, write_fpdu(STAG, BASE, b"octets"));
        let mut cases = vec![scene.frame(100, vec![1; 28]).octets()];
        for flags in [0x11, 0x19, 0x30, 0] {
            cases.push(super::Frame { flags, ..right.clone() }.octets());
        }
        cases.push(super::Frame { ack: right.ack.wrapping_add(1 << 20), ..right.clone() }.octets());
        let mut wrong = right.octets();
        wrong[TCP + 25] ^= 1; // and a wrong checksum
        cases.push(wrong);
        for frame in cases {
            scene.patch.run(&frame).unwrap();
            assert_eq!(scene.again(), [(100, 128)]);
        }
        // In a state in which nothing is placed.
        scene.own.shutdown(std::net::Shutdown::Write).unwrap();
        scene.brings(100);
        assert_eq!(scene.again(), [(100, 128)]);
        // An acknowledgement has no octets.
        scene.run(&scene.frame(100, Vec::new()));
        assert_eq!(scene.again(), []);
    });
}

/// Octets that TCP takes though they lie behind its window, or begin in it.
#[test]
fn what_ends_behind_the_window_counts_as_having_come() {
    in_namespace(|| {
        let mut scene = Scene::new(0);
        let window = scene.patch.ask(scene.tuple).map(|it| it.window_end.wrapping_sub(it.rcv_nxt)).unwrap();
        scene.brings(window - 4);
        scene.brings(window - 28);
        assert_eq!(scene.again(), [(window - 28, window)]);
        // And what lies behind it does not: anybody could send that.
        scene.brings(window + 1000);
        scene.brings(window - 10);
        assert_eq!(scene.again(), [(window - 10, window + 18)]);
    });
}

/// Nobody knows the sequence numbers of a fragment that is not the first.
#[test]
fn any_octets_may_have_come_again_behind_a_fragment() {
    in_namespace(|| {
        let mut scene = Scene::new(0);
        let mut fragment = scene.frame(100, write_fpdu(STAG, BASE, b"octets")).octets();
        fragment[IP + 6] = 0x20;
        seal(&mut fragment);
        scene.patch.run(&fragment).unwrap();
        assert_eq!(scene.placing.take_again(), Err(Untold));
        assert_eq!(scene.placing.take_again(), Err(Untold), "for good");
    });
}

#[test]
fn what_cannot_be_told_of_is_not_forgotten() {
    in_namespace(|| {
        let mut scene = Scene::new(0);
        scene.brings(100);
        for _ in 0..3 {
            for _ in 0..AGAIN {
                scene.brings(100);
            }
            assert_eq!(scene.again(), vec![(100, 128); AGAIN as usize]);
        }
        for _ in 0..=AGAIN {
            scene.brings(100);
        }
        assert_eq!(scene.placing.take_again(), Err(Untold));
    });
}

/// There would be no space for more after a while, and then a look at everything.
#[test]
fn what_has_come_again_is_taken_with_every_read() {
    in_namespace(|| {
        let scene = Scene::new(0);
        let [first, behind] =
            [0, 100].map(|behind| scene.frame(behind, write_fpdu(STAG, BASE, b"octets")).octets());
        let Scene { patch, placing, .. } = scene;
        let mut guide = Guide::new(placing, 0);
        patch.run(&first).unwrap();
        guide.note_read(28, 28);
        for _ in 0..2 * AGAIN {
            patch.run(&first).unwrap();
            guide.note_read(28, 0);
        }
        patch.run(&behind).unwrap();
        let most = Most { sure: 1000, looked_at: 1000 };
        assert_eq!(guide.enter_run(100, 28, most), Run { octets: 28, is_sure: true });
    });
}

/// A model of what is told: a bit for each octet that has come.
#[test]
fn random_segments_are_told_of_as_a_model_says() {
    in_namespace(|| {
        let mut scene = Scene::new(PLACE_ALL);
        let mut random = Random::new(5);
        let mut top = 0;
        for _ in 0..super::common::rounds(2_000) {
            let (start, len) = (random.below(20_000) as u32, 1 + random.below(1400) as u32);
            scene.run(&scene.frame(start, pattern(len as usize, 1)));
            let told = (start, (start + len).min(top));
            assert_eq!(scene.again(), if start < told.1 { vec![told] } else { vec![] });
            top = top.max(start + len);
        }
    });
}
