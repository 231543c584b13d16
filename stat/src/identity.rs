//! Identities: what tells a connection from all others.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::counter::Counter;
use crate::layout::slot::{IDENTITY_LEN, PHASE_AT};
use crate::phase::Phase;

/// The kind of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ConnectionKind {
    /// A queue pair.
    #[default]
    Qp = 1,
    /// A byte stream of a program's own socket.
    Stream = 2,
    /// A byte stream that speaks SDP.
    Sdp = 3,
    /// A queue pair over plain TCP.
    Tcp = 4,
    /// A queue pair with records over TCP.
    Record = 5,
    /// A queue pair over UDP.
    Udp = 6,
}

impl ConnectionKind {
    /// Returns the name, as it is printed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ConnectionKind::Qp => "qp",
            ConnectionKind::Stream => "stream",
            ConnectionKind::Sdp => "sdp",
            ConnectionKind::Tcp => "tcp",
            ConnectionKind::Record => "record",
            ConnectionKind::Udp => "udp",
        }
    }

    /// Returns whether connections of this kind count this: streams have few counts, so that they
    /// cost them nothing.
    #[must_use]
    pub const fn counts(self, counter: Counter) -> bool {
        use Counter::{
            FpdusSent, OctetsReceived, OctetsSent, SendsReceived, SendsSent, TerminatesReceived,
            TerminatesSent,
        };
        let of_streams = matches!(
            counter,
            OctetsSent
                | OctetsReceived
                | FpdusSent
                | SendsSent
                | SendsReceived
                | TerminatesSent
                | TerminatesReceived
        );
        of_streams || !matches!(self, ConnectionKind::Stream | ConnectionKind::Sdp)
    }

    fn of(number: u8) -> Option<Self> {
        use ConnectionKind::{Qp, Record, Sdp, Stream, Tcp, Udp};
        [Qp, Stream, Sdp, Tcp, Record, Udp].into_iter().find(|kind| *kind as u8 == number)
    }
}

/// Values that a connection has from its beginning to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// A QP, or a stream.
    pub kind: ConnectionKind,
    /// True of the end that sent the Request of the startup.
    pub active: bool,
    /// The QP's number; 0 of a stream.
    pub number: u32,
    /// `SO_COOKIE` of the socket, by which `ss -e` names it; 0: not known.
    pub cookie: u64,
    /// The local address.
    pub local: Option<SocketAddr>,
    /// The peer's address.
    pub peer: Option<SocketAddr>,
    /// Nanoseconds from 1970 on to the beginning of the connection.
    pub since: u64,
}

impl Identity {
    /// Returns the words of a slot from [`IDENTITY`](crate::layout::slot::IDENTITY) on.
    #[must_use]
    pub fn words(&self, phase: Phase) -> [u64; IDENTITY_LEN] {
        let [local, peer] = [self.local, self.peer].map(words_of);
        let number = u64::from(self.number);
        let head = self.head(phase);
        [head, number, self.cookie, local[0], local[1], local[2], peer[0], peer[1], peer[2], self.since]
    }

    /// Returns the first of the words alone, which changes with the phase.
    #[must_use]
    pub fn head(&self, phase: Phase) -> u64 {
        u64::from(self.kind as u8) | u64::from(phase as u8) << PHASE_AT | u64::from(self.active) << ACTIVE_AT
    }

    /// Returns the identity and phase of a slot's words; `None` if the slot is nobody's, or of a
    /// kind that this version does not know.
    #[must_use]
    pub fn of_words(words: &[u64; IDENTITY_LEN]) -> Option<(Self, Phase)> {
        let [head, number, cookie, l0, l1, l2, p0, p1, p2, since] = *words;
        let identity = Identity {
            kind: ConnectionKind::of(head as u8)?,
            active: head >> ACTIVE_AT & 1 == 1,
            number: number as u32,
            cookie,
            local: address_of([l0, l1, l2]),
            peer: address_of([p0, p1, p2]),
            since,
        };
        Some((identity, Phase::of((head >> PHASE_AT) as u8)))
    }
}

/// The bit of the active end, in the word of the kind.
const ACTIVE_AT: u32 = 16;

const V4: u64 = 4;
const V6: u64 = 6;

/// Returns family, port and scope in one word, and the address in two.
fn words_of(address: Option<SocketAddr>) -> [u64; 3] {
    let Some(address) = address else { return [0; 3] };
    let (family, scope, octets) = match address {
        SocketAddr::V4(v4) => (V4, 0, u128::from(v4.ip().to_bits())),
        SocketAddr::V6(v6) => (V6, v6.scope_id(), v6.ip().to_bits()),
    };
    let head = family | u64::from(address.port()) << 16 | u64::from(scope) << 32;
    [head, (octets >> 64) as u64, octets as u64]
}

fn address_of([head, upper, lower]: [u64; 3]) -> Option<SocketAddr> {
    let port = (head >> 16) as u16;
    match head & 0xffff {
        V4 => Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(lower as u32)), port)),
        V6 => {
            let ip = Ipv6Addr::from_bits(u128::from(upper) << 64 | u128::from(lower));
            Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, (head >> 32) as u32)))
        }
        _ => None,
    }
}
