//! `mpa_deframe`: any octets as an FPDU stream (RFC 5044 §4, §6, §8).
//!
//! The first octet chooses CRC and markers, and what is corrected in the stream before the deframer
//! gets it, since a fuzzer does not find a CRC by chance. The second says at which position of a
//! marked stream it begins, the third is the seed of the cuts.

use rddp_mpa::{Deframer, FpduError, Framer, Framing, Step, crc32c, crc32c_append, fpdu_len};
use rddp_test_support::Random;

/// Bits of the first octet.
pub(crate) mod flag {
    pub(crate) const CRC: u8 = 1;
    pub(crate) const MARKERS: u8 = 2;
    /// Every complete FPDU gets the CRC that it should have.
    pub(crate) const MEND_CRC: u8 = 4;
    /// Every marker gets the pointer that it should have.
    pub(crate) const MEND_MARKERS: u8 = 8;
}

/// The outcome of a stream.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    ulpdus: Vec<Vec<u8>>,
    used: usize,
    error: Option<FpduError>,
}

/// Runs one input; the module says how it is read.
pub fn run(octets: &[u8]) {
    let [flags, at, seed, stream @ ..] = octets else { return };
    let framing = Framing { crc: flags & flag::CRC != 0, markers: flags & flag::MARKERS != 0 };
    let position = u64::from(*at) * 4;
    let mut stream = stream.to_vec();
    mend(&mut stream, framing, position, *flags);
    let want = naive(&stream, framing, position);
    assert_eq!(at_once(&stream, framing, position), want);
    assert_eq!(in_pieces(&stream, framing, position, &mut Random::new((*seed).into())), want);
    if !framing.markers {
        assert_eq!(externally(&stream, framing, position), want);
    }
    round_trip(&want.ulpdus, framing, position);
}

/// An independent reading: octet by octet, with markers recognised by their position alone.
struct Naive<'a> {
    stream: &'a [u8],
    position: u64,
    at: usize,
}

impl Naive<'_> {
    /// Returns the next octet that is not part of a marker. Markers are noted, with their positions
    /// and pointers.
    fn octet(&mut self, markers: Option<&mut Vec<(usize, u16)>>) -> Option<u8> {
        if let Some(markers) = markers
            && (self.position + self.at as u64).is_multiple_of(512)
        {
            let marker = self.stream.get(self.at..self.at + 4)?;
            markers.push((self.at, u16::from(marker[2]) << 8 | u16::from(marker[3])));
            self.at += 4;
        }
        self.at += 1;
        self.stream.get(self.at - 1).copied()
    }
}

/// An FPDU as found by the independent reading.
struct Fpdu {
    ulpdu: Vec<u8>,
    /// The positions of its length field, its CRC field and its end.
    length_at: usize,
    crc_at: usize,
    end: usize,
    crc: u32,
    markers: Vec<(usize, u16)>,
}

fn read(stream: &[u8], framing: Framing, position: u64, from: usize) -> Option<Fpdu> {
    let mut markers = Vec::new();
    let mut reader = Naive { stream, position, at: from };
    let mut next = || {
        let octet = reader.octet(framing.markers.then_some(&mut markers))?;
        Some((octet, reader.at))
    };
    let (high, length_end) = next()?;
    let length = usize::from(high) << 8 | usize::from(next()?.0);
    let ulpdu = (0..length).map(|_| Some(next()?.0)).collect::<Option<_>>()?;
    let pad = (4 - (length + 2) % 4) % 4;
    for _ in 0..pad {
        next()?;
    }
    let crc: Vec<(u8, usize)> = (0..4).map(|_| next()).collect::<Option<_>>()?;
    let (crc_at, end) = (crc[0].1 - 1, crc[3].1);
    let crc = crc.iter().rev().fold(0, |crc, (octet, _)| crc << 8 | u32::from(*octet));
    Some(Fpdu { ulpdu, length_at: length_end - 1, crc_at, end, crc, markers })
}

fn naive(stream: &[u8], framing: Framing, position: u64) -> Outcome {
    let mut outcome = Outcome { ulpdus: Vec::new(), used: 0, error: None };
    while let Some(fpdu) = read(stream, framing, position, outcome.used) {
        let want = crc32c(&stream[outcome.used..fpdu.crc_at]);
        if framing.crc && fpdu.crc != want {
            outcome.error = Some(FpduError::Crc { got: fpdu.crc, want });
            break;
        }
        let bad = fpdu.markers.iter().find_map(|&(at, pointer)| {
            let want = at.saturating_sub(fpdu.length_at) as u16;
            let (position, got) = (position + at as u64, pointer & 0xfffc);
            (got != want).then_some(FpduError::Marker { position, got, want })
        });
        if bad.is_some() {
            outcome.error = bad;
            break;
        }
        outcome.ulpdus.push(fpdu.ulpdu);
        outcome.used = fpdu.end;
    }
    outcome
}

/// Corrects what the flags say.
pub(crate) fn mend(stream: &mut [u8], framing: Framing, position: u64, flags: u8) {
    let mut from = 0;
    while let Some(fpdu) = read(stream, framing, position, from) {
        if flags & flag::MEND_MARKERS != 0 {
            for (at, _) in &fpdu.markers {
                let pointer = at.saturating_sub(fpdu.length_at) as u16;
                stream[at + 2..at + 4].copy_from_slice(&pointer.to_be_bytes());
            }
        }
        if flags & flag::MEND_CRC != 0 {
            let crc = crc32c(&stream[from..fpdu.crc_at]);
            stream[fpdu.crc_at..fpdu.crc_at + 4].copy_from_slice(&crc.to_le_bytes());
        }
        from = fpdu.end;
    }
}

