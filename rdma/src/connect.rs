//! Options of a connection.

use core::net::SocketAddr;
use core::time::Duration;

use rddp_mpa::{Revision, RtrSet};

/// Use of the iWARP port mapper of the peer's host, by the connecting side.
///
/// ```
/// use rddp_rdma::{ConnectOptions, PortMapper};
/// let options = ConnectOptions { port_mapper: PortMapper::Off, ..Default::default() };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortMapper {
    /// The port mapper is asked while TCP connects to the port as given, but never on loopback.
    /// The port that it names is used; the one as given if TCP is connected and no answer has come
    /// in as much time again.
    Auto,
    /// The port mapper is not asked.
    Off,
}

/// TCP's keepalive, in whole seconds from 1 to 32767, with 1 to 127 probes. A peer whose host has
/// vanished is noticed after `idle` and `probes` intervals, two minutes by default; without it, a
/// connection on which nothing is sent would last for ever. Linux probes only while nothing is
/// unacknowledged: for the other case see [`ConnectOptions::user_timeout`].
///
/// ```
/// use std::time::Duration;
/// use rddp_rdma::{ConnectOptions, Keepalive};
/// let keepalive = Keepalive { idle: Duration::from_secs(5), ..Default::default() };
/// let options = ConnectOptions { keepalive: Some(keepalive), ..Default::default() };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between two probes.
    pub interval: Duration,
    /// Probes without an answer, after which the connection is lost.
    pub probes: u32,
}

impl Default for Keepalive {
    fn default() -> Self {
        Keepalive { idle: Duration::from_secs(60), interval: Duration::from_secs(10), probes: 6 }
    }
}

