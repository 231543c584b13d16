//! Properties for any ULPDUs, any positions and any way in which TCP may cut the stream.

use proptest::collection::vec;
use proptest::prelude::*;
use rddp_mpa::{Deframer, Framer, Framing, Step, crc32c, crc32c_append};

use crate::{emit, emitted, naive, octets, ulpdu_in};

fn framing() -> impl Strategy<Value = Framing> {
    (any::<bool>(), any::<bool>()).prop_map(|(crc, markers)| Framing { crc, markers })
}

/// Positions at which an FPDU may begin, more often those around a marker.
fn position() -> impl Strategy<Value = u64> {
    prop_oneof![0..1024_u64, 120..136_u64].prop_map(|words| words * 4)
}

/// Sizes of a ULPDU, more often those of a header alone and those at which an FPDU ends near a
/// marker.
fn ulpdu_len() -> impl Strategy<Value = usize> {
    prop_oneof![0..80_usize, 480..540_usize, 990..1040_usize, 0..5000_usize]
}

fn ulpdus() -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec((ulpdu_len(), any::<u8>()).prop_map(|(len, seed)| octets(len, seed)), 1..12)
}

/// Octets with many zeros, so that short FPDUs are among them.
fn rubbish() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![3 => Just(0), 1 => any::<u8>()], 0..2000)
}

/// Returns what a deframer delivers of a stream that arrives in pieces of these sizes, over and
/// over.
fn delivered(mut deframer: Deframer, wire: &[u8], pieces: &[usize]) -> Vec<Vec<u8>> {
    let (mut stream, mut found, mut at) = (Vec::new(), Vec::new(), 0);
    for piece in pieces.iter().cycle() {
        let end = wire.len().min(at + piece);
        stream.extend_from_slice(&wire[at..end]);
        at = end;
        loop {
            match deframer.step(&mut stream).unwrap() {
                Step::Fpdu { ulpdu, used } => {
                    found.push(stream[ulpdu].to_vec());
                    stream.drain(..used);
                }
                Step::Need { total } => {
                    assert!(total > stream.len());
                    break;
                }
            }
        }
        if at == wire.len() {
            break;
        }
    }
    assert_eq!(deframer.finish(&stream), Ok(()));
    found
}

