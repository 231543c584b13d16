//! Tunnels within IP: GRE, ERSPAN, VXLAN, GENEVE, MPLS, and IP itself.

use etherparse::{IpNumber, UdpHeaderSlice};

use crate::layer::{Layer, Next, take};
use crate::unread::{Header, Unread};

/// Reads what an IP protocol number other than TCP's names.
pub(crate) fn of_protocol(protocol: IpNumber, octets: &[u8]) -> Next<'_> {
    match protocol {
        IpNumber::IPV4 | IpNumber::IPV6 => Ok((Layer::Ip, octets)),
        IpNumber::GRE => gre(octets),
        IpNumber::MPLS_IN_IP => Ok((Layer::Mpls, octets)),
        IpNumber::UDP => udp(octets),
        IpNumber(number) => Err(Unread::Protocol(number)),
    }
}

/// Reads a header of GRE (RFC 2784 §2, RFC 2890 §2). What RFC 1701 has besides, a receiver refuses.
fn gre(octets: &[u8]) -> Next<'_> {
    let (header, mut rest) = take::<4>(octets, Header::Gre)?;
    let [flags, version, ..] = *header;
    if flags & !(CHECKSUM | KEY | SEQUENCE) != 0 || version != 0 {
        return Err(Unread::Kind(Header::Gre));
    }
    for flag in [CHECKSUM, KEY, SEQUENCE] {
        if flags & flag != 0 {
            rest = take::<4>(rest, Header::Gre)?.1;
        }
    }
    match u16::from_be_bytes([header[2], header[3]]) {
        TRANSPARENT_ETHERNET => Ok((Layer::Ethernet, rest)),
        // The first version has no header of its own, and its GRE header no sequence number.
        ERSPAN if flags & SEQUENCE == 0 => Ok((Layer::Ethernet, rest)),
        ERSPAN => take::<8>(rest, Header::Erspan).map(|(_, frame)| (Layer::Ethernet, frame)),
        ERSPAN_3 => erspan_3(rest),
        kind => Ok((Layer::EtherType(kind), rest)),
    }
}

/// Reads a header of ERSPAN's third version, which says what it carries, and whether eight octets
/// of the platform follow.
fn erspan_3(octets: &[u8]) -> Next<'_> {
    let (header, mut rest) = take::<12>(octets, Header::Erspan)?;
    if header[11] & 1 != 0 {
        rest = take::<8>(rest, Header::Erspan)?.1;
    }
    match header[10] >> 2 & 0x1f {
        0 => Ok((Layer::Ethernet, rest)),
        2 => Ok((Layer::Ip, rest)),
        _ => Err(Unread::Kind(Header::Erspan)),
    }
}

fn udp(octets: &[u8]) -> Next<'_> {
    let header = UdpHeaderSlice::from_slice(octets).map_err(|_| Unread::Short(Header::Udp))?;
    let rest = &octets[header.slice().len()..];
    match header.destination_port() {
        VXLAN | VXLAN_OF_LINUX | VXLAN_GPE => vxlan(rest),
        GENEVE => geneve(rest),
        _ => Err(Unread::Protocol(IpNumber::UDP.0)),
    }
}

/// Reads a header of VXLAN (RFC 7348 §5), which carries Ethernet unless its extension says what
/// (draft-ietf-nvo3-vxlan-gpe).
fn vxlan(octets: &[u8]) -> Next<'_> {
    let (header, rest) = take::<8>(octets, Header::Vxlan)?;
    let [flags, _, _, next, ..] = *header;
    match next {
        _ if flags & NETWORK == 0 => Err(Unread::Kind(Header::Vxlan)),
        _ if flags & NEXT_PROTOCOL == 0 => Ok((Layer::Ethernet, rest)),
        1 | 2 => Ok((Layer::Ip, rest)),
        3 => Ok((Layer::Ethernet, rest)),
        5 => Ok((Layer::Mpls, rest)),
        _ => Err(Unread::Kind(Header::Vxlan)),
    }
}

/// Reads a header of GENEVE (RFC 8926 §3.4).
fn geneve(octets: &[u8]) -> Next<'_> {
    let (header, rest) = take::<8>(octets, Header::Geneve)?;
    if header[0] >> 6 != 0 {
        return Err(Unread::Kind(Header::Geneve));
    }
    let options = usize::from(header[0] & 0x3f) * 4;
    let rest = rest.get(options..).ok_or(Unread::Short(Header::Geneve))?;
    match u16::from_be_bytes([header[2], header[3]]) {
        TRANSPARENT_ETHERNET => Ok((Layer::Ethernet, rest)),
        kind => Ok((Layer::EtherType(kind), rest)),
    }
}

/// Flags of GRE.
const CHECKSUM: u8 = 0x80;
const KEY: u8 = 0x20;
const SEQUENCE: u8 = 0x10;

/// Protocol types of GRE and GENEVE that are no `EtherType`s of what they carry.
const TRANSPARENT_ETHERNET: u16 = 0x6558;
const ERSPAN: u16 = 0x88be;
const ERSPAN_3: u16 = 0x22eb;

/// Ports.
const VXLAN: u16 = 4789;
const VXLAN_GPE: u16 = 4790;
const VXLAN_OF_LINUX: u16 = 8472;
const GENEVE: u16 = 6081;

/// Flags of VXLAN: there is a network identifier, and with the extension a next protocol.
const NETWORK: u8 = 8;
const NEXT_PROTOCOL: u8 = 4;
