//! Hello, the message that opens a connection, in its whole and its compact form.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::num::NonZeroU8;

use super::fields::{get_u16, get_u32, octets, put};
use super::message::check_len;
use super::{Flags, FormatError, HEADER_LEN, Header, LONGEST_CONTROL, Mid};

/// A version of SDP, of which the major number decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The upper half of the octet.
    pub major: u8,
    /// The lower half.
    pub minor: u8,
}

impl Version {
    /// The version that this end sends.
    pub const OURS: Version = Version { major: 2, minor: 2 };

    pub(super) fn parse(octet: u8) -> Result<Self, FormatError> {
        match octet >> 4 {
            major @ (1 | 2) => Ok(Self { major, minor: octet & 0xf }),
            other => Err(FormatError::HelloVersion(other)),
        }
    }

    pub(super) fn octet(self) -> u8 {
        self.major << 4 | self.minor & 0xf
    }
}

/// Abilities of the active side: four bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(pub u8);

impl Capabilities {
    /// The sender takes Sends with Invalidate.
    pub const INVALIDATE: Capabilities = Capabilities(1);
    /// `ExtMaxAdverts` holds the number of adverts.
    pub const EXT_MAX_ADVERTS: Capabilities = Capabilities(2);

    /// Returns whether all abilities of `other` are there.
    #[must_use]
    pub const fn contains(self, other: Capabilities) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The addresses of both ends, as the active side knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// IPv4, which stands in the last four octets of a field.
    V4 {
        /// The active side's.
        source: Ipv4Addr,
        /// The passive side's.
        destination: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// The active side's.
        source: Ipv6Addr,
        /// The passive side's.
        destination: Ipv6Addr,
    },
}

impl Addresses {
    /// Returns the active side's address.
    #[must_use]
    pub fn source(&self) -> IpAddr {
        match *self {
            Self::V4 { source, .. } => source.into(),
            Self::V6 { source, .. } => source.into(),
        }
    }

    /// Returns the passive side's address.
    #[must_use]
    pub fn destination(&self) -> IpAddr {
        match *self {
            Self::V4 { destination, .. } => destination.into(),
            Self::V6 { destination, .. } => destination.into(),
        }
    }

    fn version(&self) -> u8 {
        if matches!(self, Self::V4 { .. }) { 4 } else { 6 }
    }

    fn parse(version: u8, ext: &[u8]) -> Self {
        if version == 4 {
            let at = |field: usize| Ipv4Addr::from(octets::<4>(ext, field + 12));
            Self::V4 { source: at(field::SOURCE), destination: at(field::DESTINATION) }
        } else {
            let at = |field: usize| Ipv6Addr::from(octets::<16>(ext, field));
            Self::V6 { source: at(field::SOURCE), destination: at(field::DESTINATION) }
        }
    }

    fn emit(&self, ext: &mut [u8]) {
        match self {
            Self::V4 { source, destination } => {
                put(ext, field::SOURCE + 12, source.octets());
                put(ext, field::DESTINATION + 12, destination.octets());
            }
            Self::V6 { source, destination } => {
                put(ext, field::SOURCE, source.octets());
                put(ext, field::DESTINATION, destination.octets());
            }
        }
    }
}

/// The message that opens a connection, from the active side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version of SDP that the sender speaks.
    pub version: Version,
    /// The private receive buffers that the sender has posted: the first credits.
    pub bufs: u16,
    /// Abilities of the sender.
    pub capabilities: Capabilities,
    /// The adverts that the sender takes at a time.
    pub max_adverts: NonZeroU8,
    /// `DesRemRcvSz`: octets of a receive buffer, base header included, wished of the peer.
    pub desired_remote_size: u32,
    /// `LocalRcvSz`: octets of a receive buffer of the sender, base header included.
    pub local_size: u32,
    /// The sender's port.
    pub port: u16,
    /// The addresses of both ends.
    pub addresses: Addresses,
    /// `ExtMaxAdverts`, which counts with [`Capabilities::EXT_MAX_ADVERTS`] alone.
    pub ext_max_adverts: u16,
    /// The sender is this program: it says so in octets that others send as zero.
    pub rddp: bool,
}

impl Hello {
    /// Octets of the message.
    pub const LEN: usize = 92;

    /// Octets of the compact form: the message up to its port, then `ExtMaxAdverts`. It is for
    /// transports that bring the addresses themselves and have little room for private data.
    pub const COMPACT_LEN: usize = 34;

    /// Reads a Hello.
    ///
    /// # Errors
    /// The octets are none, or it is to be rejected: its version is not supported, it takes no
    /// adverts, or its receive buffers hold no message.
    pub fn parse(message: &[u8]) -> Result<Self, FormatError> {
        let header = startup_header(Mid::Hello, message, message.len())?;
        let ext = &message[HEADER_LEN..];
        let version = ip_version(ext)?;
        let addresses = Addresses::parse(version, ext);
        let rddp = octets(ext, field::MARK) == MARK;
        Self::with(&header, ext, addresses, get_u16(ext, field::EXT_MAX_ADVERTS), rddp)
    }

