//! The octets in front of each datagram that a receive takes, in which a program finds whom to
//! answer. They have the form of unreliable datagrams of verbs: the IP header, by its addresses.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The ends of a datagram that was received.
///
/// | octets | IPv6 (a GRH) | IPv4 |
/// |---|---|---|
/// | 0 to 3 | version, traffic class, flow label: in its low 16 bits the UDP port of the source | 0 |
/// | 4 to 7 | payload length, next header, hop limit | 0 |
/// | 8 to 23 | source | 0; from octet 20 on the IPv4 header: version, TOS, total length |
/// | 24 to 39 | destination | identification (the UDP port of the source), protocol, source, destination |
///
/// A link-local source has the number of its interface in octets 2 and 3 of the address, as stacks
/// of BSD write them, and none in front of unreliable datagrams of verbs.
///
/// ```
/// use rddp_rdma::Datagram;
/// let octets = Datagram {
///     source: "192.0.2.1:7".parse()?,
///     destination: "192.0.2.2".parse()?,
///     traffic_class: 0,
///     len: 5,
/// }
/// .to_octets();
/// let inbox = [&octets[..], b"hello"].concat();
/// assert_eq!(Datagram::source(&inbox), Some("192.0.2.1:7".parse()?));
/// # Ok::<(), core::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The sender, as the datagram says: nobody has checked that.
    pub source: SocketAddr,
    /// The address of this host that the datagram was sent to.
    pub destination: IpAddr,
    /// The traffic class, or type of service.
    pub traffic_class: u8,
    /// The octets of the message.
    pub len: u16,
}

const UDP: u8 = 17;
const UDP_HEADER: u16 = 8;
const IPV4_HEADER: u16 = 20;

impl Datagram {
    /// The octets in front of a message.
    pub const LEN: usize = 40;

    /// Returns the sender of the message behind the first octets of a receive, to be answered.
    /// `None` if they are not what a datagram has in front.
    #[must_use]
    pub fn source(octets: &[u8]) -> Option<SocketAddr> {
        Some(Self::parse(octets.first_chunk()?)?.source)
    }

    /// Returns the ends that the octets in front of a message name.
    #[must_use]
    pub fn parse(octets: &[u8; Self::LEN]) -> Option<Self> {
        let field = |at: usize| u16::from_be_bytes([octets[at], octets[at + 1]]);
        if octets[0] >> 4 == 6 {
            let (source, scope) = without_scope(address(&octets[8..24])?);
            return Some(Datagram {
                source: SocketAddrV6::new(source, field(2), 0, scope).into(),
                destination: without_scope(address(&octets[24..40])?).0.into(),
                traffic_class: octets[0] << 4 | octets[1] >> 4,
                len: field(4).checked_sub(UDP_HEADER)?,
            });
        }
        if octets[20] != 0x45 {
            return None;
        }
        let ip = |at: usize| Ipv4Addr::new(octets[at], octets[at + 1], octets[at + 2], octets[at + 3]);
        Some(Datagram {
            source: (ip(32), field(24)).into(),
            destination: ip(36).into(),
            traffic_class: octets[21],
            len: field(22).checked_sub(IPV4_HEADER + UDP_HEADER)?,
        })
    }

    /// Returns the octets in front of a message from these ends.
    #[must_use]
    pub fn to_octets(&self) -> [u8; Self::LEN] {
        let mut octets = [0; Self::LEN];
        let port = self.source.port().to_be_bytes();
        match (self.source, self.destination) {
            (SocketAddr::V4(source), IpAddr::V4(destination)) => {
                (octets[20], octets[21]) = (0x45, self.traffic_class);
                let total = self.len.saturating_add(IPV4_HEADER + UDP_HEADER);
                octets[22..24].copy_from_slice(&total.to_be_bytes());
                octets[24..26].copy_from_slice(&port);
                octets[29] = UDP;
                octets[32..36].copy_from_slice(&source.ip().octets());
                octets[36..].copy_from_slice(&destination.octets());
            }
            (source, destination) => {
                octets[0] = 0x60 | self.traffic_class >> 4;
                octets[1] = self.traffic_class << 4;
                octets[2..4].copy_from_slice(&port);
                octets[4..6].copy_from_slice(&self.len.saturating_add(UDP_HEADER).to_be_bytes());
                octets[6] = UDP;
                octets[8..24].copy_from_slice(&with_scope(source).octets());
                octets[24..].copy_from_slice(&as_ipv6(destination).octets());
            }
        }
        octets
    }
}

fn address(octets: &[u8]) -> Option<Ipv6Addr> {
    Some(<[u8; 16]>::try_from(octets).ok()?.into())
}

fn as_ipv6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// Writes the number of the interface into a link-local address.
fn with_scope(addr: SocketAddr) -> Ipv6Addr {
    let mut segments = as_ipv6(addr.ip()).segments();
    if let SocketAddr::V6(addr) = addr
        && addr.ip().is_unicast_link_local()
    {
        segments[1] = u16::try_from(addr.scope_id()).unwrap_or(0);
    }
    segments.into()
}

fn without_scope(ip: Ipv6Addr) -> (Ipv6Addr, u32) {
    let mut segments = ip.segments();
    if !ip.is_unicast_link_local() {
        return (ip, 0);
    }
    let scope = core::mem::take(&mut segments[1]);
    (segments.into(), scope.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(source: &str, destination: &str) -> Datagram {
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        Datagram { source, destination, traffic_class: 0xb9, len: 1472 }
    }

    #[test]
    fn the_form_is_reversible() {
        for (source, destination) in [
            ("192.0.2.1:65535", "198.51.100.2"),
            ("[2001:db8::1]:1", "2001:db8::2"),
            ("[fe80::1%7]:9", "fe80::2"),
        ] {
            let datagram = datagram(source, destination);
            assert_eq!(Datagram::parse(&datagram.to_octets()), Some(datagram));
        }
    }

    /// The form of verbs: a GRH, or 20 octets and the IPv4 header.
    #[test]
    fn the_octets_are_those_of_an_ip_header() {
        let octets = datagram("192.0.2.1:258", "198.51.100.2").to_octets();
        assert_eq!(octets[..20], [0; 20]);
        assert_eq!(octets[20..26], [0x45, 0xb9, 0x05, 0xdc, 1, 2]);
        assert_eq!(octets[26..], [0, 0, 0, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2]);
        let octets = datagram("[2001:db8::1]:258", "2001:db8::2").to_octets();
        assert_eq!(octets[..8], [0x6b, 0x90, 1, 2, 0x05, 0xc8, 17, 0]);
        assert_eq!((octets[8], octets[23], octets[24], octets[39]), (0x20, 1, 0x20, 2));
    }

    #[test]
    fn other_octets_have_no_source() {
        assert_eq!(Datagram::source(&[0; 40]), None);
        assert_eq!(Datagram::source(&[0x60; 39]), None);
        assert_eq!(Datagram::source(&[0x60; 40]).map(|source| source.port()), Some(0x6060));
    }
}
