//! The settings of a socket: what the program asked for, and the state that the socket has come to.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::time::Duration;

use rddp_es_api::progress::Progress;
use rddp_mpa::{Revision, RtrSet};
use rddp_rnic::Placement;
use rddp_stream::{Errno, Format, Gather, Options, Plain, PrivateData, Role};

use super::saved_options::SavedOptions;
use crate::sdp::SdpSettings;
use crate::{placement, startup};

/// The state of a socket's DDPMODE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum Mode {
    /// A TCP socket like any other.
    #[default]
    Off = 0,
    /// DDPMODE begins when the socket is connected, or with its accepted children.
    Asked = 1,
    /// Connected, or about to be. The first call that needs it does the startup of MPA, whose
    /// progress is part of the stream's state.
    Starting = 2,
    /// The connection carries FPDUs.
    On = 3,
    /// The socket is of no use any more; `DDP_MODE_INFO` gives the reason.
    Failed = 4,
}

/// The kind of a socket of ours; each is a type in [`kinds`](crate::kinds).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum KindId {
    /// TCP, and nothing else was asked for.
    #[default]
    Plain = 0,
    /// DDPMODE with a byte stream in FPDUs.
    Framed = 1,
    /// DDPMODE with RDMA operations.
    Raw = 2,
    /// A byte stream in the messages of SDP.
    Sdp = 3,
    /// A byte stream of SDP over an RDMA device.
    Device = 4,
    /// The kind of the tests.
    #[cfg(test)]
    Fake = 200,
}

impl KindId {
    /// Returns the kind that a value of `DDPMODE` asks for.
    pub fn of_ddpmode(value: c_int) -> Option<Self> {
        match value {
            1 => Some(KindId::Framed),
            2 => Some(KindId::Raw),
            3 => Some(KindId::Sdp),
            _ => None,
        }
    }

    /// Returns the kind of a socket whose stream has these options.
    pub fn of_stream(options: &Options) -> Self {
        match options.format {
            Format::Octets => KindId::Framed,
            Format::Sdp(_) => KindId::Sdp,
        }
    }

    /// Returns the kind with this discriminant.
    pub(super) fn numbered(number: u8) -> Self {
        match number {
            1 => KindId::Framed,
            2 => KindId::Raw,
            3 => KindId::Sdp,
            4 => KindId::Device,
            #[cfg(test)]
            200 => KindId::Fake,
            _ => KindId::Plain,
        }
    }

    /// Returns whether the program begins the startup by a call of its own. The options may be set
    /// until then.
    pub fn begins_by_call(self) -> bool {
        self == KindId::Raw
    }
}

/// The default time that a peer has to answer the startup. A busy server may take long to accept; a
/// half-open connection costs no more than its socket.
const STARTUP: Duration = Duration::from_secs(30);

/// The default time after which a peer that does not answer counts as a plain one, where that is
/// allowed.
pub const UNTIL_PLAIN: Duration = Duration::from_secs(2);

/// The settings and state of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The state of DDPMODE.
    pub mode: Mode,
    /// The kind that DDPMODE makes, or has made, of the socket.
    pub kind: KindId,
    /// The program has set `DDPMODE` to 0: plain TCP, whatever the policy says.
    pub stays_plain: bool,
    /// In raw mode: the socket has been made an endpoint.
    pub attached: bool,
    /// The role in the startup; `None`: the end that connects is the initiator.
    pub role: Option<Role>,
    /// CRCs are asked for.
    pub crc: bool,
    /// Markers are asked for.
    pub markers: bool,
    /// The number of RDMA Reads that the peer may have outstanding.
    pub ird: u16,
    /// The number of own RDMA Reads that may be outstanding.
    pub ord: u16,
    /// The messages that may be the first to a peer-to-peer responder (RFC 6581 §9), a set of
    /// `DDP_RTR_*`; none: client-server mode.
    pub rtr: u8,
    /// The largest Send of either end, in octets.
    pub largest_send: u32,
    /// The way in which FPDUs are gathered.
    pub gather: Gather,
    /// The party that makes progress in blocking calls; `None`: the process's default.
    pub progress: Option<Progress>,
    /// A peer that does not speak MPA gets plain TCP: the policy says `both`.
    pub plain_allowed: bool,
    /// The time limit of the startup; `None`: the process's default.
    pub startup: Option<Duration>,
    /// The private data of our Request or Reply.
    pub private_data: Option<Box<[u8]>>,
    /// The program's settings of SDP.
    pub sdp: SdpSettings,
    /// The level at which raw mode places what the peer sends; `None`: the process's default.
    pub placement: Option<Placement>,
    /// The program's values of TCP options that the stream acts on itself.
    pub saved: SavedOptions,
    /// The address that the program connected to.
    pub to: Option<SocketAddr>,
    /// The error that DDPMODE ended with; [`Errno::NONE`] where there was none.
    pub failure: Errno,
    /// The code of the Terminate that ended the connection, sent or received; 0: none.
    pub terminate: u16,
    /// The log has reported the end.
    pub end_told: bool,
    /// The log has the startup's success.
    pub framed_told: bool,
    /// A `connect` has not waited: `SO_ERROR` has its result.
    pub connects: bool,
    /// `SO_ERROR` has reported the error.
    pub error_told: bool,
}

