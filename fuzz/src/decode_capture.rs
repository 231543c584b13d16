//! `decode_capture`: any octets as a capture, and any octets in the TCP streams of one.

use rddp_decode::{What, decode, packets};
use rddp_mpa::{Frame, FrameKind, Framing, Revision};
use rddp_rdmap::parse_header;
use rddp_test_support::Fpdus;

use crate::input::{Octets, Tail, inputs};

inputs! {
    /// A connection whose startup is as it should be.
    pub struct Input {
        /// Bit 0: CRCs. Bit 1: markers. Bit 2: the private data is a Hello. Bit 3: half of each TCP
        /// segment was not captured.
        flags: u8,
        /// Octets of a TCP segment, at most.
        cut: u8,
        /// The octets of both ends.
        steps: Tail<Step, 64>,
    }

    /// Octets of one end.
    pub struct Step {
        /// Bit 0: from the responder. Bit 1: not an FPDU, but these octets as they are.
        how: u8,
        /// A ULPDU.
        octets: Octets,
    }
}

/// Runs one input, which is a file, or else octets of a connection.
pub fn run(octets: &[u8]) {
    if packets(octets).is_ok() {
        let mut told = 0;
        let outcome = decode(octets, |event| {
            assert!(!event.what.to_string().is_empty());
            told += 1;
        });
        let summary = outcome.unwrap();
        let terminates: usize = summary.terminates.values().sum();
        assert_eq!(summary.startups + summary.fpdus + summary.sdp + summary.problems, told + terminates);
        let read = packets(octets).unwrap().filter(Result::is_ok).count();
        assert_eq!(summary.packets, read);
        assert!(summary.unread.values().sum::<usize>() <= read);
    } else if let Ok(input) = arbitrary::Arbitrary::arbitrary(&mut arbitrary::Unstructured::new(octets)) {
        connection(&input);
    }
}

/// The streams are read alike, whatever the order of segments.
fn connection(input: &Input) {
    let streams = streams(input);
    let most = usize::from(input.cut) + 40;
    let mut segments = Vec::new();
    for (from, stream) in streams.iter().enumerate() {
        segments.extend(stream.chunks(most).enumerate().map(|(at, octets)| (from, at * most, octets)));
    }
    let snap = if input.flags & 8 == 0 { most } else { most / 2 };
    let in_order = lines(&segments, snap);
    segments.reverse();
    assert_eq!(lines(&segments, snap), in_order);
    let segments_of_ddp =
        input.steps.0.iter().filter(|step| parse_header(cut(&step.octets.0)).is_ok()).count();
    let is_fpdus_alone = input.steps.0.iter().all(|step| step.how & 2 == 0);
    if is_fpdus_alone && snap == most {
        let [one, other] = in_order;
        let told = one.iter().chain(&other).filter(|(is_fpdu, _)| *is_fpdu).count();
        assert_eq!(told, segments_of_ddp, "each segment is told, and nothing else");
    }
}

/// Returns the octets of both ends.
fn streams(input: &Input) -> [Vec<u8>; 2] {
    let (crc, markers) = (input.flags & 1 != 0, input.flags & 2 != 0);
    let mut hello = [0; 92];
    hello[..8].copy_from_slice(&[0, 0, 0, 64, 0, 0, 0, 92]);
    hello[16..28].copy_from_slice(&[0x22, 0x40, 0, 8, 0, 0, 0x80, 0x10, 0, 0, 0x80, 0x10]);
    let private_data: &[u8] = if input.flags & 4 == 0 { b"" } else { &hello };
    let frame = |kind, private_data| {
        let (revision, rejected, enhanced) = (Revision::One, false, None);
        Frame { kind, markers, crc, rejected, large_fpdus: false, revision, enhanced, private_data }
            .emit()
            .unwrap()
            .to_vec()
    };
    let mut streams = [frame(FrameKind::Request, private_data), frame(FrameKind::Reply, b"")];
    let framing = Framing { crc, markers };
    let mut fpdus = [Fpdus::new(framing, framing), Fpdus::new(framing, framing)];
    for step in &input.steps.0 {
        let from = usize::from(step.how & 1);
        let octets = cut(&step.octets.0);
        if step.how & 2 == 0 {
            streams[from].extend(fpdus[from].frame(octets));
        } else {
            streams[from].extend(octets);
        }
    }
    streams
}

/// Returns as much as is sent of a step's octets.
fn cut(octets: &[u8]) -> &[u8] {
    &octets[..octets.len().min(2000)]
}

/// Returns the lines of each end, and whether each is an FPDU. At most `snap` octets of each
/// segment are captured.
fn lines(segments: &[(usize, usize, &[u8])], snap: usize) -> [Vec<(bool, String)>; 2] {
    let mut file = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 101].map(u32::to_le_bytes).concat();
    // The SYNs, then the octets.
    for (from, seq, flags, octets) in [(0, u32::MAX - 9, 2, &[][..]), (1, 7, 2, &[])].into_iter().chain(
        segments.iter().map(|(from, at, octets)| (*from, first(*from).wrapping_add(*at as u32), 16, *octets)),
    ) {
        let (from, len) = (from as u8, (40 + octets.len()) as u16);
        let mut packet = vec![0x45, 0];
        packet.extend(len.to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1 + from, 10, 0, 0, 2 - from]);
        packet.extend([0, 1 + from, 0, 2 - from]);
        packet.extend(seq.to_be_bytes());
        packet.extend([0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
        packet.extend(&octets[..octets.len().min(snap)]);
        file.extend([0, 0, packet.len() as u32, len.into()].map(u32::to_le_bytes).concat());
        file.extend(packet);
    }
    let mut lines = [Vec::new(), Vec::new()];
    decode(&file, |event| {
        let is_fpdu = matches!(event.what, What::Fpdu(_));
        lines[usize::from(event.from.port() == 2)].push((is_fpdu, event.what.to_string()));
    })
    .unwrap();
    lines
}

/// Returns the sequence number of an end's first octet.
fn first(from: usize) -> u32 {
    [u32::MAX - 8, 8][from]
}
