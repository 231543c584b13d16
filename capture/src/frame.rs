//! Blocks of a pcapng file, and the headers of made-up frames: IP, and TCP or UDP.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use crate::Direction;
use crate::flows::Names;

/// Octets of the program in one frame: the length of an IP packet has 16 bits.
pub(crate) const LONGEST: usize = 60 * 1024;

/// One frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) names: Names,
    pub(crate) direction: Direction,
    pub(crate) transport: Transport,
    /// Octets of the program.
    pub(crate) len: usize,
}

/// The protocol over IP, and its part of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Transport {
    Tcp {
        seq: u32,
        ack: u32,
        /// A FIN.
        is_end: bool,
        /// The connection is plain TCP.
        is_plain: bool,
    },
    Udp,
}

impl Transport {
    /// Returns the number of the protocol, and the octets of its header.
    fn header(self) -> (u8, usize) {
        match self {
            Transport::Tcp { .. } => (6, 20),
            Transport::Udp => (17, 8),
        }
    }

    /// Returns the number of the interface.
    fn interface(self) -> u32 {
        match self {
            Transport::Tcp { is_plain, .. } => is_plain.into(),
            Transport::Udp => 2,
        }
    }
}

/// Octets of the file in front of a frame's own, and behind them.
pub(crate) struct Around {
    front: [u8; FRONT],
    front_len: usize,
    back: [u8; BACK],
    pad: usize,
}

const BLOCK_HEADER: usize = 28;
const FRONT: usize = BLOCK_HEADER + 40 + 20;
/// Pad, one option of eight octets, the end of options, the length again.
const BACK: usize = 3 + 8 + 4 + 4;

impl Around {
    /// Returns what is in front of the octets.
    pub(crate) fn front(&self) -> &[u8] {
        &self.front[..self.front_len]
    }

    /// Returns what is behind them.
    pub(crate) fn back(&self) -> &[u8] {
        &self.back[3 - self.pad..]
    }
}

impl Frame {
    /// Makes the block of this frame, an Enhanced Packet Block.
    pub(crate) fn around(&self, now: SystemTime) -> Around {
        let Names { local, peer } = self.names;
        let (from, to) = match self.direction {
            Direction::Sent => (local, peer),
            Direction::Received => (peer, local),
        };
        let mut out = Around { front: [0; FRONT], front_len: 0, back: [0; BACK], pad: 0 };
        let mut front = Bytes { octets: &mut out.front, len: BLOCK_HEADER };
        let (protocol, header) = self.transport.header();
        let behind_ip = header + self.len;
        match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let at = front.len;
                front.push(&[0x45, 0]);
                front.push(&(20 + behind_ip as u16).to_be_bytes());
                front.push(&[0, 0, 0x40, 0, 64, protocol, 0, 0]);
                front.push(&from.octets());
                front.push(&to.octets());
                let sum = internet_checksum(&front.octets[at..at + 20]);
                front.octets[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
            }
            (from, to) => {
                let [from, to] = [from, to].map(|ip| match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                    IpAddr::V6(ip) => ip.octets(),
                });
                front.push(&[0x60, 0, 0, 0]);
                front.push(&(behind_ip as u16).to_be_bytes());
                front.push(&[protocol, 64]);
                front.push(&from);
                front.push(&to);
            }
        }
        front.push(&from.port().to_be_bytes());
        front.push(&to.port().to_be_bytes());
        match self.transport {
            Transport::Tcp { seq, ack, is_end, .. } => {
                front.push(&seq.to_be_bytes());
                front.push(&ack.to_be_bytes());
                let flags = ACK | if is_end { FIN } else { PSH };
                // Five words of header, flags, the widest window, no checksum, no urgent pointer.
                front.push(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
            }
            // Without a checksum (RFC 768), which IPv6 does not allow (RFC 8200 §8.1): any will do.
            Transport::Udp => {
                front.push(&(behind_ip as u16).to_be_bytes());
                let sum = if from.is_ipv4() && to.is_ipv4() { 0u16 } else { u16::MAX };
                front.push(&sum.to_be_bytes());
            }
        }
        let captured = front.len - BLOCK_HEADER + self.len;
        out.front_len = front.len;
        out.pad = captured.next_multiple_of(4) - captured;
        let total = (BLOCK_HEADER + captured + out.pad + BACK - 3) as u32;
        // Microseconds since 1970.
        let time = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_micros() as u64;
        let words = [
            6,
            total,
            self.transport.interface(),
            (time >> 32) as u32,
            time as u32,
            captured as u32,
            captured as u32,
        ];
        let mut front = Bytes { octets: &mut out.front, len: 0 };
        words.iter().for_each(|word| front.push(&word.to_ne_bytes()));
        let inbound = u32::from(self.direction == Direction::Received);
        let mut back = Bytes { octets: &mut out.back, len: 3 };
        // The option `epb_flags`: inbound is 1, outbound 2.
        back.push(&2u16.to_ne_bytes());
        back.push(&4u16.to_ne_bytes());
        back.push(&(2 - inbound).to_ne_bytes());
        back.push(&[0; 4]);
        back.push(&total.to_ne_bytes());
        out
    }
}

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// The names of the interfaces: of iWARP, of connections that are plain TCP, and of datagrams. Each
/// is some whole words long.
const INTERFACES: [&str; 3] = ["rddp", crate::PLAIN, crate::DATAGRAMS];

/// Octets of an interface's description around its name.
const INTERFACE: usize = 24;

const SECTION: usize = 28 + 3 * INTERFACE + INTERFACES[0].len() + INTERFACES[1].len() + INTERFACES[2].len();

/// Returns the blocks that begin a section: the Section Header Block, in this machine's order of
/// octets, and the descriptions of the interfaces, whose packets begin with an IP header.
pub(crate) fn section() -> [u8; SECTION] {
    let mut out = [0; SECTION];
    let mut bytes = Bytes { octets: &mut out, len: 0 };
    for word in [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28] {
        bytes.push(&u32::to_ne_bytes(word));
    }
    let raw_ip = 101u16;
    for name in INTERFACES {
        let len = (INTERFACE + name.len()) as u32;
        bytes.push(&1u32.to_ne_bytes());
        bytes.push(&len.to_ne_bytes());
        bytes.push(&raw_ip.to_ne_bytes());
        bytes.push(&[0; 6]);
        // The option `if_name`.
        bytes.push(&2u16.to_ne_bytes());
        bytes.push(&(name.len() as u16).to_ne_bytes());
        bytes.push(name.as_bytes());
        bytes.push(&len.to_ne_bytes());
    }
    out
}

/// Octets that are written one behind the other.
struct Bytes<'a> {
    octets: &'a mut [u8],
    len: usize,
}

impl Bytes<'_> {
    fn push(&mut self, octets: &[u8]) {
        self.octets[self.len..self.len + octets.len()].copy_from_slice(octets);
        self.len += octets.len();
    }
}

/// Returns the checksum of a header in which that field is zero (RFC 1071).
fn internet_checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}
