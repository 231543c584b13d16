//! Settings of the Sockets Direct Protocol on a stream.

use rddp_sdp::wire::{Hello, Mode};

use crate::fields::{Field, fields};
use crate::options::PrivateData;

/// Contents of the FPDUs of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The program's octets alone.
    Octets,
    /// Messages of SDP.
    Sdp(SdpOptions),
}

impl Format {
    /// Returns 1 for messages, 0 for octets alone.
    pub(crate) fn kind(self) -> u8 {
        (self != Self::Octets).into()
    }

    /// Returns whether the startup has room for private data of the program: that of SDP is its
    /// own.
    pub(crate) fn allows(self, data: &PrivateData) -> bool {
        self == Self::Octets || data.as_ref().is_empty()
    }

    /// Returns whether the private data of a Request are those of another format.
    pub(crate) fn differs_from(self, request: &[u8]) -> bool {
        (self == Self::Octets) == Hello::parse(request).is_ok()
    }
}

/// Ways of octets between the program's memory and the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// Each octet is copied by the kernel alone, from and to the program's memory.
    Direct,
    /// Each octet is also copied to a private buffer at either end, as in the papers on SDP.
    Private,
}

/// The settings of SDP; each end has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SdpOptions {
    /// Private receive buffers (Bufs): 256 to 2000, and no more than hold 32 MiB together; others
    /// are brought there. 0: as many as hold 4 MiB in FPDUs of the path.
    pub bufs: u16,
    /// Octets of a private receive buffer, the base header included; 65,517 at most. 0: those of
    /// four FPDUs of the path.
    pub size: u32,
    /// Octets from which a send advertises the program's memory; `u64::MAX`: never.
    pub threshold: u64,
    /// Octets from which the room of a receive decides how much is Read of the peer's adverts, and
    /// is offered to be written to. Smaller ones are served from what is Read for all calls.
    pub sink_threshold: u64,
    /// Way of the octets.
    pub copies: Copies,
    /// Mode that this end asks for on the half on which it sends. `None`: Combined, and Pipelined
    /// for sends of several adverts, or where the peer would like it. Buffered is asked for once:
    /// a peer that wants adverts changes it to Combined.
    pub mode: Option<Mode>,
    /// Sends without credits leave their octets in memory of the stream, where short ones are
    /// joined, and return. Somebody has to call
    /// [`meet_obligation`](crate::sdp::Stream::meet_obligation) for them.
    pub joins: bool,
}

impl SdpOptions {
    /// The default settings.
    pub const DEFAULT: Self = Self {
        bufs: 0,
        size: 0,
        threshold: u64::MAX,
        sink_threshold: 16 << 10,
        copies: Copies::Direct,
        mode: None,
        joins: false,
    };
}

impl Default for SdpOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// [`SdpOptions`] in the form that lies in a file: integers, any value of which is valid.
#[repr(C)]
pub(crate) struct AskedFormat {
    threshold: u64,
    sink_threshold: u64,
    size: u32,
    bufs: u16,
    copies: u8,
    /// 0: none, else one more than the mode's number.
    mode: u8,
    joins: u8,
}

impl AskedFormat {
    pub(crate) const FIELDS: &[Field] =
        fields!(AskedFormat: threshold, sink_threshold, size, bufs, copies, mode, joins);

    pub(crate) fn of(format: Format) -> Self {
        let sdp = match format {
            Format::Sdp(sdp) => sdp,
            Format::Octets => SdpOptions::DEFAULT,
        };
        Self {
            threshold: sdp.threshold,
            sink_threshold: sdp.sink_threshold,
            size: sdp.size,
            bufs: sdp.bufs,
            copies: sdp.copies as u8,
            mode: sdp.mode.map_or(0, |mode| mode as u8 + 1),
            joins: sdp.joins.into(),
        }
    }

    /// Returns whether the values are ones that [`of`](Self::of) makes.
    pub(crate) fn is_sound(&self) -> bool {
        self.copies <= Copies::Private as u8 && self.mode <= Mode::Pipelined as u8 + 1 && self.joins <= 1
    }

    /// Returns whether sends without credits leave their octets in memory of the stream.
    pub(super) fn joins(&self) -> bool {
        self.joins == 1
    }

    /// Returns whether octets are copied to private buffers.
    #[inline]
    pub(crate) fn has_private_copies(&self) -> bool {
        self.copies == Copies::Private as u8
    }

    /// Returns the options of SDP, which are the defaults for a stream of octets.
    pub(crate) fn sdp(&self) -> SdpOptions {
        SdpOptions {
            bufs: self.bufs,
            size: self.size,
            threshold: self.threshold,
            sink_threshold: self.sink_threshold,
            copies: if self.has_private_copies() { Copies::Private } else { Copies::Direct },
            mode: mode_of(self.mode.into()),
            joins: self.joins(),
        }
    }

    /// Returns the format of FPDUs that have messages (1), or octets alone (0).
    pub(crate) fn with(&self, messages: u8) -> Format {
        if messages == 0 { Format::Octets } else { Format::Sdp(self.sdp()) }
    }
}

/// Returns the mode that a number in a state means: see [`AskedFormat`].
pub(crate) fn mode_of(number: u32) -> Option<Mode> {
    [Mode::Buffered, Mode::Combined, Mode::Pipelined].into_iter().find(|mode| *mode as u32 + 1 == number)
}
