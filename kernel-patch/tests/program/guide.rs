//! Turns of FPDUs, as the reader begins them, and runs that it takes without a look at the stream:
//! TCP has what was placed, and its CRC fits.

use rddp_kernel_patch::kernel::{Guide, Most, Opening, Run};
use rddp_kernel_patch::layout::{HAS_CRC, Outcome, PLACE_ALL};

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
        for (flags, behind) in [(0, 100), (HAS_CRC, 100), (PLACE_ALL, 0), (PLACE_ALL, 100)] {
            let run = Scene::new(flags).run_behind(behind);
            assert_eq!(run, Run { octets: 28, is_sure: true }, "{flags}, {behind}");
        }
    });
}

/// The program sums the CRCs of what lies behind a hole alone.
#[test]
fn what_nobody_has_summed_is_looked_at() {
    in_namespace(|| {
        let run = Scene::new(PLACE_ALL | HAS_CRC).run_behind(0);
        assert_eq!(run, Run { octets: 28, is_sure: false });
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
