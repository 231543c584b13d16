//! Settings of one end of a stream. They are fixed before the first octet, and the same for every
//! process that holds the socket.

mod gather;

use std::time::Duration;

use rddp_mpa::{Revision, RtrSet, StartupConfig};
use rddp_octets::HandshakeOptions;

use super::fields::{Field, fields};
use super::{AskedFormat, Errno, Format};

pub use gather::Gather;
pub(super) use gather::write_each;

/// The startup frame that this end sends (RFC 5044 §7.1: the ULP decides).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends the Request: the connecting end.
    Initiator,
    /// Sends the Reply: the accepting end.
    Responder,
}

/// Treatment of a peer that does not speak MPA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// The connection is reset.
    Refused,
    /// The connection goes on as plain TCP, if this end is the responder and has taken no octet. An
    /// initiator's Request has spoiled the connection; it can only be made anew. That also holds
    /// where the responder speaks MPA and rejects the Request.
    Allowed,
}

/// Octets for the peer's program in the startup frame.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PrivateData {
    octets: [u8; rddp_mpa::MAX_PRIVATE_DATA],
    len: u16,
}

impl PrivateData {
    pub(super) const FIELDS: &[Field] = fields!(PrivateData: octets, len);

    /// Private data of no octets.
    pub const NONE: Self = Self { octets: [0; rddp_mpa::MAX_PRIVATE_DATA], len: 0 };

    /// Makes private data of these octets.
    ///
    /// # Errors
    /// `EINVAL`: more than a startup frame of this revision can hold.
    pub fn new(data: &[u8], revision: Revision) -> Result<Self, Errno> {
        let max = match revision {
            Revision::One => rddp_mpa::MAX_PRIVATE_DATA,
            Revision::Two => rddp_mpa::MAX_ENHANCED_PRIVATE_DATA,
        };
        if data.len() > max {
            return Err(Errno::INVALID);
        }
        Ok(Self::cut(data))
    }

    /// Makes private data of as many of these octets as there is room for.
    pub(super) fn cut(data: &[u8]) -> Self {
        let mut octets = [0; rddp_mpa::MAX_PRIVATE_DATA];
        let len = data.len().min(octets.len());
        octets[..len].copy_from_slice(&data[..len]);
        Self { octets, len: len as u16 }
    }
}

impl AsRef<[u8]> for PrivateData {
    fn as_ref(&self) -> &[u8] {
        &self.octets[..usize::from(self.len).min(self.octets.len())]
    }
}

/// The settings of a stream.
///
/// ```
/// use rddp_stream::{Options, Role};
///
/// let options = Options { markers: true, ..Options::new(Role::Initiator) };
/// assert_eq!(options.max_send, 65536);
/// ```
#[derive(Clone, Copy)]
pub struct Options {
    /// Role of this end in the startup.
    pub role: Role,
    /// Treatment of a peer that does not speak MPA.
    pub plain: Plain,
    /// Initiator: the MPA revision of the Request. A responder answers in kind.
    pub revision: Revision,
    /// Ask for CRCs. They are used when either end asks.
    pub crc: bool,
    /// Ask the peer to send markers. They are always sent when the peer asks.
    pub markers: bool,
    /// Inbound Reads that may be outstanding. The stream exposes no memory; the peer's RTR may be a
    /// Read without octets.
    pub ird: u16,
    /// Outbound Reads that may be outstanding; the stream has at most one, its RTR.
    pub ord: u16,
    /// Initiator: a peer-to-peer connection (RFC 6581 §9.2), so that the responder may send as soon
    /// as it is made.
    pub peer_to_peer: bool,
    /// The kinds of RTR that are offered, or accepted.
    pub rtr: RtrSet,
    /// Octets of the longest Send of either end. A longer one from the peer ends the stream.
    pub max_send: u32,
    /// Way in which FPDUs are gathered.
    pub gather: Gather,
    /// Longest time for the startup.
    pub startup_timeout: Duration,
    /// With [`Plain::Allowed`]: the time that a responder waits for a Request before it takes the
    /// peer for a plain client that waits for the server to speak.
    pub plain_after: Duration,
    /// Private data for the peer's program. SDP has its own: with [`Format::Sdp`] there is no room
    /// for any, and [`Errno::INVALID`] tells so.
    pub private_data: PrivateData,
    /// Contents of the FPDUs.
    pub format: Format,
}

