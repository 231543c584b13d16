//! Headers of IP (RFC 791 §3.1, RFC 8200 §3, §4).

use core::net::IpAddr;

use etherparse::err::ip::LaxHeaderSliceError;
use etherparse::{IpNumber, Ipv6ExtensionSlice, LaxIpSlice};

use crate::unread::{Header, Unread};

/// An IP datagram, or a fragment of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram<'a> {
    /// Source and destination.
    pub(crate) ends: [IpAddr; 2],
    pub(crate) protocol: IpNumber,
    pub(crate) payload: &'a [u8],
    /// Octets of payload behind it that were not captured.
    pub(crate) cut: usize,
    pub(crate) fragment: Option<Fragment>,
}

/// The place of a fragment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment {
    /// The number that the fragments of a datagram have in common.
    pub(crate) id: u32,
    /// The place of the first octet in the datagram's payload.
    pub(crate) at: u32,
    pub(crate) is_last: bool,
}

/// Reads the headers of IP. Behind `octets`, `cut` octets of the packet were not captured.
pub(crate) fn datagram(octets: &[u8], cut: usize) -> Result<Datagram<'_>, Unread> {
    let (ip, stopped) = LaxIpSlice::from_slice(octets).map_err(|error| match error {
        LaxHeaderSliceError::Len(_) => Unread::Short(Header::Ip),
        LaxHeaderSliceError::Content(_) => Unread::Kind(Header::Ip),
    })?;
    if stopped.is_some() {
        return Err(Unread::Short(Header::Ip));
    }
    let (header_len, len) = match &ip {
        LaxIpSlice::Ipv4(ip) => (ip.header().slice().len(), ip.header().total_len().into()),
        LaxIpSlice::Ipv6(ip) => match usize::from(ip.header().payload_length()) {
            0 => (IPV6_LEN, 0),
            payload => (IPV6_LEN, IPV6_LEN + payload),
        },
    };
    // Without a length, as of segments that the interface was to cut, all that was captured counts.
    let len = if len < header_len { octets.len() + cut } else { len };
    let payload = ip.payload();
    // An IPv4-mapped address, which old captures of ours have, is the one of IPv4.
    let ends = [ip.source_addr(), ip.destination_addr()].map(|ip| ip.to_canonical());
    let fragment = payload.fragmented.then(|| fragment(&ip)).flatten();
    let (protocol, cut) = (payload.ip_number, len.saturating_sub(octets.len()));
    Ok(Datagram { ends, protocol, payload: payload.payload, cut, fragment })
}

fn fragment(ip: &LaxIpSlice<'_>) -> Option<Fragment> {
    match ip {
        LaxIpSlice::Ipv4(ip) => {
            let header = ip.header();
            let at = header.fragments_offset().byte_offset().into();
            Some(Fragment { id: header.identification().into(), at, is_last: !header.more_fragments() })
        }
        LaxIpSlice::Ipv6(ip) => ip.extensions().clone().into_iter().find_map(|header| match header {
            Ipv6ExtensionSlice::Fragment(header) => {
                let at = header.fragment_offset().byte_offset().into();
                Some(Fragment { id: header.identification(), at, is_last: !header.more_fragments() })
            }
            _ => None,
        }),
    }
}

/// Octets of a header of IPv6.
const IPV6_LEN: usize = 40;
