//! The messages of the port mapper's protocol, as octets and as values.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ops::Deref;

/// Kinds of messages.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// REQ: where is this service?
    Request = 0,
    /// ACC: at this port.
    Accept = 1,
    /// ACK: the port was taken note of.
    Acknowledge = 2,
    /// REJ: nowhere.
    Reject = 3,
}

/// A message of the port mapper's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The kind of message.
    pub kind: Kind,
    /// `pmtime`, whose meaning only the sender knows.
    pub time: u8,
    /// The accepting peer: the service, or the port that it is mapped to.
    pub ap: SocketAddr,
    /// The connecting peer, of the same family.
    pub cp: SocketAddr,
    /// `AssocHandle`, by which answers and repetitions are known.
    pub handle: u64,
    /// The address and port from which the connecting peer's RNIC really connects: an extension of
    /// `iwpmd`, in Requests alone.
    pub mapped_cp: Option<SocketAddr>,
}

/// A fault in the form of a message. Such messages are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Fewer octets than a message has.
    #[error("a message of the port mapper has {len} octets, not {0}", len = Frame::LEN)]
    Short(usize),
    /// Another version than 0.
    #[error("version {0} of the port mapper's protocol is not known")]
    Version(u8),
    /// Addresses of another version of IP than 4 and 6.
    #[error("there is no IP version {0}")]
    IpVersion(u8),
}

impl Frame {
    /// Octets of a message without the extension.
    pub const LEN: usize = 48;

    /// Octets of a message with the extension.
    pub const EXTENDED_LEN: usize = 64;

    /// Reads a message. Octets behind it are not looked at.
    ///
    /// # Errors
    /// The octets are none.
    pub fn parse(octets: &[u8]) -> Result<Self, FrameError> {
        let len = octets.len();
        let Some((front, rest)) = octets.split_first_chunk::<{ Self::LEN }>() else {
            return Err(FrameError::Short(len));
        };
        if front[0] & VERSION != 0 {
            return Err(FrameError::Version(front[0] >> 6));
        }
        let family = match front[0] & 0xf {
            family @ (4 | 6) => family,
            other => return Err(FrameError::IpVersion(other)),
        };
        let kind = [Kind::Request, Kind::Accept, Kind::Acknowledge, Kind::Reject][usize::from(front[0] >> 4)];
        let port = |at: usize| u16::from_be_bytes([front[at], front[at + 1]]);
        let addr = |ip: &[u8], at: usize| SocketAddr::new(take_ip(ip, family), port(at));
        let extension = rest.get(..Self::EXTENDED_LEN - Self::LEN).filter(|_| kind == Kind::Request);
        let [_, _, _, _, _, _, _, _, handle @ ..] = *front;
        let [a, b, c, d, e, f, g, h, ..] = handle;
        Ok(Self {
            kind,
            time: front[1],
            ap: addr(&front[AP_IP..], AP_PORT),
            cp: addr(&front[CP_IP..], CP_PORT),
            handle: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            mapped_cp: extension.map(|ip| addr(ip, MAPPED_CP_PORT)),
        })
    }

    /// Returns the message as octets: 48, or 64 with the extension.
    #[must_use]
    pub fn octets(&self) -> FrameOctets {
        let mut out = [0; Self::EXTENDED_LEN];
        out[0] = (self.kind as u8) << 4 | if self.ap.is_ipv4() { 4 } else { 6 };
        out[1] = self.time;
        out[AP_PORT..][..2].copy_from_slice(&self.ap.port().to_be_bytes());
        out[CP_PORT..][..2].copy_from_slice(&self.cp.port().to_be_bytes());
        out[HANDLE..][..8].copy_from_slice(&self.handle.to_be_bytes());
        put_ip(&mut out[CP_IP..], self.cp.ip());
        put_ip(&mut out[AP_IP..], self.ap.ip());
        if let Some(mapped) = self.mapped_cp {
            out[MAPPED_CP_PORT..][..2].copy_from_slice(&mapped.port().to_be_bytes());
            put_ip(&mut out[Self::LEN..], mapped.ip());
        }
        let len = if self.mapped_cp.is_some() { Self::EXTENDED_LEN } else { Self::LEN };
        FrameOctets { octets: out, len }
    }

    /// Returns the answer to this Request: of this kind, with this port of the service.
    #[must_use]
    pub fn answer(&self, kind: Kind, port: u16) -> Self {
        let mut ap = self.ap;
        ap.set_port(port);
        Self { kind, ap, time: 0, mapped_cp: None, ..*self }
    }
}

/// A message as octets, in place.
#[derive(Clone, Copy, Debug)]
pub struct FrameOctets {
    octets: [u8; Frame::EXTENDED_LEN],
    len: usize,
}

impl Deref for FrameOctets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

/// Writes an address. One of IPv4 stands in the first four octets.
fn put_ip(out: &mut [u8], ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => out[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => out[..16].copy_from_slice(&ip.octets()),
    }
}

/// Reads an address, which has room for one of IPv6.
fn take_ip(from: &[u8], family: u8) -> IpAddr {
    let octets: [u8; 16] = from.first_chunk().copied().unwrap_or_default();
    let [a, b, c, d, ..] = octets;
    if family == 6 { Ipv6Addr::from(octets).into() } else { Ipv4Addr::new(a, b, c, d).into() }
}

/// The bits of the version, in the first octet; the kind is in the two below them.
const VERSION: u8 = 0xc0;

const MAPPED_CP_PORT: usize = 2;
const AP_PORT: usize = 4;
const CP_PORT: usize = 6;
const HANDLE: usize = 8;
const CP_IP: usize = 16;
const AP_IP: usize = 32;
