//! Turns of FPDUs, as the reader begins them, and runs that it takes without a look at the stream:
//! TCP has what was placed, and its CRC fits.

use rddp_kernel_patch::kernel::{Guide, Most, Opening, Run};
use rddp_kernel_patch::layout::{Outcome, PLACE_ALL, RECORD_SUMMED};

use super::common::frame::write_fpdu;
use super::common::net::{in_namespace, inject};
use super::{BASE, PD, QP, STAG, Scene};

const MOST: Most = Most { sure: 1 << 20, looked_at: 1 << 20 };

impl Scene {
    /// Runs the program on an FPDU so many octets behind the next one, and returns the run that
    /// begins with it, for a reader that has taken all in front of it.
    fn run_behind(self, behind: u32) -> Run {
        let fpdu = write_fpdu(STAG, BASE, b"octets");
        let there = fpdu.len() as u64;
        self.run(&self.frame(behind, fpdu));
        if behind > 0 {
            self.run(&self.frame(0, vec![1; behind as usize]));
        }
        let mut guide = Guide::new(self.placing, 0);
        guide.note_read(u64::from(behind), behind as usize);
        guide.enter_run(u64::from(behind), there, MOST)
    }

    /// Begins placement anew.
    fn placed_anew(self, flags: u32) -> Self {
        drop(self.placing);
        let placing = self.patch.place(&Opening { tuple: self.tuple, pd: PD, qp: QP, flags }).unwrap();
        Self { placing, ..self }
    }
}

#[test]
fn what_has_come_once_is_sure() {
    in_namespace(|| {
        for (flags, behind) in [(0, 100), (PLACE_ALL, 0), (PLACE_ALL, 100)] {
            let run = Scene::new(flags).run_behind(behind);
            assert_eq!(run, Run { octets: 28, is_sure: true }, "{flags}, {behind}");
        }
    });
}

/// RFC 5044 §4.4: what is summed ahead of its turn need not be summed then, unless its segment
/// comes by again.
#[test]
fn what_is_placed_is_summed_once() {
    in_namespace(|| {
        let scene = Scene::new(0);
        let segment =
            |behind| scene.frame(behind, write_fpdu(STAG, BASE + u64::from(behind), b"octets")).octets();
        let [first, second] = [100, 200].map(segment);
        let Scene { patch, placing, .. } = scene;
        let mut guide = Guide::new(placing, 0);
        assert_eq!(guide.sum_ahead(|_| panic!("nothing is placed")), (0, false));
        patch.run(&first).unwrap();
        patch.run(&second).unwrap();
        let mut fits = [false, true].into_iter();
        assert_eq!(guide.sum_ahead(|_| fits.next().unwrap()), (1, true));
        let is_summed = |guide: &Guide, position| guide.record(position).unwrap().stamp & RECORD_SUMMED != 0;
        assert!(!is_summed(&guide, 100) && is_summed(&guide, 200));
        assert_eq!(guide.sum_ahead(|_| true), (1, true), "the first, whose octets did not fit");
        patch.run(&second).unwrap();
        assert_eq!(guide.sum_ahead(|_| false), (0, true));
        assert!(is_summed(&guide, 100) && !is_summed(&guide, 200));
    });
}

/// Segments behind a hole that TCP has had since before the program knew the connection: it may
/// have other octets than those that come by later, and are placed.
#[test]
fn what_tcp_may_have_had_before_placement_began_is_looked_at() {
    in_namespace(|| {
        let scene = Scene::new(0);
        inject(&scene.frame(100, write_fpdu(STAG, BASE, b"others")).octets());
        while scene.patch.ask(scene.tuple).unwrap().has_more == 0 {
            std::thread::yield_now();
        }
        let run = scene.placed_anew(0).run_behind(100);
        assert_eq!(run, Run { octets: 28, is_sure: false });
    });
}

#[test]
fn what_was_read_or_has_had_its_turn_is_placed_no_more() {
    in_namespace(|| {
        for (end, is_read) in [(100, false), (128, false), (100, true), (128, true)] {
            let scene = Scene::new(0);
            let frame = scene.frame(100, write_fpdu(STAG, BASE, b"octets")).octets();
            let mut guide = Guide::new(scene.placing, 0);
            match is_read {
                true => guide.note_read(end, end as usize),
                false => guide.enter(0, end),
            }
            scene.patch.run(&frame).unwrap();
            assert_eq!(guide.is_placed(100), end == 100);
            assert_eq!(guide.placing().left(Outcome::Stale), u64::from(end > 100));
        }
    });
}
