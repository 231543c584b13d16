//! Destinations of rules: `ADDRESS[/PREFIX]:PORT[-PORT]`.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::str::FromStr;
use std::ops::RangeInclusive;

use super::bad_line::Reason;
use super::parse::Dialect;

/// Addresses and ports that a rule applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Destination {
    network: Option<Network>,
    ports: RangeInclusive<u16>,
}

/// Addresses that begin alike: `ADDRESS[/PREFIX]`.
///
/// ```
/// use rddp_policy::Network;
/// let network: Network = "192.0.2.0/24".parse()?;
/// assert!(network.holds("192.0.2.7".parse().unwrap()));
/// # Ok::<(), rddp_policy::Reason>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Destination {
    pub(super) const ANY: Self = Destination { network: None, ports: 0..=u16::MAX };

    pub(super) fn parse(text: &str, dialect: Dialect) -> Result<Self, Reason> {
        let (address, ports) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once("]:").ok_or_else(|| Reason::Address(text.into()))?,
            None => text.rsplit_once(':').ok_or_else(|| Reason::Address(text.into()))?,
        };
        // The sample file of libsdp has no brackets: 1234:5678::0/64:*.
        let is_bare = dialect == Dialect::Libsdp && address.contains(':');
        let network = match (address, text.starts_with('[') || is_bare) {
            ("*", false) => None,
            (address, false) => Some(Network::parse::<Ipv4Addr>(address, 32)?),
            (address, true) => Some(Network::parse::<Ipv6Addr>(address, 128)?),
        };
        Ok(Destination { network, ports: range(ports)? })
    }

    pub(super) fn holds(&self, addr: SocketAddr) -> bool {
        self.ports.contains(&addr.port()) && self.network.is_none_or(|network| network.holds(addr.ip()))
    }
}

impl Network {
    fn parse<A: FromStr + Into<IpAddr>>(text: &str, bits: u32) -> Result<Self, Reason> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address = address.parse::<A>().map_err(|_| Reason::Address(text.into()))?.into().to_canonical();
        let of_prefix = |text: &str| digits(text).filter(|prefix| *prefix <= bits);
        let mut prefix = match prefix {
            Some(text) => of_prefix(text).ok_or_else(|| Reason::Prefix(text.into()))?,
            None => bits,
        };
        if bits == 128 && address.is_ipv4() {
            prefix = prefix.saturating_sub(96);
        }
        Ok(Network { address, prefix })
    }

    /// Returns whether `ip` lies in this network. Bits of the rule's address behind its prefix are
    /// not compared, and an IPv4-mapped IPv6 address is taken for the IPv4 address.
    #[must_use]
    pub fn holds(self, ip: IpAddr) -> bool {
        let (ours, theirs, bits) = match (self.address, ip.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => (ours.to_bits().into(), theirs.to_bits().into(), 32),
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => (ours.to_bits(), theirs.to_bits(), 128),
            _ => return false,
        };
        (ours ^ theirs).checked_shr(bits - self.prefix).unwrap_or(0) == 0u128
    }
}

impl FromStr for Network {
    type Err = Reason;

    fn from_str(text: &str) -> Result<Self, Reason> {
        if text.contains(':') {
            Network::parse::<Ipv6Addr>(text, 128)
        } else {
            Network::parse::<Ipv4Addr>(text, 32)
        }
    }
}

fn range(text: &str) -> Result<RangeInclusive<u16>, Reason> {
    if text == "*" {
        return Ok(0..=u16::MAX);
    }
    let port = |text: &str| {
        let number = digits(text).and_then(|number| u16::try_from(number).ok());
        number.ok_or_else(|| Reason::Port(text.into()))
    };
    let (low, high) = match text.split_once('-') {
        Some((low, high)) => (port(low)?, port(high)?),
        None => (port(text)?, port(text)?),
    };
    if low <= high { Ok(low..=high) } else { Err(Reason::PortOrder(text.into())) }
}

/// Parses a number that is written with digits alone (no sign, no blank).
pub(super) fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|octet| octet.is_ascii_digit()).then(|| text.parse().ok())?
}
