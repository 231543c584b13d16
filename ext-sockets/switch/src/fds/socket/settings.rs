//! What a program asked of a socket, and what became of it.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::time::Duration;

use rddp_es_api::progress::Progress;
use rddp_mpa::{Revision, RtrSet};
use rddp_stream::{Errno, Gather, Options, Plain, PrivateData, Role};

use super::saved_options::SavedOptions;
use crate::startup;

/// How far a socket has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum Mode {
    /// A TCP socket like any other.
    #[default]
    Off = 0,
    /// DDPMODE begins when it is connected, or with its accepted children.
    Asked = 1,
    /// Connected, or about to be; the startup of MPA is done by the first call that needs it. How far that has come the
    /// stream knows.
    Starting = 2,
    /// Its octets travel in FPDUs.
    On = 3,
    /// It is of no use any more; `DDP_MODE_INFO` says why.
    Failed = 4,
}

/// What stands behind a socket of ours: each is a type in [`kinds`](crate::kinds).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum KindId {
    /// TCP, and nothing else was asked for.
    #[default]
    Plain = 0,
    /// A byte stream in FPDUs.
    Framed = 1,
    /// RDMA itself.
    Raw = 2,
}

impl KindId {
    /// Returns the kind that a value of `DDPMODE` asks for.
    pub fn of_ddpmode(value: c_int) -> Option<Self> {
        match value {
            1 => Some(KindId::Framed),
            2 => Some(KindId::Raw),
            _ => None,
        }
    }

    /// Returns the kind with this discriminant.
    pub(super) fn numbered(number: u8) -> Self {
        match number {
            1 => KindId::Framed,
            2 => KindId::Raw,
            _ => KindId::Plain,
        }
    }

    /// Returns whether the startup waits for a call of the program's that begins it, so that the
    /// options may be set until then.
    pub fn begins_by_call(self) -> bool {
        self == KindId::Raw
    }
}

/// How long a peer may take to answer the startup. It may be a server that has much to do before it accepts; a half-open connection
/// costs no more than its socket.
const STARTUP: Duration = Duration::from_secs(30);

/// And how long until one that does not is taken for a plain one, where that is allowed.
pub const UNTIL_PLAIN: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How far it has come.
    pub mode: Mode,
    /// What DDPMODE makes, or has made, of it.
    pub kind: KindId,
    /// The program has said `DDPMODE` 0: plain TCP, whatever the policy says.
    pub stays_plain: bool,
    /// In raw mode: it has been made an endpoint.
    pub attached: bool,
    /// `None`: who connects is the initiator.
    pub role: Option<Role>,
    /// Whether we ask for CRCs.
    pub crc: bool,
    /// Whether we ask for markers.
    pub markers: bool,
    /// RDMA Reads of the peer that may be outstanding.
    pub ird: u16,
    /// Own RDMA Reads that may be outstanding.
    pub ord: u16,
    /// What may be the first message to a peer-to-peer responder (RFC 6581 §9): a set of `DDP_RTR_*`; none: client-server.
    pub rtr: u8,
    /// The largest Send of either end, in octets.
    pub largest_send: u32,
    /// How FPDUs are gathered.
    pub gather: Gather,
    /// Who makes progress in blocking calls; `None`: as the process has it.
    pub progress: Option<Progress>,
    /// A peer that does not speak MPA gets plain TCP: the policy's `both`.
    pub plain_allowed: bool,
    /// Time limit of the startup; `None`: as the process has it.
    pub startup: Option<Duration>,
    /// What goes with our Request or Reply.
    pub private_data: Option<Box<[u8]>>,
    /// Options of TCP sockets that mean something else to a framed stream.
    pub saved: SavedOptions,
    /// Where it was to be connected to.
    pub to: Option<SocketAddr>,
    /// Why it failed; [`Errno::NONE`] where it has not, or ended in good order.
    pub failure: Errno,
    /// The code of the Terminate that ended it, sent or received; 0: none.
    pub terminate: u16,
    /// The log has told it.
    pub end_told: bool,
    /// `SO_ERROR` has told it.
    pub error_told: bool,
}

impl Settings {
    /// What a socket has that nobody asked anything of.
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
        saved: SavedOptions::DEFAULT,
        to: None,
        failure: Errno::NONE,
        terminate: 0,
        end_told: false,
        error_told: false,
    };

    /// What a connection has that was accepted on a socket with these.
    pub fn of_child(&self) -> Settings {
        match self.mode {
            // The policy has nothing to say of what is connected already.
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

    /// Whether calls that wait are for the threads.
    pub fn is_threaded(&self) -> bool {
        self.progress.unwrap_or_else(Progress::of_process) == Progress::Threads
    }

    /// Returns how long the startup may take.
    pub fn startup_time(&self) -> Duration {
        let default = if self.plain_allowed { UNTIL_PLAIN } else { STARTUP };
        self.startup.or_else(startup::of_process).unwrap_or(default)
    }

    /// DDPMODE has ended before it began.
    pub fn fail(&mut self, errno: Errno) {
        self.mode = Mode::Failed;
        self.failure = errno;
    }

    /// What the stream is to be, `by_default` in this role.
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
            // Longer ones were refused when they were set.
            private_data: PrivateData::new(private_data, Revision::Two).unwrap_or(PrivateData::NONE),
            startup_timeout: self.startup_time(),
            ..Options::new(self.role.unwrap_or(by_default))
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::DEFAULT
    }
}