/// Options with which either end makes a connection.
///
/// Some options exist in iWARP only (`revision` to `markers`, `assumed_ird` to `rtr`,
/// `speaks_first`, `large_fpdus`), and some only a software device can follow (`mss`,
/// `congestion`, `source`, `place_before_crc`, `nudge`). All devices take them, so that a program
/// needs no cases: a device that cannot follow an option ignores its default value and refuses to
/// connect with another.
///
/// ```
/// let options = rddp_rdma::ConnectOptions { markers: true, ird: 8, ..Default::default() };
/// assert!(options.crc);
/// ```
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Active side: the MPA revision to begin with.
    pub revision: Revision,
    /// Active side: try again with revision 1 when the peer refuses 2.
    pub fall_back: bool,
    /// Ask for CRC. It is used when either side asks (RFC 5044 §7.1).
    pub crc: bool,
    /// Ask the peer to send markers. They are always sent when the peer asks.
    pub markers: bool,
    /// Inbound Reads and atomics at a time.
    pub ird: u16,
    /// Outbound Reads and atomics at a time.
    pub ord: u16,
    /// Outbound Reads and atomics at a time if the startup negotiates none, as in
    /// revision 1; `ord` is the limit there, too. One too many ends the connection
    /// (RFC 5040 §6.1), and the number that peers of that revision accept is up to their
    /// programs: set 1, unless it is known to be more.
    pub assumed_ird: u16,
    /// Active side: a peer-to-peer connection (RFC 6581 §9.2).
    pub peer_to_peer: bool,
    /// The kinds of RTR that are offered, or accepted.
    pub rtr: RtrSet,
    /// Octets for the peer's program, in the Request or Reply.
    pub private_data: Vec<u8>,
    /// Time limit for TCP and the MPA startup together. One that is beyond what the clock can
    /// represent, such as `Duration::MAX`, is no limit.
    pub timeout: Duration,
    /// Places Writes before their CRC was checked. This is faster, and a corrupted header may
    /// overwrite live memory.
    pub place_before_crc: bool,
    /// Limits TCP's segment size.
    pub mss: Option<u16>,
    /// The congestion control of TCP, by one of the names in
    /// `/proc/sys/net/ipv4/tcp_allowed_congestion_control` (root may use each that the host has).
    /// `None`, the default: the host's. A connection that came to a listener begins with the
    /// listener's.
    pub congestion: Option<String>,
    /// Active side: the address of this end, with a port or 0 for any; without one, the system
    /// chooses. Other sockets that are bound to it must allow that (`SO_REUSEADDR`). Revision 1,
    /// where the peer refuses 2, goes from another port: that of a connection which this end has
    /// closed stays taken for a while. For connections that begin with an address.
    pub source: Option<SocketAddr>,
    /// Active side: a TCP connection that the peer's host refuses is tried again for that long,
    /// since a server may be about to listen. Zero, the default, reports the first refusal. For
    /// connections that begin with an address.
    pub retry_refused: Duration,
    /// TCP's probing of a silent peer; none when `None`. A socket of the program's own keeps the
    /// keepalive that it has.
    pub keepalive: Option<Keepalive>,
    /// TCP's user timeout (RFC 9293 §3.9.1): a peer whose TCP leaves octets unacknowledged, and is
    /// silent, for about so long is lost, a quarter of the time more or less, and no earlier than
    /// after three retransmissions. `None`, the default: the time after which `keepalive` gives up.
    /// Without either, TCP's own limit holds, some fifteen minutes.
    ///
    /// A peer that takes nothing is not lost: while its TCP says that the window is closed, it is
    /// there, and is waited for. One that vanishes then is noticed later, after three questions
    /// about the window without an answer, which TCP asks up to two minutes apart.
    pub user_timeout: Option<Duration>,
    /// Active side: use of the port mapper.
    pub port_mapper: PortMapper,
    /// Immediate Data and atomics (RFC 7306) are accepted from the peer.
    pub extensions: bool,
    /// Active side: while nothing has come from the peer, up to five Writes of no octets follow the
    /// first FPDU. A passive siw may leave that one unread until more arrives, and would wait for
    /// ever; other peers ignore them.
    pub nudge: bool,
    /// Passive side: messages may go before the first of the peer has come, unless the startup
    /// agreed on one. RFC 5044 §7.1.2 forbids it, as the peer may not expect FPDUs yet; for
    /// programs whose server speaks first, and peers that are known to take it.
    pub speaks_first: bool,
    /// Ask the peer, and consent if it asks, that FPDUs of up to 32 KiB are sent whatever the size
    /// of TCP segments, which the network card then cuts (segmentation offload). Off by default,
    /// and never used with markers.
    ///
    /// A deviation from RFC 5044 §4.5 and RFC 5041 §5.2: a receiver need not be able to reassemble
    /// more than a segment. The wish is one bit of the startup frames that RFC 5044 §7.1.1
    /// reserves, the one that siw's `try_gso` sets. siw takes any length, and as a responder it
    /// echoes reserved bits whether or not it sends large FPDUs itself. Another peer that echoes
    /// bits it does not know looks the same and may end the connection at the first large FPDU:
    /// set this only for peers that are known to take them.
    pub large_fpdus: bool,
}

impl ConnectOptions {
    /// Returns the user timeout that is in force, if there is one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rddp_rdma::ConnectOptions;
    /// let options = ConnectOptions::default();
    /// assert_eq!(options.user_timeout_in_force(), Some(Duration::from_secs(120)));
    /// ```
    pub fn user_timeout_in_force(&self) -> Option<Duration> {
        let of_keepalive =
            |Keepalive { idle, interval, probes }| idle.saturating_add(interval.saturating_mul(probes));
        self.user_timeout.or(self.keepalive.map(of_keepalive))
    }
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions {
            revision: Revision::Two,
            fall_back: true,
            crc: true,
            markers: false,
            ird: 32,
            ord: 32,
            assumed_ird: 1,
            peer_to_peer: true,
            rtr: RtrSet { send: false, write: true, read: true },
            private_data: Vec::new(),
            timeout: Duration::from_secs(5),
            place_before_crc: false,
            mss: None,
            congestion: None,
            source: None,
            retry_refused: Duration::ZERO,
            keepalive: Some(Keepalive::default()),
            user_timeout: None,
            port_mapper: PortMapper::Auto,
            extensions: true,
            nudge: true,
            speaks_first: false,
            large_fpdus: false,
        }
    }
}
