//! Captures made by hand: packets of two ends, in files of every kind.

use std::net::IpAddr;

pub(crate) const SYN: u8 = 2;
pub(crate) const FIN: u8 = 1;
pub(crate) const ACK: u8 = 0x10;

/// The initial sequence numbers: the first wraps soon.
pub(crate) const ISN: [u32; 2] = [0xffff_ff80, 1000];

/// The ports of both ends.
const PORTS: [u16; 2] = [40_000, 7174];

/// Packets at layer 3, in the order of the capture.
#[derive(Clone, Default)]
pub(crate) struct Tape {
    pub(crate) packets: Vec<Vec<u8>>,
    /// The addresses are those of IPv6.
    pub(crate) is_v6: bool,
    /// The most octets that are captured of a packet, with its link header; 0 for all.
    pub(crate) snap_len: usize,
    /// The name of the interface in a pcapng file, in whole words.
    pub(crate) interface: &'static str,
}

impl Tape {
    /// Adds the three packets that open a connection.
    pub(crate) fn open(&mut self) {
        self.segment(0, ISN[0], SYN, b"");
        self.segment(1, ISN[1], SYN | ACK, b"");
        self.segment(0, ISN[0].wrapping_add(1), ACK, b"");
    }

    /// Adds a segment of one end, at this place of its stream.
    pub(crate) fn octets(&mut self, from: usize, at: usize, octets: &[u8]) {
        self.segment(from, ISN[from].wrapping_add(1 + at as u32), ACK, octets);
    }

    pub(crate) fn segment(&mut self, from: usize, seq: u32, flags: u8, payload: &[u8]) {
        let mut tcp = [PORTS[from], PORTS[1 - from]].map(u16::to_be_bytes).concat();
        tcp.extend(seq.to_be_bytes());
        tcp.extend([0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(payload);
        self.packets.push(if self.is_v6 { v6(from, &tcp) } else { v4(from, &tcp) });
    }

    /// Returns the packets with the header of a kind of link.
    pub(crate) fn linked(&self, link: u16) -> Vec<Vec<u8>> {
        let kind: [u8; 2] = if self.is_v6 { [0x86, 0xdd] } else { [8, 0] };
        let header = match link {
            0 => vec![2, 0, 0, 0],
            1 => [&[2; 12][..], &kind].concat(),
            113 => [&[0; 14][..], &kind].concat(),
            276 => [&kind[..], &[0; 18]].concat(),
            _ => vec![],
        };
        self.packets.iter().map(|packet| [&header[..], packet].concat()).collect()
    }

    /// Returns a pcap file with times a microsecond apart.
    pub(crate) fn pcap(&self, link: u16, big: bool, nanoseconds: bool) -> Vec<u8> {
        let number = |number: u32| if big { number.to_be_bytes() } else { number.to_le_bytes() };
        let magic = if nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
        let mut file = [number(magic), number(if big { 0x0002_0004 } else { 0x0004_0002 })].concat();
        file.extend([0, 0, 65_535, link.into()].map(number).concat());
        for (at, packet) in self.linked(link).iter().enumerate() {
            let part = at as u32 * if nanoseconds { 1000 } else { 1 };
            let captured = self.captured(packet);
            file.extend([7, part, captured.len() as u32, packet.len() as u32].map(number).concat());
            file.extend(captured);
        }
        file
    }

    /// Returns a pcapng file with times a microsecond apart, in units of 2^-20 s or 1 ns.
    pub(crate) fn pcapng(&self, link: u16, big: bool, nanoseconds: bool) -> Vec<u8> {
        let number = |number: u32| if big { number.to_be_bytes() } else { number.to_le_bytes() };
        let short = |number: u16| if big { number.to_be_bytes() } else { number.to_le_bytes() };
        let block = |kind: u32, body: &[u8]| {
            let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
            let len = number((12 + body.len() + padding.len()) as u32);
            [&number(kind)[..], &len, body, &padding, &len].concat()
        };
        let mut file = block(0x0a0d_0d0a, &[&number(0x1a2b_3c4d)[..], &[0; 4], &[0xff; 8]].concat());
        file.extend(block(5, b"statistics that mean nothing"));
        let resolution = if nanoseconds { 9 } else { 0x80 | 20 };
        let name = self.interface.as_bytes();
        let name = if name.is_empty() {
            Vec::new()
        } else {
            [&short(2)[..], &short(name.len() as u16), name].concat()
        };
        let options = [&name[..], &short(9)[..], &short(1), &[resolution, 0, 0, 0], &[0; 4]].concat();
        file.extend(block(1, &[&short(link)[..], &[0; 6], &options].concat()));
        for (at, packet) in self.linked(link).iter().enumerate() {
            let micros = 7_000_000 + at as u64;
            // Rounded up, so that cutting to microseconds gives the same.
            let ticks = if nanoseconds { micros * 1000 } else { (micros << 20).div_ceil(1_000_000) };
            let captured = self.captured(packet);
            let lens = [captured.len() as u32, packet.len() as u32];
            let front = [0, (ticks >> 32) as u32, ticks as u32, lens[0], lens[1]].map(number).concat();
            file.extend(block(6, &[&front[..], captured].concat()));
        }
        file
    }

    fn captured<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        let most = if self.snap_len == 0 { packet.len() } else { self.snap_len };
        &packet[..packet.len().min(most)]
    }
}

fn v4(from: usize, tcp: &[u8]) -> Vec<u8> {
    let len = (20 + tcp.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(len.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1 + from as u8, 192, 0, 2, 2 - from as u8]);
    packet.extend(tcp);
    packet
}

fn v6(from: usize, tcp: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((tcp.len() as u16).to_be_bytes());
    packet.extend([6, 64]);
    for end in [1 + from, 2 - from] {
        let IpAddr::V6(ip) = format!("2001:db8::{end}").parse().unwrap() else { unreachable!() };
        packet.extend(ip.octets());
    }
    packet.extend(tcp);
    packet
}
