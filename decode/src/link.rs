//! Link headers: those of captures (`LINKTYPE`), Ethernet with VLANs, MPLS, `PPPoE` and PPP.

use etherparse::EtherType;

use crate::layer::{Layer, Next, take};
use crate::unread::{Header, Unread};

/// Reads the link header of a packet.
pub(crate) fn of_capture(link: u16, octets: &[u8]) -> Next<'_> {
    match link {
        ETHERNET => Ok((Layer::Ethernet, octets)),
        RAW | RAW_BSD | RAW_OPENBSD | IPV4 | IPV6 => Ok((Layer::Ip, octets)),
        // The family in front is in the order of the capturing host; the IP header tells it, too.
        NULL | LOOP => take::<4>(octets, Header::Link).map(|(_, rest)| (Layer::Ip, rest)),
        PPP | PPP_HDLC => Ok((Layer::Ppp, octets)),
        PPPOE => Ok((Layer::EtherType(PPPOE_SESSION), octets)),
        COOKED => {
            let (header, rest) = take::<16>(octets, Header::Link)?;
            Ok((Layer::EtherType(u16::from_be_bytes([header[14], header[15]])), rest))
        }
        COOKED_2 => {
            let (header, rest) = take::<20>(octets, Header::Link)?;
            Ok((Layer::EtherType(u16::from_be_bytes([header[0], header[1]])), rest))
        }
        _ => Err(Unread::Link(link)),
    }
}

/// Reads an Ethernet header.
pub(crate) fn ethernet(octets: &[u8]) -> Next<'_> {
    let (header, rest) = take::<14>(octets, Header::Link)?;
    Ok((Layer::EtherType(u16::from_be_bytes([header[12], header[13]])), rest))
}

/// Reads what an `EtherType` names.
pub(crate) fn of_type(kind: u16, octets: &[u8]) -> Next<'_> {
    match EtherType(kind) {
        EtherType::IPV4 | EtherType::IPV6 => Ok((Layer::Ip, octets)),
        EtherType::VLAN_TAGGED_FRAME | EtherType::PROVIDER_BRIDGING | EtherType::VLAN_DOUBLE_TAGGED_FRAME => {
            let (tag, rest) = take::<4>(octets, Header::Vlan)?;
            Ok((Layer::EtherType(u16::from_be_bytes([tag[2], tag[3]])), rest))
        }
        EtherType(MPLS | MPLS_UPSTREAM) => Ok((Layer::Mpls, octets)),
        EtherType(PPPOE_SESSION) => match take::<6>(octets, Header::Ppp)? {
            // RFC 2516 §4: version 1, type 1, and in a session code 0.
            ([0x11, 0, ..], rest) => Ok((Layer::Ppp, rest)),
            _ => Err(Unread::Kind(Header::Ppp)),
        },
        EtherType(..LEAST_ETHER_TYPE) => Err(Unread::Length),
        EtherType(kind) => Err(Unread::EtherType(kind)),
    }
}

/// Reads a label of MPLS. Behind the last one nothing says what follows: a version of IP, or the
/// control word of a pseudowire (RFC 4385 §3), or else a frame of Ethernet.
pub(crate) fn mpls(octets: &[u8]) -> Next<'_> {
    let (label, rest) = take::<4>(octets, Header::Mpls)?;
    let is_last = label[2] & 1 != 0;
    match rest.first().map(|octet| octet >> 4) {
        _ if !is_last => Ok((Layer::Mpls, rest)),
        Some(4 | 6) => Ok((Layer::Ip, rest)),
        Some(0) => take::<4>(rest, Header::Mpls).map(|(_, frame)| (Layer::Ethernet, frame)),
        _ => Ok((Layer::Ethernet, rest)),
    }
}

/// Reads the protocol number of PPP, with the address and control field of HDLC in front of it or
/// without. RFC 1661 §6.5: it may be compressed to one octet, which is odd, and never that of the
/// address.
pub(crate) fn ppp(octets: &[u8]) -> Next<'_> {
    let octets = octets.strip_prefix(&[0xff, 3]).unwrap_or(octets);
    let (number, rest) = match octets {
        [number, rest @ ..] if number % 2 == 1 && *number != 0xff => (u16::from(*number), rest),
        _ => {
            let (number, rest) = take::<2>(octets, Header::Ppp)?;
            (u16::from_be_bytes(*number), rest)
        }
    };
    match number {
        PPP_IPV4 | PPP_IPV6 => Ok((Layer::Ip, rest)),
        PPP_MPLS | PPP_MPLS_UPSTREAM => Ok((Layer::Mpls, rest)),
        _ => Err(Unread::Ppp(number)),
    }
}

/// Kinds of link headers, as `LINKTYPE` numbers them.
const NULL: u16 = 0;
const ETHERNET: u16 = 1;
const PPP: u16 = 9;
const RAW_BSD: u16 = 12;
const RAW_OPENBSD: u16 = 14;
const PPP_HDLC: u16 = 50;
const PPPOE: u16 = 51;
const RAW: u16 = 101;
const LOOP: u16 = 108;
const COOKED: u16 = 113;
const IPV4: u16 = 228;
const IPV6: u16 = 229;
const COOKED_2: u16 = 276;

/// The least `EtherType`: what is below is a length (IEEE 802.3 §3.2.6).
const LEAST_ETHER_TYPE: u16 = 0x0600;

/// `EtherType`s that `etherparse` does not name.
const MPLS: u16 = 0x8847;
const MPLS_UPSTREAM: u16 = 0x8848;
const PPPOE_SESSION: u16 = 0x8864;

/// Protocol numbers of PPP.
const PPP_IPV4: u16 = 0x21;
const PPP_IPV6: u16 = 0x57;
const PPP_MPLS: u16 = 0x281;
const PPP_MPLS_UPSTREAM: u16 = 0x283;
