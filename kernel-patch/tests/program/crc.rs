//! CRCs of FPDUs (RFC 5044 §4.4): where connections have them, what is behind a hole is placed only
//! if they fit.

use rddp_kernel_patch::layout::{
    HAS_CRC, Outcome, PLACE_ALL, RECORD_BEHIND, RECORD_PLACED, RECORD_SUMMED, Record,
};
use rddp_test_support::{Random, pattern, segment as ulpdus};

use super::awaited::{OWN, own};
use super::common::frame::{fpdu, write_fpdu};
use super::common::net::in_namespace;
use super::common::rounds;
use super::{BASE, CANARIES, LEN, STAG, Scene};
use rddp_kernel_patch::kernel::Awaited;

/// Returns the bits of a record's stamp.
fn bits(record: &Record) -> u32 {
    record.stamp & (RECORD_PLACED | RECORD_SUMMED | RECORD_BEHIND)
}

#[test]
fn fpdus_behind_a_hole_are_placed_if_their_crc_fits() {
    in_namespace(|| {
        let mut scene = Scene::new(HAS_CRC);
        assert!(scene.patch.stags().open(OWN, &own(&scene)));
        scene.placing.open_receive(1, &Awaited { stag: OWN.0, to: BASE, len: LEN as u32 });
        let mut random = Random::new(11);
        // Each length of a block and of a pad, at each alignment.
        for number in 0..rounds(600) {
            let len = if number < 200 { 1 + number } else { 1 + random.below(3000) };
            let payload = pattern(len, number as u8);
            let to = random.below(64) as u64;
            let fpdu = match number % 3 {
                0 => fpdu(&ulpdus::send(1, to as u32, false, &payload)),
                _ => write_fpdu(STAG, BASE + to, &payload),
            };
            scene.run(&scene.frame(100, fpdu.clone()));
            let (record, good) = scene.placing.take().expect("it is placed");
            assert!(
                good && bits(&record) == RECORD_PLACED | RECORD_SUMMED | RECORD_BEHIND,
                "{len} octets to {to}"
            );
            assert_eq!(record.crc[..], fpdu[fpdu.len() - 4..]);
            assert!(scene.octets()[CANARIES + to as usize..][..len] == payload);

            let mut wrong = fpdu;
            let (at, bit) = (random.below(wrong.len() - 22) + 22, random.below(8));
            wrong[at] ^= 1 << bit;
            scene.run(&scene.frame(100, wrong));
            let (record, good) = scene.placing.take().expect("octets have changed");
            assert!(!good && bits(&record) == 0, "{len} octets to {to}, bit {bit} of octet {at}");
        }
    });
}

#[test]
fn a_crc_is_summed_where_there_is_one_and_a_hole() {
    in_namespace(|| {
        for (flags, behind, wanted) in [
            (HAS_CRC, 100, RECORD_PLACED | RECORD_SUMMED | RECORD_BEHIND),
            (0, 100, RECORD_PLACED | RECORD_BEHIND),
            (HAS_CRC | PLACE_ALL, 100, RECORD_PLACED | RECORD_SUMMED | RECORD_BEHIND),
            (HAS_CRC | PLACE_ALL, 0, RECORD_PLACED),
        ] {
            let mut scene = Scene::new(flags);
            scene.run(&scene.frame(behind, write_fpdu(STAG, BASE, b"data")));
            assert_eq!(bits(&scene.placing.take().unwrap().0), wanted, "{flags} {behind}");
        }
    });
}

/// Several FPDUs in a segment, of which one is wrong.
#[test]
fn each_fpdu_of_a_segment_has_a_crc_of_its_own() {
    in_namespace(|| {
        let mut scene = Scene::new(HAS_CRC);
        let mut fpdus = [0, 1, 2].map(|number| write_fpdu(STAG, BASE + 300 * number, &pattern(300, 1)));
        *fpdus[1].last_mut().unwrap() ^= 1;
        scene.run(&scene.frame(100, fpdus.concat()));
        let good = std::iter::from_fn(|| scene.placing.take()).map(|(_, good)| good);
        assert_eq!(good.collect::<Vec<_>>(), [true, false, true]);
        assert_eq!((scene.placing.counts().fpdus, scene.placing.left(Outcome::BadChecksum)), (2, 1));
    });
}
