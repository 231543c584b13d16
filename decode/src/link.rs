//! From a captured packet to a TCP segment: link and IP headers.

use core::net::{IpAddr, SocketAddr};

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};

use crate::capture::Packet;

/// A TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment<'a> {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    /// The sequence number.
    pub(crate) seq: u32,
    pub(crate) syn: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
    pub(crate) payload: &'a [u8],
    /// Octets of payload behind it that were not captured.
    pub(crate) cut: usize,
}

/// Returns the TCP segment that a packet is, if it is one in one piece of IP.
pub(crate) fn segment<'a>(packet: &Packet<'a>) -> Option<Segment<'a>> {
    let sliced = slice(packet.link, packet.octets)?;
    let (source, destination): (IpAddr, IpAddr) = match sliced.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        LaxNetSlice::Ipv6(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        LaxNetSlice::Arp(_) => return None,
    };
    let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { return None };
    Some(Segment {
        source: SocketAddr::new(source, tcp.source_port()),
        destination: SocketAddr::new(destination, tcp.destination_port()),
        seq: tcp.sequence_number(),
        syn: tcp.syn(),
        fin: tcp.fin(),
        rst: tcp.rst(),
        payload: tcp.payload(),
        cut: packet.cut,
    })
}

fn slice(link: u16, octets: &[u8]) -> Option<LaxSlicedPacket<'_>> {
    let of_type = |at: usize, header: usize| {
        let kind = u16::from_be_bytes(*octets.get(at..)?.first_chunk()?);
        Some(LaxSlicedPacket::from_ether_type(EtherType(kind), octets.get(header..)?))
    };
    match link {
        ETHERNET => LaxSlicedPacket::from_ethernet(octets).ok(),
        RAW | RAW_BSD | RAW_OPENBSD | IPV4 | IPV6 => LaxSlicedPacket::from_ip(octets).ok(),
        // The family in front is in the order of the capturing host; the IP header tells it, too.
        NULL | LOOP => LaxSlicedPacket::from_ip(octets.get(4..)?).ok(),
        COOKED => of_type(14, 16),
        COOKED_2 => of_type(0, 20),
        _ => None,
    }
}

/// Kinds of link headers, as `LINKTYPE` numbers them.
const NULL: u16 = 0;
const ETHERNET: u16 = 1;
const RAW_BSD: u16 = 12;
const RAW_OPENBSD: u16 = 14;
const RAW: u16 = 101;
const LOOP: u16 = 108;
const COOKED: u16 = 113;
const IPV4: u16 = 228;
const IPV6: u16 = 229;
const COOKED_2: u16 = 276;