proptest! {
    // RFC 5044 §4.4: compared with a computation bit by bit.
    #[test]
    fn crc_is_that_of_a_bitwise_computation(data in vec(any::<u8>(), 0..3000), cut in 0..3000_usize) {
        let cut = cut.min(data.len());
        prop_assert_eq!(crc32c(&data), naive::crc32c(&data));
        prop_assert_eq!(crc32c_append(crc32c(&data[..cut]), &data[cut..]), naive::crc32c(&data));
    }

    // RFC 5044 §3, §4.1 to §4.4: another parser reads the FPDUs that were sent alike, marker by
    // marker.
    #[test]
    fn a_naive_parser_finds_what_was_sent(framing in framing(), start in position(), ulpdus in ulpdus()) {
        let (mut framer, mut wire) = (Framer::at(framing, start), Vec::new());
        for ulpdu in &ulpdus {
            let (before, announced) = (wire.len(), framer.fpdu_len(ulpdu.len()));
            emit(&mut framer, ulpdu, &mut wire);
            prop_assert_eq!(wire.len() - before, announced);
            prop_assert_eq!(announced % 4, 0);
        }
        let found = naive::parse(&wire, start, framing.markers);
        prop_assert_eq!(found.len(), ulpdus.len());
        for (found, ulpdu) in found.iter().zip(&ulpdus) {
            prop_assert_eq!(&found.ulpdu, ulpdu);
            let crc = if framing.crc { naive::crc32c(&found.covered) } else { 0 };
            prop_assert_eq!(found.crc, crc.to_le_bytes());
            for (pointer, due) in &found.markers {
                prop_assert_eq!(pointer, due);
            }
        }
    }

    // RFC 5044 §5.2, §6: FPDUs are found however TCP cut and merged them.
    #[test]
    fn every_cut_and_merge_yields_the_same_ulpdus(
        framing in framing(),
        start in position(),
        ulpdus in ulpdus(),
        pieces in vec(1..3000_usize, 1..6),
    ) {
        let (mut framer, mut wire) = (Framer::at(framing, start), Vec::new());
        for ulpdu in &ulpdus {
            emit(&mut framer, ulpdu, &mut wire);
        }
        let deframer = Deframer::at(framing, start);
        prop_assert_eq!(&delivered(deframer.clone(), &wire, &pieces), &ulpdus);
        prop_assert_eq!(&delivered(deframer.clone(), &wire, &[1]), &ulpdus);
        prop_assert_eq!(&delivered(deframer, &wire, &[wire.len()]), &ulpdus);
    }

    // RFC 5044 §5.2
    #[test]
    fn every_split_point_yields_the_same_fpdu(
        framing in framing(),
        start in position(),
        len in prop_oneof![0..80_usize, 480..540_usize],
        seed: u8,
    ) {
        let ulpdu = octets(len, seed);
        let wire = emitted(framing, start, &ulpdu);
        for cut in 0..wire.len() {
            let mut deframer = Deframer::at(framing, start);
            let mut stream = wire[..cut].to_vec();
            let Ok(Step::Need { total }) = deframer.step(&mut stream) else {
                panic!("{cut} of {} octets are no FPDU", wire.len());
            };
            prop_assert!(cut < total && total <= wire.len());
            prop_assert_eq!(&stream[..], &wire[..cut]);
            stream.extend_from_slice(&wire[cut..]);
            let step = deframer.step(&mut stream);
            let Ok(Step::Fpdu { ulpdu: found, used }) = step else { panic!("{step:?}") };
            prop_assert_eq!(&stream[found], &ulpdu[..]);
            prop_assert_eq!(used, wire.len());
        }
    }

    // RFC 5044 §4.1, §4.2: deviations that a receiver ignores are not sent again: octets that were
    // accepted give a ULPDU, and this ULPDU gives octets that are read alike.
    #[test]
    fn accepted_octets_make_an_fpdu_that_reads_alike(
        markers: bool,
        start in position(),
        len in ulpdu_len(),
        noise: u8,
    ) {
        let framing = Framing { crc: true, markers };
        let ulpdu = octets(len, noise);
        let clean = emitted(framing, start, &ulpdu);
        let mut odd = clean.clone();
        if markers {
            let first = (512 - start % 512) % 512;
            for at in (first as usize..odd.len()).step_by(512) {
                odd[at] = noise;
                odd[at + 1] = !noise;
                odd[at + 3] |= noise & 3;
            }
        }
        let crc = odd.len() - 4;
        let sealed = crc32c(&odd[..crc]).to_le_bytes();
        odd[crc..].copy_from_slice(&sealed);
        let found = ulpdu_in(framing, start, &odd);
        prop_assert_eq!(&found, &ulpdu);
        prop_assert_eq!(emitted(framing, start, &found), clean);
    }

    // RFC 5044 §4.4: the CRC covers every bit before its field, and a flipped bit in the field
    // counts too.
    #[test]
    fn a_flipped_bit_delivers_nothing(markers: bool, start in position(), len in ulpdu_len(), bit: prop::sample::Index) {
        let framing = Framing { crc: true, markers };
        let mut wire = emitted(framing, start, &octets(len, 1));
        let bit = bit.index(wire.len() * 8);
        wire[bit / 8] ^= 1 << (bit % 8);
        let mut stream = wire.clone();
        // A flipped bit in the length may make the deframer wait for more.
        let step = Deframer::at(framing, start).step(&mut stream);
        let delivered = matches!(step, Ok(Step::Fpdu { .. }));
        prop_assert!(!delivered);
        prop_assert_eq!(stream, wire);
    }

    // Random octets cause no panic, and never a wait for more than one FPDU can have.
    #[test]
    fn random_octets_cause_neither_panic_nor_endless_need(framing in framing(), start in position(), mut rubbish in rubbish()) {
        let mut deframer = Deframer::at(framing, start);
        let mut at = 0;
        loop {
            prop_assert!(deframer.peek(&rubbish[at..]).is_none_or(|peek| peek.fpdu_len <= 65_544));
            match deframer.step(&mut rubbish[at..]) {
                Ok(Step::Fpdu { used, ulpdu }) => {
                    prop_assert!(used <= rubbish.len() - at && ulpdu.end <= used - 4);
                    at += used;
                }
                Ok(Step::Need { total }) => {
                    prop_assert!(rubbish.len() - at < total && total <= 65_544 + 4 * 130);
                    break;
                }
                Err(error) => {
                    prop_assert_eq!(deframer.step(&mut rubbish[at..]), Err(error));
                    break;
                }
            }
        }
    }

    // RFC 5044 §4.1, §4.4: a gather list followed by its trailer is the FPDU that `emit` makes.
    #[test]
    fn a_gathered_fpdu_is_the_emitted_one(crc: bool, ulpdus in ulpdus()) {
        let framing = Framing { crc, markers: false };
        let (mut whole, mut gathered) = (Framer::new(framing), Framer::new(framing));
        for ulpdu in &ulpdus {
            let mut expected = Vec::new();
            emit(&mut whole, ulpdu, &mut expected);
            let mut octets = (ulpdu.len() as u16).to_be_bytes().to_vec();
            octets.extend_from_slice(ulpdu);
            let trailer = gathered.trailer(ulpdu.len(), if crc { crc32c(&octets) } else { 0 });
            octets.extend_from_slice(trailer.as_ref());
            prop_assert_eq!(octets, expected);
            prop_assert_eq!(gathered.position(), whole.position());
        }
    }

    // RFC 5044 §4.4: an FPDU received in pieces passes the checks that `step` makes.
    #[test]
    fn an_fpdu_received_piecewise_is_the_stepped_one(crc: bool, ulpdus in ulpdus(), wrong: bool) {
        let framing = Framing { crc, markers: false };
        let (mut framer, mut stepped) = (Framer::new(framing), Deframer::new(framing));
        let mut external = stepped.clone();
        for ulpdu in &ulpdus {
            let mut wire = Vec::new();
            emit(&mut framer, ulpdu, &mut wire);
            let crc_at = wire.len() - 4;
            if wrong {
                wire[crc_at] ^= 1;
            }
            let peek = external.peek(&wire).unwrap();
            prop_assert_eq!((peek.ulpdu_len, peek.fpdu_len), (ulpdu.len(), wire.len()));
            let field = wire[crc_at..].try_into().unwrap();
            let taken = external.accept_external(ulpdu.len(), crc32c(&wire[..crc_at]), field);
            prop_assert_eq!(taken.err(), stepped.step(&mut wire).err());
            prop_assert_eq!(taken.is_err(), crc && wrong);
            prop_assert_eq!(external.position(), stepped.position());
            prop_assert_eq!(external.peek(&wire).is_none(), taken.is_err());
            if taken.is_err() {
                break;
            }
        }
    }
}
