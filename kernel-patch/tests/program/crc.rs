//! CRCs of FPDUs (RFC 5044 §4.4): the program takes them along, and memory is summed where it lies.

use rddp_kernel_patch::layout::{BLOCK_LEN, PLACE_ALL, RECORD_BEHIND, RECORD_PLACED};
use rddp_mpa::{crc32c, crc32c_append};
use rddp_test_support::{Random, pattern};

use super::common::frame::write_fpdu;
use super::common::net::in_namespace;
use super::common::rounds;
use super::{BASE, CANARIES, STAG, Scene};

/// Several FPDUs in a segment, whatever lies in front of it, and also if a CRC is wrong.
#[test]
fn each_record_has_the_crc_of_its_fpdu() {
    in_namespace(|| {
        for (flags, behind) in [(0, 100), (PLACE_ALL, 100), (PLACE_ALL, 0)] {
            let mut scene = Scene::new(flags);
            let len = |number: u64| 300 + number as usize;
            let mut fpdus =
                [0, 1, 2].map(|number| write_fpdu(STAG, BASE + 400 * number, &pattern(len(number), 1)));
            *fpdus[1].last_mut().unwrap() ^= 1;
            scene.run(&scene.frame(behind, fpdus.concat()));
            for fpdu in fpdus {
                let (record, good) = scene.placing.take().expect("it is placed");
                let bits = RECORD_PLACED | if behind > 0 { RECORD_BEHIND } else { 0 };
                assert_eq!((good, record.stamp & 7, &record.crc[..]), (true, bits, &fpdu[fpdu.len() - 4..]));
            }
        }
    });
}

/// At each alignment, within a block and across the edge of one.
#[test]
fn memory_is_summed_where_it_lies() {
    in_namespace(|| {
        let mut scene = Scene::with_memory("127.0.0.1", 0, BLOCK_LEN + 20_000);
        let octets = pattern(20_000, 3);
        let mut random = Random::new(11);
        for at in [CANARIES, BLOCK_LEN - 10_000] {
            scene.fill(at, &octets);
            for number in 0..rounds(400) {
                let from = number % 17;
                let len = if number < 100 { number } else { random.below(octets.len() - from) };
                let start = scene.memory.start() + (at + from) as u64;
                let sum = scene.memory.crc32c_append(&(start..start + len as u64), crc32c(b"front"));
                assert_eq!(
                    sum,
                    Some(crc32c_append(crc32c(b"front"), &octets[from..from + len])),
                    "{from} {len}"
                );
            }
        }
        let end = scene.memory.start() + scene.memory.len() as u64;
        for place in [end - 1..end + 1, end + 5..end + 6] {
            assert_eq!(scene.memory.crc32c_append(&place, 0), None);
        }
    });
}
