//! A capture file of made-up packets: each startup frame and each FPDU is a TCP segment of its own.

use std::io::{self, Write};

use crate::relay::Side;

const PORTS: [u16; 2] = [40_000, 7174];
const ADDRESSES: [[u8; 4]; 2] = [[192, 0, 2, 1], [192, 0, 2, 2]];
const HEADERS: usize = 14 + 20 + 20;

pub struct Capture<W> {
    out: W,
    /// Sequence number of each end: the octets that it has sent so far.
    sequence: [u32; 2],
    packets: u32,
}

impl<W: Write> Capture<W> {
    pub fn new(mut out: W) -> io::Result<Self> {
        let (magic, version, ethernet) = (0xa1b2_c3d4_u32, [2_u16, 4], 1_u32);
        out.write_all(&magic.to_le_bytes())?;
        out.write_all(&version.map(u16::to_le_bytes).concat())?;
        out.write_all(&[0, 0, 262_144, ethernet].map(u32::to_le_bytes).concat())?;
        let mut capture = Capture { out, sequence: [1, 1], packets: 0 };
        // The handshake, so that the dissector knows who began.
        capture.packet(0, 0x02, 0, 0, &[])?;
        capture.packet(1, 0x12, 0, 1, &[])?;
        capture.packet(0, 0x10, 1, 1, &[])?;
        Ok(capture)
    }

    /// One segment.
    pub fn segment(&mut self, side: Side, octets: &[u8]) -> io::Result<()> {
        let from = if side == Side::Initiator { 0 } else { 1 };
        let (sequence, acknowledged) = (self.sequence[from], self.sequence[1 - from]);
        self.sequence[from] += octets.len() as u32;
        self.packet(from, 0x18, sequence, acknowledged, octets)
    }

    fn packet(
        &mut self,
        from: usize,
        flags: u8,
        sequence: u32,
        acknowledged: u32,
        octets: &[u8],
    ) -> io::Result<()> {
        let to = 1 - from;
        let total =
            u16::try_from(40 + octets.len()).map_err(|_| io::Error::other("an FPDU too large for IPv4"))?;
        let mut packet = Vec::with_capacity(HEADERS + octets.len());
        packet.extend([2, 0, 0, 0, 0, to as u8, 2, 0, 0, 0, 0, from as u8, 0x08, 0x00]);
        let ip = packet.len();
        packet.extend([0x45, 0]);
        packet.extend(total.to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        packet.extend(ADDRESSES[from]);
        packet.extend(ADDRESSES[to]);
        let checksum = internet_checksum(&packet[ip..]);
        packet[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
        packet.extend(PORTS[from].to_be_bytes());
        packet.extend(PORTS[to].to_be_bytes());
        packet.extend(sequence.to_be_bytes());
        packet.extend(acknowledged.to_be_bytes());
        packet.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend(octets);
        let len = packet.len() as u32;
        self.packets += 1;
        self.out.write_all(&[1_700_000_000, self.packets, len, len].map(u32::to_le_bytes).concat())?;
        self.out.write_all(&packet)
    }
}

fn internet_checksum(octets: &[u8]) -> u16 {
    let sum: u32 = octets.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    !((sum & 0xffff) + (sum >> 16)) as u16
}
