//! The Request and Reply frame and RFC 6581's data in it (RFC 5044 §7.1.1, RFC 6581 §6, §9).

use std::fmt;
use std::ops::Deref;

use super::{MAX_PRIVATE_DATA, Revision, RtrSet, StartupError, StartupMisuse};

/// The kind of a startup frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// From the initiator.
    Request,
    /// From the responder.
    Reply,
}

/// A valid startup frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Request or Reply.
    pub kind: FrameKind,
    /// M: the sender wants markers in what it receives.
    pub markers: bool,
    /// C: the sender prefers CRCs.
    pub crc: bool,
    /// R: the connection is rejected. Always false in a Request.
    pub rejected: bool,
    /// A reserved bit to which siw gives a meaning: the sender takes FPDUs longer than a TCP
    /// segment. See [`StartupConfig::large_fpdus`](super::StartupConfig::large_fpdus).
    pub large_fpdus: bool,
    /// The revision of MPA that the sender speaks.
    pub revision: Revision,
    /// The data that RFC 6581 adds; the frame has S set. Only in revision 2.
    pub enhanced: Option<EnhancedData>,
    /// The ULP's private data.
    pub private_data: &'a [u8],
}

/// RFC 6581's four octets in front of the private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnhancedData {
    /// A: the connection is peer-to-peer.
    pub peer_to_peer: bool,
    /// B, C and D: kinds of RTR. None of them without A.
    pub rtr: RtrSet,
    /// The sender's inbound Read queue depth, 14 bits.
    pub ird: u16,
    /// The sender's outbound Read queue depth, 14 bits.
    pub ord: u16,
}

/// The octets of a startup frame, in place: a caller may be where nothing can be allocated.
#[derive(Clone)]
pub struct FrameOctets {
    octets: [u8; Frame::MAX_LEN],
    len: usize,
}

/// The outcome of [`Frame::parse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Parsed<'a> {
    /// A complete frame.
    Frame {
        /// The frame's contents.
        frame: Frame<'a>,
        /// The octets of the stream that the frame takes up.
        used: usize,
    },
    /// The frame has not arrived completely.
    Need {
        /// Octets that the stream must have, from its front, before another call can say more.
        total: usize,
    },
}

impl<'a> Frame<'a> {
    /// Octets in front of the private data.
    pub const HEADER_LEN: usize = HEADER_LEN;

    /// Octets of the longest frame.
    pub const MAX_LEN: usize = HEADER_LEN + MAX_PRIVATE_DATA;

    /// Reads a frame of this kind from the front of `stream`.
    ///
    /// The verdict does not depend on how much of the stream has arrived: it is `Need` until there
    /// are enough octets for one, and the same ever after.
    ///
    /// # Errors
    /// The frame is malformed. This is reported as early as the octets tell.
    pub fn parse(kind: FrameKind, stream: &'a [u8]) -> Result<Parsed<'a>, StartupError> {
        check_key(kind, stream)?;
        let Some((header, rest)) = stream.split_first_chunk::<HEADER_LEN>() else {
            return Ok(Parsed::Need { total: Self::HEADER_LEN });
        };
        let flags = header[field::FLAGS];
        let revision = parse_revision(header[field::REVISION])?;
        let pd_length = u16::from_be_bytes([header[field::PD_LENGTH], header[field::PD_LENGTH + 1]]);
        // RFC 6581 §6: S has a meaning from revision 2 on. In revision 1 it is one of the reserved
        // bits, which RFC 5044 §7.1.1 says not to check.
        let enhanced = revision >= Revision::Two && flags & flag::ENHANCED != 0;
        let pd_length = check_pd_length(pd_length, enhanced)?;
        let Some(private_data) = rest.get(..pd_length) else {
            return Ok(Parsed::Need { total: Self::HEADER_LEN + pd_length });
        };
        let (enhanced, private_data) = match private_data.split_first_chunk() {
            Some((data, private_data)) if enhanced => (Some(EnhancedData::parse(data)), private_data),
            _ => (None, private_data),
        };
        let frame = Self {
            kind,
            markers: flags & flag::MARKERS != 0,
            crc: flags & flag::CRC != 0,
            // RFC 5044 §7.1.1: R is not checked in a Request.
            rejected: kind == FrameKind::Reply && flags & flag::REJECTED != 0,
            large_fpdus: flags & flag::LARGE_FPDUS != 0,
            revision,
            enhanced,
            private_data,
        };
        Ok(Parsed::Frame { frame, used: Self::HEADER_LEN + pd_length })
    }

    /// Returns the frame's octets. Reserved bits are zero, but for that of
    /// [`large_fpdus`](Self::large_fpdus). Allocates nothing.
    ///
    /// # Errors
    /// More private data than fits, or a depth beyond 14 bits.
    pub fn emit(&self) -> Result<FrameOctets, StartupMisuse> {
        let prefix_len = if self.enhanced.is_some() { EnhancedData::LEN } else { 0 };
        // RFC 5044 §7.1.1, RFC 6581 §7: 512 octets, the four of RFC 6581 included.
        let (len, max) = (self.private_data.len(), MAX_PRIVATE_DATA - prefix_len);
        if len > max {
            return Err(StartupMisuse::PrivateDataTooLong { len, max });
        }
        let pd_length = (prefix_len + len) as u16;
        let mut out = FrameOctets { octets: [0; Self::MAX_LEN], len: 0 };
        out.put(key(self.kind));
        out.put(&[self.flags(), self.revision as u8]);
        out.put(&pd_length.to_be_bytes());
        if let Some(enhanced) = &self.enhanced {
            out.put(&enhanced.emit()?);
        }
        out.put(self.private_data);
        Ok(out)
    }

    fn flags(&self) -> u8 {
        let set = |on: bool, flag: u8| if on { flag } else { 0 };
        set(self.markers, flag::MARKERS)
            | set(self.crc, flag::CRC)
            | set(self.rejected, flag::REJECTED)
            | set(self.enhanced.is_some(), flag::ENHANCED)
            | set(self.large_fpdus, flag::LARGE_FPDUS)
    }
}

impl FrameOctets {
    fn put(&mut self, octets: &[u8]) {
        let end = self.len + octets.len();
        self.octets[self.len..end].copy_from_slice(octets);
        self.len = end;
    }
}

impl Deref for FrameOctets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

impl AsRef<[u8]> for FrameOctets {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for FrameOctets {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for FrameOctets {}

impl fmt::Debug for FrameOctets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl EnhancedData {
    /// Octets of this data, which count as private data of the frame.
    pub const LEN: usize = 4;