impl Settings {
    /// The settings of a socket that the program has asked nothing of.
    pub const DEFAULT: Settings = Settings {
        mode: Mode::Off,
        kind: KindId::Plain,
        stays_plain: false,
        attached: false,
        role: None,
        crc: true,
        markers: false,
        ird: 32,
        ord: 32,
        rtr: 0b011,
        largest_send: 64 << 10,
        gather: Gather::Vectored,
        progress: None,
        plain_allowed: false,
        startup: None,
        private_data: None,
        sdp: SdpSettings::DEFAULT,
        placement: None,
        saved: SavedOptions::DEFAULT,
        to: None,
        failure: Errno::NONE,
        terminate: 0,
        end_told: false,
        framed_told: false,
        connects: false,
        error_told: false,
    };

    /// Returns the settings of a connection that was accepted on a socket with these.
    pub fn of_child(&self) -> Settings {
        match self.mode {
            // The policy does not apply to a connection that exists already.
            Mode::Off => Settings { kind: KindId::Plain, stays_plain: false, ..self.clone() },
            _ => Settings {
                mode: Mode::Starting,
                attached: false,
                role: Some(Role::Responder),
                failure: Errno::NONE,
                ..self.clone()
            },
        }
    }

    /// Returns whether blocking calls are made by the progress threads.
    pub fn is_threaded(&self) -> bool {
        self.progress.unwrap_or_else(Progress::of_process) == Progress::Threads
    }

    /// Returns how long the startup may take.
    pub fn startup_time(&self) -> Duration {
        let default = if self.plain_allowed { UNTIL_PLAIN } else { STARTUP };
        self.startup.or_else(startup::of_process).unwrap_or(default)
    }

    /// Returns the level at which raw mode places what the peer sends.
    pub fn placement(&self) -> Placement {
        self.placement.unwrap_or_else(placement::of_process)
    }

    /// Notes that DDPMODE has failed or ended, with this error.
    pub fn fail(&mut self, errno: Errno) {
        self.mode = Mode::Failed;
        self.failure = errno;
    }

    /// Returns the options of the stream; `by_default` is its role where the program has set none.
    pub fn options(&self, by_default: Role) -> Options {
        let has = |bit| self.rtr & bit != 0;
        let private_data = self.private_data.as_deref().unwrap_or_default();
        Options {
            plain: if self.plain_allowed { Plain::Allowed } else { Plain::Refused },
            crc: self.crc,
            markers: self.markers,
            ird: self.ird,
            ord: self.ord,
            peer_to_peer: self.rtr != 0,
            rtr: RtrSet { write: has(0b001), read: has(0b010), send: has(0b100) },
            max_send: self.largest_send,
            gather: self.gather,
            // Private data that is too long was refused when it was set.
            private_data: PrivateData::new(private_data, Revision::Two).unwrap_or(PrivateData::NONE),
            startup_timeout: self.startup_time(),
            format: if self.kind == KindId::Sdp { Format::Sdp(self.sdp.options()) } else { Format::Octets },
            ..Options::new(self.role.unwrap_or(by_default))
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::DEFAULT
    }
}