fn at_once(stream: &[u8], framing: Framing, position: u64) -> Outcome {
    let mut stream = stream.to_vec();
    let mut deframer = Deframer::at(framing, position);
    let mut outcome = Outcome { ulpdus: Vec::new(), used: 0, error: None };
    loop {
        let rest = &mut stream[outcome.used..];
        match deframer.step(rest) {
            Ok(Step::Fpdu { ulpdu, used }) => {
                outcome.ulpdus.push(rest[ulpdu].to_vec());
                outcome.used += used;
                assert_eq!(deframer.position(), position + outcome.used as u64);
            }
            Ok(Step::Need { total }) => {
                assert!(total > rest.len());
                assert_eq!(deframer.finish(rest).is_ok(), rest.is_empty());
                return outcome;
            }
            Err(error) => {
                // RFC 5044 §8: nothing more is delivered.
                assert_eq!(deframer.step(rest), Err(error));
                assert_eq!(deframer.finish(&[]), Err(error));
                assert_eq!(deframer.peek(rest), None);
                return Outcome { error: Some(error), ..outcome };
            }
        }
    }
}

/// TCP cuts the stream anywhere (RFC 5044 §6).
fn in_pieces(stream: &[u8], framing: Framing, position: u64, random: &mut Random) -> Outcome {
    let mut deframer = Deframer::at(framing, position);
    let mut outcome = Outcome { ulpdus: Vec::new(), used: 0, error: None };
    let (mut staging, mut given) = (Vec::new(), 0);
    let mut need = 0;
    while given < stream.len() {
        let chunk = random.chunk(stream.len() - given);
        staging.extend(&stream[given..given + chunk]);
        given += chunk;
        loop {
            let before = staging.clone();
            match deframer.step(&mut staging) {
                Ok(Step::Fpdu { ulpdu, used }) => {
                    assert!(before.len() >= need, "less than what was needed was enough");
                    outcome.ulpdus.push(staging[ulpdu].to_vec());
                    outcome.used += used;
                    staging.drain(..used);
                    need = 0;
                }
                Ok(Step::Need { total }) => {
                    assert_eq!(staging, before);
                    assert!(total > staging.len() && total >= need);
                    need = total;
                    break;
                }
                Err(error) => {
                    assert_eq!(staging, before);
                    return Outcome { error: Some(error), ..outcome };
                }
            }
        }
    }
    outcome
}

/// The caller receives the FPDUs itself, as `peek` describes them.
fn externally(stream: &[u8], framing: Framing, position: u64) -> Outcome {
    let mut deframer = Deframer::at(framing, position);
    let mut outcome = Outcome { ulpdus: Vec::new(), used: 0, error: None };
    loop {
        let rest = &stream[outcome.used..];
        let Some(peek) = deframer.peek(rest) else { return outcome };
        assert_eq!(peek.fpdu_len, fpdu_len(peek.ulpdu_len));
        let Some(fpdu) = rest.get(..peek.fpdu_len) else { return outcome };
        let (covered, field) = fpdu.split_at(fpdu.len() - 4);
        match deframer.accept_external(peek.ulpdu_len, crc32c(covered), field.try_into().unwrap()) {
            Ok(()) => {
                outcome.ulpdus.push(fpdu[2..2 + peek.ulpdu_len].to_vec());
                outcome.used += peek.fpdu_len;
            }
            Err(error) => return Outcome { error: Some(error), ..outcome },
        }
    }
}

/// Checks that an FPDU that was read can be emitted again.
fn round_trip(ulpdus: &[Vec<u8>], framing: Framing, position: u64) {
    let mut framer = Framer::at(framing, position);
    let mut gathering = Framer::at(framing, position);
    let mut wire = Vec::new();
    for (number, ulpdu) in ulpdus.iter().enumerate() {
        let (header, payload) = ulpdu.split_at(ulpdu.len().min(18 * (number % 2)));
        let (start, mut filled) = (wire.len(), 0);
        let wire_len = framer.fpdu_len(ulpdu.len());
        let fill = |offset: usize, out: &mut [u8]| {
            assert_eq!(offset, filled);
            assert!(!out.is_empty());
            filled += out.len();
            out.copy_from_slice(&payload[offset..filled]);
        };
        framer.emit(header, payload.len(), fill, &mut wire);
        assert_eq!((filled, wire.len() - start), (payload.len(), wire_len));
        assert_eq!(framer.position(), position + wire.len() as u64);
        if !framing.markers {
            let length = (ulpdu.len() as u16).to_be_bytes();
            let crc = crc32c_append(crc32c(&length), ulpdu);
            let gathered = [&length, &ulpdu[..], gathering.trailer(ulpdu.len(), crc).as_ref()].concat();
            assert_eq!(gathered, wire[start..]);
        }
    }
    let want = Outcome { ulpdus: ulpdus.to_vec(), used: wire.len(), error: None };
    assert_eq!(at_once(&wire, framing, position), want);
}