    /// Reads the four octets. Every value is valid.
    #[must_use]
    pub fn parse(octets: &[u8; Self::LEN]) -> Self {
        let ird = u16::from_be_bytes([octets[0], octets[1]]);
        let ord = u16::from_be_bytes([octets[2], octets[3]]);
        let peer_to_peer = ird & control::A != 0;
        // RFC 6581 §9.2: without A the other flags are ignored.
        let rtr = if peer_to_peer {
            RtrSet { send: ird & control::B != 0, write: ord & control::C != 0, read: ord & control::D != 0 }
        } else {
            RtrSet::NONE
        };
        Self { peer_to_peer, rtr, ird: ird & control::DEPTH, ord: ord & control::DEPTH }
    }

    /// Returns the four octets.
    ///
    /// # Errors
    /// A depth beyond 14 bits.
    pub fn emit(&self) -> Result<[u8; Self::LEN], StartupMisuse> {
        if self.ird > control::DEPTH || self.ord > control::DEPTH {
            return Err(StartupMisuse::DepthTooLarge);
        }
        let set = |on: bool, flag: u16| if on { flag } else { 0 };
        // RFC 6581 §9.2: without A the other flags are zero.
        let rtr = if self.peer_to_peer { self.rtr } else { RtrSet::NONE };
        let ird = set(self.peer_to_peer, control::A) | set(rtr.send, control::B) | self.ird;
        let ord = set(rtr.write, control::C) | set(rtr.read, control::D) | self.ord;
        let ([i0, i1], [o0, o1]) = (ird.to_be_bytes(), ord.to_be_bytes());
        Ok([i0, i1, o0, o1])
    }
}

/// Refuses a key at the first octet that fits neither role's, so that this end does not wait for
/// more from a peer that speaks another protocol.
fn check_key(kind: FrameKind, stream: &[u8]) -> Result<(), StartupError> {
    let (expected, other) = match kind {
        FrameKind::Request => (REQUEST_KEY, REPLY_KEY),
        FrameKind::Reply => (REPLY_KEY, REQUEST_KEY),
    };
    let seen = &stream[..stream.len().min(KEY_LEN)];
    if expected.starts_with(seen) {
        return Ok(());
    }
    // RFC 5044 §7.1.2 rules 5 and 8: any other key closes the connection. The other role's key has
    // an error of its own.
    match seen.len() {
        KEY_LEN if seen == other => Err(StartupError::WrongRole),
        _ if other.starts_with(seen) => Ok(()),
        _ => Err(StartupError::BadKey),
    }
}

fn key(kind: FrameKind) -> &'static [u8; KEY_LEN] {
    match kind {
        FrameKind::Request => REQUEST_KEY,
        FrameKind::Reply => REPLY_KEY,
    }
}

// RFC 5044 §7.1.1: a revision that is not supported closes the connection. Revision 0 is the RDMA
// Consortium's.
fn parse_revision(octet: u8) -> Result<Revision, StartupError> {
    match octet {
        1 => Ok(Revision::One),
        2 => Ok(Revision::Two),
        other => Err(StartupError::Revision(other)),
    }
}

// RFC 5044 §7.1.2 rule 9: a `PD_Length` beyond the limit is refused before any private data is
// waited for.
fn check_pd_length(pd_length: u16, enhanced: bool) -> Result<usize, StartupError> {
    match usize::from(pd_length) {
        len if len > MAX_PRIVATE_DATA => Err(StartupError::PrivateDataTooLong { len: pd_length }),
        // RFC 6581 §6: with S the private data begins with the four octets.
        len if enhanced && len < EnhancedData::LEN => Err(StartupError::PrefixMissing),
        len => Ok(len),
    }
}

const HEADER_LEN: usize = 20;
const KEY_LEN: usize = 16;
const REQUEST_KEY: &[u8; KEY_LEN] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; KEY_LEN] = b"MPA ID Rep Frame";

/// Offsets of the fields behind the key (RFC 5044 §7.1.1, figure 8).
mod field {
    pub(super) const FLAGS: usize = 16;
    pub(super) const REVISION: usize = 17;
    pub(super) const PD_LENGTH: usize = 18;
}

/// Bits of the octet at [`field::FLAGS`].
mod flag {
    pub(super) const MARKERS: u8 = 0x80;
    pub(super) const CRC: u8 = 0x40;
    pub(super) const REJECTED: u8 = 0x20;
    pub(super) const ENHANCED: u8 = 0x10;
    pub(super) const LARGE_FPDUS: u8 = 0x08;
}

/// Control flags of RFC 6581 §9: A and B stand above IRD, C and D above ORD.
mod control {
    pub(super) const A: u16 = 0x8000;
    pub(super) const B: u16 = 0x4000;
    pub(super) const C: u16 = 0x8000;
    pub(super) const D: u16 = 0x4000;
    pub(super) const DEPTH: u16 = 0x3fff;
}