impl Options {
    /// Returns the defaults for a role.
    #[must_use]
    pub const fn new(role: Role) -> Self {
        Self {
            role,
            plain: Plain::Refused,
            revision: Revision::Two,
            crc: true,
            markers: false,
            ird: 32,
            ord: 32,
            peer_to_peer: true,
            rtr: RtrSet::SILENT,
            max_send: 64 * 1024,
            gather: Gather::Vectored,
            startup_timeout: Duration::from_secs(5),
            plain_after: Duration::from_secs(1),
            private_data: PrivateData::NONE,
            format: Format::Octets,
        }
    }

    /// Checks that the options go together.
    ///
    /// # Errors
    /// `EINVAL`: private data is the program's own only where FPDUs carry its octets alone.
    pub(super) fn check(&self) -> Result<(), Errno> {
        if self.format.allows(&self.private_data) { Ok(()) } else { Err(Errno::INVALID) }
    }

    /// Returns the options of a startup, after which FPDUs carry octets or messages, and the peer
    /// may have so many Reads outstanding.
    pub(super) fn handshake(&self, has_messages: bool, most_reads: u16) -> HandshakeOptions {
        HandshakeOptions {
            startup: self.startup(has_messages, most_reads),
            plain_peers: self.plain == Plain::Allowed,
            format_begins: has_messages,
        }
    }

    fn startup(&self, has_messages: bool, most_reads: u16) -> StartupConfig {
        StartupConfig {
            revision: self.revision,
            crc: self.crc,
            markers: self.markers,
            ird: self.ird.min(most_reads),
            ord: self.ord,
            max_ird: self.ird.max(MAX_IRD).min(most_reads),
            assumed_ird: 1,
            peer_to_peer: self.peer_to_peer,
            // A Send without octets would be a message without header.
            rtr: RtrSet { send: self.rtr.send && !has_messages, ..self.rtr },
            large_fpdus: false,
        }
    }
}

/// [`Options`] in the form that lies in a file, where another process may have written anything:
/// integers, any value of which is valid.
#[repr(C)]
pub(super) struct Asked {
    /// Time in nanoseconds.
    startup_timeout: u64,
    plain_after: u64,
    pub(super) max_send: u32,
    ird: u16,
    ord: u16,
    role: u8,
    plain: u8,
    revision: u8,
    gather: u8,
    /// Options that are true or false, one bit each.
    flags: u8,
    /// 0: the FPDUs carry the program's octets alone; 1: messages. A stream asks this once, when it
    /// is opened.
    pub(super) has_messages: u8,
    pub(super) private_data: PrivateData,
    pub(super) format: AskedFormat,
}

impl Asked {
    /// Offsets of the role, and of what FPDUs carry, which is 0 for octets alone.
    pub(super) const ROLE: usize = std::mem::offset_of!(Self, role);
    pub(super) const FORMAT: usize = std::mem::offset_of!(Self, has_messages);
    pub(super) const FIELDS: &[Field] = fields!(Asked: startup_timeout, plain_after, max_send, ird, ord,
        role, plain, revision, gather, flags, has_messages, private_data, format);

    pub(super) fn of(options: &Options) -> Self {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let Options { crc, markers, peer_to_peer, rtr, .. } = *options;
        let flags = [crc, markers, peer_to_peer, rtr.send, rtr.write, rtr.read];
        Self {
            startup_timeout: nanoseconds(options.startup_timeout),
            plain_after: nanoseconds(options.plain_after),
            max_send: options.max_send,
            ird: options.ird,
            ord: options.ord,
            role: options.role as u8,
            plain: options.plain as u8,
            revision: options.revision as u8,
            gather: options.gather as u8,
            flags: flags.into_iter().enumerate().map(|(bit, is)| u8::from(is) << bit).sum(),
            has_messages: options.format.kind(),
            format: AskedFormat::of(options.format),
            private_data: options.private_data,
        }
    }

