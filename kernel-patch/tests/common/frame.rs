//! Ethernet frames with a TCP segment, right unless a test changes them.

use std::net::Ipv6Addr;

use rddp_ddp::Stag;
use rddp_kernel_patch::layout::Tuple;
use rddp_mpa::crc32c;
use rddp_test_support::segment::write;

/// Returns an FPDU of this ULPDU.
pub fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut octets = (ulpdu.len() as u16).to_be_bytes().to_vec();
    octets.extend(ulpdu);
    octets.resize(octets.len().next_multiple_of(4), 0);
    let crc = crc32c(&octets);
    octets.extend(crc.to_le_bytes());
    octets
}

/// Returns an FPDU with a segment of a Write that is not its last.
pub fn write_fpdu(stag: Stag, to: u64, payload: &[u8]) -> Vec<u8> {
    fpdu(&write(stag, to, false, payload))
}

/// Returns an FPDU with the last segment of a Write.
pub fn last_fpdu(stag: Stag, to: u64, payload: &[u8]) -> Vec<u8> {
    fpdu(&write(stag, to, true, payload))
}

/// A TCP segment in an Ethernet frame.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The receiver's Ethernet address: that of `lo`.
    pub to: [u8; 6],
    pub tuple: Tuple,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub timestamp: Option<u32>,
    pub payload: Vec<u8>,
}

pub const ACK: u8 = 0x10;
/// Offsets in a frame without IP options.
pub const IP: usize = 14;
pub const TCP: usize = IP + 20;
/// Offset of TCP's header in a frame of IPv6.
pub const TCP_V6: usize = IP + 40;

impl Frame {
    pub fn new(tuple: Tuple, seq: u32, payload: Vec<u8>) -> Self {
        Self { to: [0; 6], tuple, seq, ack: 0, flags: ACK | 0x08, timestamp: None, payload }
    }

    /// Returns the octets, with right checksums.
    pub fn octets(&self) -> Vec<u8> {
        let mut tcp = vec![0; 20];
        tcp[..2].copy_from_slice(&self.tuple.peer_port);
        tcp[2..4].copy_from_slice(&self.tuple.own_port);
        tcp[4..8].copy_from_slice(&self.seq.to_be_bytes());
        tcp[8..12].copy_from_slice(&self.ack.to_be_bytes());
        tcp[13] = self.flags;
        tcp[14] = 0xff;
        if let Some(timestamp) = self.timestamp {
            tcp.extend([1, 1, 8, 10]);
            tcp.extend(timestamp.to_be_bytes());
            tcp.extend([0; 4]);
        }
        tcp[12] = (tcp.len() as u8 / 4) << 4;
        tcp.extend(&self.payload);

        let mut frame = [self.to, [2; 6]].concat();
        let addrs = [self.tuple.peer_addr, self.tuple.own_addr];
        match addrs.map(|addr| Ipv6Addr::from(addr).to_ipv4_mapped()) {
            [Some(peer), Some(own)] => {
                frame.extend([0x08, 0x00, 0x45, 0]);
                frame.extend((20 + tcp.len() as u16).to_be_bytes());
                frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
                frame.extend([peer.octets(), own.octets()].concat());
                let sum = checksum(0, &frame[IP..]);
                frame[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
            }
            _ => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend((tcp.len() as u16).to_be_bytes());
                frame.extend([6, 64]);
                frame.extend(addrs.concat());
            }
        }
        frame.extend(tcp);
        seal(&mut frame);
        frame
    }
}

/// Sets the TCP checksum of a frame without IP options, padding or VLAN tag.
pub fn seal(frame: &mut [u8]) {
    let (addrs, tcp) = if frame[12..14] == [0x86, 0xdd] { (IP + 8, TCP_V6) } else { (IP + 12, TCP) };
    frame[tcp + 16..tcp + 18].fill(0);
    let sum = checksum((frame.len() - tcp) as u32 + 6, &frame[addrs..]);
    frame[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
}

/// Returns the checksum of these octets and a number (RFC 1071).
fn checksum(mut sum: u32, octets: &[u8]) -> u16 {
    for pair in octets.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