    /// Reads a Hello in its compact form, with the addresses that the transport brought. Octets
    /// behind it are not looked at: some transports hand over private data of a fixed length.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_compact(front: &[u8], addresses: Addresses) -> Result<Self, FormatError> {
        let Some((front, _)) = front.split_at_checked(Self::COMPACT_LEN) else {
            return Err(FormatError::ShortHeader(front.len()));
        };
        // `Len` is that of the whole form.
        let header = startup_header(Mid::Hello, front, Self::LEN)?;
        let ext = &front[HEADER_LEN..];
        ip_version(ext)?;
        Self::with(&header, ext, addresses, get_u16(ext, COMPACT_EXT_MAX_ADVERTS), false)
    }

    fn with(
        header: &Header,
        ext: &[u8],
        addresses: Addresses,
        ext_max_adverts: u16,
        rddp: bool,
    ) -> Result<Self, FormatError> {
        let max_adverts = ext[field::MAX_ADVERTS];
        Ok(Self {
            bufs: header.bufs,
            capabilities: Capabilities(ext[field::IPV_CAP] & 0xf),
            max_adverts: NonZeroU8::new(max_adverts).ok_or(FormatError::HelloMaxAdverts)?,
            version: Version::parse(ext[field::VERSION])?,
            desired_remote_size: get_u32(ext, field::DESIRED_REMOTE_SIZE),
            local_size: receive_size(get_u32(ext, field::LOCAL_SIZE))?,
            port: get_u16(ext, field::PORT),
            addresses,
            ext_max_adverts,
            rddp,
        })
    }

    /// Returns the message.
    #[must_use]
    pub fn octets(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        startup(Mid::Hello, self.bufs).emit(&mut out);
        let ext = &mut out[HEADER_LEN..];
        self.emit_front(ext);
        self.addresses.emit(ext);
        put(ext, field::EXT_MAX_ADVERTS, self.ext_max_adverts.to_be_bytes());
        if self.rddp {
            put(ext, field::MARK, MARK);
        }
        out
    }

    /// Returns the message in its compact form.
    #[must_use]
    pub fn compact_octets(&self) -> [u8; Self::COMPACT_LEN] {
        let mut out = [0; Self::COMPACT_LEN];
        startup(Mid::Hello, self.bufs).emit(&mut out);
        let ext = &mut out[HEADER_LEN..];
        self.emit_front(ext);
        put(ext, COMPACT_EXT_MAX_ADVERTS, self.ext_max_adverts.to_be_bytes());
        out
    }

    /// Writes what both forms have of the extended header.
    fn emit_front(&self, ext: &mut [u8]) {
        ext[field::VERSION] = self.version.octet();
        ext[field::IPV_CAP] = self.addresses.version() << 4 | self.capabilities.0 & 0xf;
        ext[field::MAX_ADVERTS] = self.max_adverts.get();
        put(ext, field::DESIRED_REMOTE_SIZE, self.desired_remote_size.to_be_bytes());
        put(ext, field::LOCAL_SIZE, self.local_size.to_be_bytes());
        put(ext, field::PORT, self.port.to_be_bytes());
    }

    /// Returns whether the sender is this program.
    #[must_use]
    pub const fn is_rddp(&self) -> bool {
        self.rddp
    }
}

/// Reads the version of IP.
fn ip_version(ext: &[u8]) -> Result<u8, FormatError> {
    match ext[field::IPV_CAP] >> 4 {
        version @ (4 | 6) => Ok(version),
        other => Err(FormatError::HelloIpVersion(other)),
    }
}

/// Returns the base header of a message of the startup: it and what it acknowledges have number 0.
pub(super) fn startup(mid: Mid, bufs: u16) -> Header {
    let len = if mid == Mid::Hello { Hello::LEN } else { super::HelloAck::LEN };
    Header { mid, flags: Flags::empty(), bufs, len: len as u32, mseq: 0, mseq_ack: 0 }
}

/// Reads the base header of a message of the startup, whose octets number `arrived`.
pub(super) fn startup_header(mid: Mid, message: &[u8], arrived: usize) -> Result<Header, FormatError> {
    if message.len() < HEADER_LEN {
        return Err(FormatError::ShortHeader(message.len()));
    }
    check_len(message, arrived)?;
    let header = Header::parse(message)?;
    if header.mid != mid {
        return Err(FormatError::NotHello(header.mid));
    }
    let len = HEADER_LEN + mid.extension_len();
    if arrived != len {
        let too_short = arrived < len;
        let (short, long) = (FormatError::ShortExtension(mid), FormatError::PayloadNotAllowed(mid));
        return Err(if too_short { short } else { long });
    }
    if header.flags.contains(Flags::OOB_PRES) {
        return Err(FormatError::OobPresNotData(mid));
    }
    Ok(header)
}

/// A receive buffer holds at least the messages without payload.
pub(super) fn receive_size(size: u32) -> Result<u32, FormatError> {
    if size < LONGEST_CONTROL as u32 { Err(FormatError::HelloReceiveSize(size)) } else { Ok(size) }
}

/// Octets that tell that the sender is this program.
pub(super) const MARK: [u8; 4] = *b"rddp";

/// The place of `ExtMaxAdverts` in the compact form.
const COMPACT_EXT_MAX_ADVERTS: usize = 16;

/// Places of the fields in the extended header.
mod field {
    pub(super) const VERSION: usize = 0;
    pub(super) const IPV_CAP: usize = 1;
    pub(super) const MAX_ADVERTS: usize = 3;
    pub(super) const DESIRED_REMOTE_SIZE: usize = 4;
    pub(super) const LOCAL_SIZE: usize = 8;
    pub(super) const PORT: usize = 12;
    pub(super) const SOURCE: usize = 16;
    pub(super) const DESTINATION: usize = 32;
    pub(super) const EXT_MAX_ADVERTS: usize = 50;
    pub(super) const MARK: usize = 72;
}
