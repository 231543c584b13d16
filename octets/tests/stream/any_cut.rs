//! However the octets of a peer are cut, and however little room there is, a byte stream delivers
//! the same octets, stands at the same position and ends for the same reason.

use rddp_ddp::Stag;
use rddp_octets::{Position, Stop, Terms};
use rddp_rdmap::{ReadRequestRepr, TerminateCode};
use rddp_test_support::{Fpdus, Random, pattern_from, segment};

use crate::told::Told;

/// Returns a segment that a peer may send next, or may not.
fn ulpdu(random: &mut Random, msns: &mut [u32; 2], mo: &mut u32) -> Vec<u8> {
    match random.below(40) {
        0 => segment::terminate(TerminateCode(0x0101)),
        1 => segment::write(Stag(7), 0, true, b"x"),
        2 => segment::send_invalidate(msns[0], Stag(7), b""),
        3..8 => segment::write(Stag(7), 0, true, b""),
        8..14 => {
            msns[1] += 1;
            let size = u32::from(random.below(30) == 0);
            let request =
                ReadRequestRepr { sink_stag: Stag(1), sink_to: 0, size, src_stag: Stag(2), src_to: 0 };
            segment::read(msns[1] - 1, &request)
        }
        _ => {
            let (len, last) = (random.below(700), random.below(2) == 0);
            let send = segment::send(msns[0], *mo, last, &pattern_from(*mo as usize, len));
            (msns[0], *mo) = if last { (msns[0] + 1, 0) } else { (msns[0], *mo + len as u32) };
            send
        }
    }
}

#[test]
fn one_look_and_single_octets_tell_the_same() {
    let mut ends = [0; 3];
    for seed in 1..300 {
        let mut random = Random::new(seed);
        let terms = Terms { crc: seed % 2 == 0, markers: seed % 3 == 0, ird: 4, ord: 0 };
        let mut peer = Fpdus::new(terms.framing(), terms.framing());
        let (mut msns, mut mo) = ([1, 1], 0);
        let mut octets: Vec<u8> =
            (0..random.below(12)).flat_map(|_| peer.frame(&ulpdu(&mut random, &mut msns, &mut mo))).collect();
        if seed % 5 == 0 && !octets.is_empty() {
            let at = random.below(octets.len());
            octets[at] ^= 1 << random.below(8);
        }
        let at_once = Told::of(&terms, Position::FIRST, &octets, || 1 << 20);
        let by_one = Told::of(&terms, Position::FIRST, &octets, || 1);
        assert_eq!(by_one, at_once, "seed {seed}");
        let by_some = Told::of(&terms, Position::FIRST, &octets, || random.below(900));
        assert_eq!(by_some, at_once, "seed {seed}");
        ends[match at_once.end {
            None => 0,
            Some(Stop::Terminated(_)) => 1,
            Some(_) => 2,
        }] += 1;
    }
    assert!(ends.iter().all(|count| *count > 10), "{ends:?}");
}
