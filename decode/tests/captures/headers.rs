//! Headers in front of TCP: those that are read, and those that are told as not read.

use rddp_decode::{PacketHeader, Unread};

use super::talk::{LINES, everything};
use super::tape::Tape;
use super::{events, in_order, lines};

/// Packets whose layer 3 is `inner`, and their kind of link.
type Wrap = fn(&[u8]) -> Vec<u8>;

const MACS: [u8; 12] = [2; 12];

fn ethernet(kind: u16, inner: &[u8]) -> Vec<u8> {
    [&MACS[..], &kind.to_be_bytes(), inner].concat()
}

/// An IP header of version 4 with options, in front of another protocol.
fn ip(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x46, 0];
    packet.extend((24 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 0]);
    packet.extend(payload);
    packet
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let front = [5000, port, 8 + payload.len() as u16, 0].map(u16::to_be_bytes).concat();
    ip(17, &[&front[..], payload].concat())
}

/// A frame within a tunnel.
fn frame(inner: &[u8]) -> Vec<u8> {
    ethernet(0x0800, inner)
}

fn behind(header: &[u8], inner: &[u8]) -> Vec<u8> {
    [header, inner].concat()
}

const READ: &[(&str, u16, Wrap)] = &[
    ("VLAN", 1, |ip| ethernet(0x8100, &behind(&[0, 5, 8, 0], ip))),
    ("QinQ", 1, |ip| ethernet(0x88a8, &behind(&[0, 7, 0x81, 0, 0, 5, 8, 0], ip))),
    ("five VLANs", 1, |ip| {
        ethernet(0x8100, &behind(&[&[0, 7, 0x81, 0].repeat(4)[..], &[0, 5, 8, 0]].concat(), ip))
    }),
    ("MPLS", 1, |ip| ethernet(0x8847, &behind(&[0, 1, 0, 64, 0, 2, 1, 64], ip))),
    ("MPLS pseudowire", 1, |ip| ethernet(0x8848, &behind(&[0, 1, 1, 64, 0, 0, 0, 0], &frame(ip)))),
    ("MPLS pseudowire without control word", 1, |ip| {
        ethernet(0x8847, &behind(&[0, 1, 1, 64], &behind(b"\x52", &frame(ip)[1..])))
    }),
    ("PPPoE", 1, |ip| ethernet(0x8864, &behind(&[0x11, 0, 0, 1, 0, 99, 0, 0x21], ip))),
    ("PPPoE, compressed", 51, |ip| behind(&[0x11, 0, 0, 1, 0, 99, 0x21], ip)),
    ("PPP", 9, |ip| behind(&[0, 0x21], ip)),
    ("PPP with MPLS", 50, |ip| behind(&[0xff, 3, 2, 0x81, 0, 1, 1, 64], ip)),
    ("IP in IP", 1, |inner| frame(&ip(4, inner))),
    ("MPLS in IP", 101, |inner| ip(137, &behind(&[0, 1, 1, 64], inner))),
    ("GRE", 1, |inner| frame(&ip(47, &behind(&[0, 0, 8, 0], inner)))),
    ("GRE with all fields", 101, |inner| {
        ip(47, &behind(&[0xb0, 0, 8, 0, 1, 1, 0, 0, 0, 0, 0, 7, 0, 0, 0, 9], inner))
    }),
    ("GRE with Ethernet", 101, |inner| ip(47, &behind(&[0, 0, 0x65, 0x58], &frame(inner)))),
    ("ERSPAN 1", 101, |inner| ip(47, &behind(&[0, 0, 0x88, 0xbe], &frame(inner)))),
    ("ERSPAN 2", 101, |inner| {
        ip(47, &behind(&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 5, 0, 1, 0, 0, 0, 0], &frame(inner)))
    }),
    ("ERSPAN 3", 101, |inner| {
        let header = [0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 5, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        ip(47, &behind(&header, &frame(inner)))
    }),
    ("ERSPAN 3 with IP and a platform's octets", 101, |inner| {
        let header = [0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 5, 0, 1, 0, 0, 0, 0, 0, 0, 8, 1];
        ip(47, &behind(&header, &behind(&[9; 8], inner)))
    }),
    ("VXLAN", 1, |inner| frame(&udp(4789, &behind(&[8, 0, 0, 0, 0, 0, 1, 0], &frame(inner))))),
    ("VXLAN, Linux's port", 101, |inner| udp(8472, &behind(&[8, 0, 0, 0, 0, 0, 1, 0], &frame(inner)))),
    ("VXLAN-GPE", 101, |inner| udp(4790, &behind(&[12, 0, 0, 1, 0, 0, 1, 0], inner))),
    ("GENEVE", 1, |inner| frame(&udp(6081, &behind(&[0, 0, 0x65, 0x58, 0, 0, 1, 0], &frame(inner))))),
    ("GENEVE with options and IP", 101, |inner| {
        udp(6081, &behind(&[1, 0, 8, 0, 0, 0, 1, 0, 9, 9, 9, 0], inner))
    }),
    ("a VLAN in VXLAN in a VLAN", 1, |inner| {
        let tagged = ethernet(0x8100, &behind(&[0, 5, 8, 0], inner));
        let tunnel = udp(4789, &behind(&[8, 0, 0, 0, 0, 0, 1, 0], &tagged));
        ethernet(0x8100, &behind(&[0, 6, 8, 0], &tunnel))
    }),
];