    /// Returns whether the values are ones that [`of`](Self::of) makes.
    pub(super) fn is_sound(&self) -> bool {
        self.role <= Role::Responder as u8
            && self.plain <= Plain::Allowed as u8
            && [Revision::One as u8, Revision::Two as u8].contains(&self.revision)
            && Gather::of(self.gather) as u8 == self.gather
            && self.flags < 1 << 6
            && self.has_messages <= 1
            && self.format.is_sound()
            && usize::from(self.private_data.len) <= rddp_mpa::MAX_PRIVATE_DATA
    }

    pub(super) fn role(&self) -> Role {
        if self.role == Role::Initiator as u8 { Role::Initiator } else { Role::Responder }
    }

    pub(super) fn plain(&self) -> Plain {
        if self.plain == Plain::Allowed as u8 { Plain::Allowed } else { Plain::Refused }
    }

    /// Returns the average size of pieces up to which an FPDU is [copied](Gather::copies_up_to).
    #[inline]
    pub(super) fn copies_up_to(&self) -> usize {
        Gather::of(self.gather).copies_up_to()
    }

    /// Returns all options.
    pub(super) fn options(&self) -> Options {
        let is = |bit: u32| self.flags & 1 << bit != 0;
        Options {
            role: self.role(),
            plain: self.plain(),
            revision: if self.revision == Revision::One as u8 { Revision::One } else { Revision::Two },
            crc: is(0),
            markers: is(1),
            ird: self.ird,
            ord: self.ord,
            peer_to_peer: is(2),
            rtr: RtrSet { send: is(3), write: is(4), read: is(5) },
            max_send: self.max_send,
            gather: Gather::of(self.gather),
            startup_timeout: Duration::from_nanos(self.startup_timeout),
            plain_after: Duration::from_nanos(self.plain_after),
            private_data: self.private_data,
            format: self.format.with(self.has_messages),
        }
    }
}

/// Highest IRD to which it is raised when the peer wants more. None of its Reads can succeed, so
/// they cost no memory.
const MAX_IRD: u16 = 128;

#[cfg(test)]
mod tests {
    use rddp_sdp::wire::Mode;

    use super::*;
    use crate::sdp::{Copies, SdpOptions};

    fn is_same(one: &Options, other: &Options) -> bool {
        let startup = |options: &Options| format!("{:?}", options.startup(false, u16::MAX));
        let rest = |options: &Options| {
            let Options { role, plain, max_send, gather, startup_timeout, plain_after, .. } = *options;
            (role, plain, max_send, gather, startup_timeout, plain_after)
        };
        startup(one) == startup(other)
            && rest(one) == rest(other)
            && one.private_data.as_ref() == other.private_data.as_ref()
            && one.format == other.format
    }

    #[test]
    fn options_are_the_same_in_a_file() {
        let initiator = Options { ird: 7, crc: false, ..Options::new(Role::Initiator) };
        let responder = Options {
            plain: Plain::Allowed,
            revision: Revision::One,
            markers: true,
            peer_to_peer: false,
            rtr: RtrSet { send: true, write: false, read: true },
            gather: Gather::Cork,
            startup_timeout: Duration::new(3, 4),
            private_data: PrivateData::cut(b"some"),
            ..Options::new(Role::Responder)
        };
        let sdp = SdpOptions {
            bufs: 300,
            size: 8192,
            threshold: 5,
            sink_threshold: 6,
            copies: Copies::Private,
            mode: Some(Mode::Buffered),
            joins: true,
        };
        let sdp = Options { format: Format::Sdp(sdp), ..initiator };
        for options in [initiator, responder, sdp, Options { gather: Gather::Copy, ..initiator }] {
            let asked = Asked::of(&options);
            assert!(asked.is_sound() && is_same(&asked.options(), &options));
        }
    }
}
