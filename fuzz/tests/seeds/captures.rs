//! Seeds of `decode_capture`: a connection in packets of each kind of link and tunnel, in
//! fragments, cut by the snap length, and in each kind of file.

use rddp_mpa::{Frame, FrameKind, Framing, Revision};
use rddp_test_support::{Fpdus, segment};

use crate::Seeds;

/// Kinds of packets: name, `LINKTYPE`, and what is in front of IP. Lengths in it are 0: all that
/// was captured counts.
const KINDS: &[(&str, u16, &[&[u8]])] = &[
    ("ethernet", 1, &[MACS, IPV4]),
    ("null", 0, &[&[2, 0, 0, 0]]),
    ("cooked", 113, &[&[0; 14], IPV4]),
    ("cooked_2", 276, &[IPV4, &[0; 18]]),
    ("vlans", 1, &[MACS, &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 5], IPV4]),
    ("mpls", 1, &[MACS, &[0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64]]),
    ("pseudowire", 1, &[MACS, &[0x88, 0x47, 0, 1, 1, 64, 0, 0, 0, 0], MACS, IPV4]),
    ("pppoe", 1, &[MACS, &[0x88, 0x64, 0x11, 0, 0, 1, 0, 0, 0, 0x21]]),
    ("ppp", 9, &[&[0xff, 3, 0x21]]),
    ("ip_in_ip", 101, &[&IP, &[4], &ENDS]),
    ("gre", 101, &[&IP, &[47], &ENDS, &[0xb0, 0], IPV4, &[0; 12]]),
    (
        "erspan_2",
        101,
        &[&IP, &[47], &ENDS, &[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 16, 5, 0, 1, 0, 0, 0, 0], MACS, IPV4],
    ),
    ("erspan_3", 101, &[&IP, &[47], &ENDS, &[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1], &[0; 10], &[8, 1], &[0; 8]]),
    ("vxlan", 101, &[&IP, &[17], &ENDS, &[1, 1, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0], MACS, IPV4]),
    ("vxlan_gpe", 101, &[&IP, &[17], &ENDS, &[1, 1, 0x12, 0xb6, 0, 0, 0, 0, 12, 0, 0, 1, 0, 0, 1, 0]]),
    (
        "geneve",
        101,
        &[&IP, &[17], &ENDS, &[1, 1, 0x17, 0xc1, 0, 0, 0, 0, 1, 0], IPV4, &[0, 0, 1, 0, 9, 9, 9, 0]],
    ),
];

const MACS: &[u8] = &[2; 12];
const IPV4: &[u8] = &[8, 0];
/// The front of an IP header, up to the protocol, and what is behind that.
const IP: [u8; 9] = [0x45, 0, 0, 0, 0, 0, 0, 0, 64];
const ENDS: [u8; 10] = [0, 0, 10, 0, 0, 1, 10, 0, 0, 2];

pub(crate) fn captures(seeds: &mut Seeds) {
    let mut add = |name: &str, file| seeds.insert(("decode_capture", name.to_owned()), file);
    let packets = packets();
    for (name, link, front) in KINDS {
        let front = front.concat();
        let packets: Vec<_> = packets.iter().map(|packet| [&front[..], packet].concat()).collect();
        add(&format!("kind_{name}"), file(*link, &packets, usize::MAX));
    }
    add("fragments", file(101, &fragments(&packets), usize::MAX));
    for snap in [60, 64, 80] {
        add(&format!("snap_{snap}"), file(101, &packets, snap));
    }
    add("blocks", blocks(&packets));
}

/// The packets of a connection: its startup, a Send of two segments, a Terminate.
fn packets() -> Vec<Vec<u8>> {
    let frame = |kind, private_data| {
        let (revision, rejected, enhanced, crc) = (Revision::One, false, None, true);
        Frame { kind, markers: false, crc, rejected, large_fpdus: false, revision, enhanced, private_data }
            .emit()
            .unwrap()
            .to_vec()
    };
    let framing = Framing { crc: true, markers: false };
    let mut fpdus = Fpdus::new(framing, framing);
    let talk = [
        (0, frame(FrameKind::Request, b"hello")),
        (1, frame(FrameKind::Reply, b"")),
        (0, fpdus.frame(&segment::send(1, 0, false, &[7; 80]))),
        (0, fpdus.frame(&segment::send(1, 80, true, &[8; 20]))),
        (1, Fpdus::new(framing, framing).frame(&segment::terminate(rddp_rdmap::TerminateCode::BOUNDS))),
    ];
    let mut next = [1_u32, 1];
    let of = |(from, octets): (u8, Vec<u8>)| {
        let mut packet = vec![0x45, 0];
        packet.extend((40 + octets.len() as u16).to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1 + from, 10, 0, 0, 2 - from]);
        packet.extend([0, 1 + from, 0, 2 - from]);
        packet.extend(next[usize::from(from)].to_be_bytes());
        packet.extend([0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        next[usize::from(from)] += octets.len() as u32;
        packet.extend(octets);
        packet
    };
    talk.map(of).to_vec()
}

/// Each packet in fragments of 32 octets.
fn fragments(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let of = |(id, packet): (usize, &Vec<u8>)| {
        let (header, payload) = packet.split_at(20);
        let mut pieces: Vec<_> = payload.chunks(32).enumerate().collect();
        pieces.reverse();
        let last = pieces[0].0;
        let pieces = pieces.into_iter().map(|(number, piece)| {
            let mut header = header.to_vec();
            header[3] = (20 + piece.len()) as u8;
            (header[5], header[7]) = (id as u8, number as u8 * 4);
            header[6] = if number == last { 0 } else { 0x20 };
            [&header[..], piece].concat()
        });
        pieces.collect::<Vec<_>>()
    };
    packets.iter().enumerate().flat_map(of).collect()
}

/// A pcap file with at most `snap` octets of each packet.
fn file(link: u16, packets: &[Vec<u8>], snap: usize) -> Vec<u8> {
    let mut file = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, link.into()].map(u32::to_le_bytes).concat();
    for packet in packets {
        let captured = &packet[..packet.len().min(snap)];
        file.extend([1, 2, captured.len() as u32, packet.len() as u32].map(u32::to_le_bytes).concat());
        file.extend(captured);
    }
    file
}

/// A pcapng file whose packets are in each kind of block.
fn blocks(packets: &[Vec<u8>]) -> Vec<u8> {
    let block = |kind: u32, body: &[&[u8]]| {
        let mut body = body.concat();
        body.resize(body.len().next_multiple_of(4), 0);
        let len = (12 + body.len() as u32).to_le_bytes();
        [&kind.to_le_bytes()[..], &len, &body, &len].concat()
    };
    let mut file = block(0x0a0d_0d0a, &[&[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0], &[0xff; 8]]);
    file.extend(block(1, &[&[101, 0, 0, 0, 90, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0]]));
    for (at, packet) in packets.iter().enumerate() {
        let len = (packet.len() as u32).to_le_bytes();
        file.extend(match at % 3 {
            0 => block(6, &[&[0; 12], &len, &len, packet]),
            1 => block(2, &[&[0; 12], &len, &len, packet]),
            _ => block(3, &[&len, &packet[..packet.len().min(90)]]),
        });
    }
    file
}