/// Returns a capture with the packets of a talk so wrapped, and with octets behind each that pad a
/// frame and are not IP's.
fn wrapped(tape: &Tape, wrap: Wrap) -> Tape {
    let packets = tape.packets.iter().map(|packet| [&wrap(packet)[..], &[0xaa; 6]].concat()).collect();
    Tape { packets, ..tape.clone() }
}

/// The link header of a kind is in the packets already.
fn file(tape: &Tape, link: u16) -> Vec<u8> {
    let mut file = tape.pcap(101, false, false);
    file[20..22].copy_from_slice(&link.to_le_bytes());
    file
}

#[test]
fn packets_in_tunnels_are_read() {
    let tape = in_order(&everything(true, false));
    for (name, link, wrap) in READ {
        let (events, summary) = events(&file(&wrapped(&tape, *wrap), *link));
        assert_eq!(lines(&events), LINES.map(<[&str]>::to_vec), "{name}");
        assert_eq!((summary.fpdus, summary.unread), (16, [].into()), "{name}");
    }
}

/// A header that ends within a packet, of each kind, is told by its name.
#[test]
fn headers_that_are_cut_short_are_named() {
    let tape = in_order(&everything(true, false));
    for (name, link, wrap) in READ {
        let whole = wrap(&tape.packets[2]);
        for len in 0..whole.len() {
            let packets = vec![whole[..len].to_vec()];
            let (_, summary) = events(&file(&Tape { packets, ..Tape::default() }, *link));
            let reasons: Vec<_> = summary.unread.into_iter().collect();
            assert!(matches!(reasons[..], [(Unread::Short(_), 1)]), "{name} {len}: {reasons:?}");
        }
    }
}

#[test]
fn packets_that_are_not_read_are_counted_by_their_reason() {
    let packets: &[(&[u8], Unread)] = &[
        (&ethernet(0x0806, &[0; 28]), Unread::EtherType(0x0806)),
        (&ethernet(0x0806, &[1; 28]), Unread::EtherType(0x0806)),
        // Frames of IEEE 802.3 have a length where others have an EtherType.
        (&ethernet(38, &[0x42; 38]), Unread::Length),
        (&ethernet(0x05ff, &[0xaa; 100]), Unread::Length),
        (&ethernet(0x0600, &[0; 38]), Unread::EtherType(0x0600)),
        (&ethernet(0x8864, &[0x11, 0, 0, 1, 0, 9, 0xc0, 0x21, 1]), Unread::Ppp(0xc021)),
        (&ethernet(0x8864, &[0x11, 0xa7, 0, 1, 0, 9]), Unread::Kind(PacketHeader::Ppp)),
        (&frame(&udp(53, b"query")), Unread::Protocol(17)),
        (&frame(&ip(1, b"ping")), Unread::Protocol(1)),
        (&frame(&udp(4789, &[0; 30])), Unread::Kind(PacketHeader::Vxlan)),
        (&frame(&udp(6081, &[0x40; 30])), Unread::Kind(PacketHeader::Geneve)),
        (&frame(&ip(47, &[0x30, 1, 0x88, 0x0b, 0, 0, 0, 0])), Unread::Kind(PacketHeader::Gre)),
        (&frame(&[0x41; 40]), Unread::Kind(PacketHeader::Ip)),
        (&frame(&ip(6, &[0; 20])), Unread::Kind(PacketHeader::Tcp)),
        (&ethernet(0x8100, &[0, 1, 0x81, 0].repeat(40)), Unread::Nested),
    ];
    let tape =
        Tape { packets: packets.iter().map(|(packet, _)| packet.to_vec()).collect(), ..Tape::default() };
    let (_, summary) = events(&file(&tape, 1));
    let mut wanted = std::collections::BTreeMap::new();
    packets.iter().for_each(|(_, reason)| *wanted.entry(*reason).or_insert(0) += 1);
    assert_eq!((summary.unread, summary.packets), (wanted, packets.len()));
    let (_, summary) = events(&file(&tape, 247));
    assert_eq!(summary.unread, [(Unread::Link(247), packets.len())].into());
    for (reason, says) in [
        (Unread::Link(247), "link type 247, which is not known"),
        (Unread::EtherType(0x0806), "no IP, but EtherType 0x0806 (Address Resolution Protocol (ARP))"),
        (Unread::Length, "no IP, but a frame with an 802.3 length (LLC)"),
        (Unread::Protocol(17), "no TCP, but IP protocol 17 (UDP - User Datagram)"),
        (Unread::Short(PacketHeader::Tcp), "cut short within the TCP header"),
    ] {
        assert_eq!(reason.to_string(), says);
    }
}

/// A socket of IPv6 whose peer has an address of IPv4: one frame may name it so, the next one so.
#[test]
fn addresses_of_ipv4_that_are_mapped_are_those() {
    let mut tape = in_order(&everything(true, false));
    let mapped = |ip: &[u8]| [&[0; 10][..], &[0xff; 2], ip].concat();
    let packet = &mut tape.packets[3];
    let tcp = packet.split_off(20);
    let header = [&[0x60, 0, 0, 0][..], &(tcp.len() as u16).to_be_bytes(), &[6, 64]].concat();
    *packet = [header, mapped(&packet[12..16]), mapped(&packet[16..20]), tcp].concat();
    let (events, summary) = events(&tape.pcap(101, false, false));
    assert_eq!(lines(&events), LINES.map(<[&str]>::to_vec));
    assert_eq!(summary.connections, 1);
}
