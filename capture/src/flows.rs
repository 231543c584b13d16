//! The connections of a capture: their addresses, and how far each direction has come.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::net::{SocketAddrAny, sockopt};

use crate::Direction;

/// The addresses of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
}

/// A connection. Its place in the table follows from the number that the kernel gives to a socket,
/// so that connections of about the same age have places of their own; one that comes to the place
/// of another starts anew.
pub(crate) struct Flow {
    /// The socket's number, or [`BUSY`].
    cookie: AtomicU64,
    /// Two addresses in two words each, and two ports in one.
    names: [AtomicU64; 5],
    /// Octets sent, then received; FINs count.
    octets: [AtomicU32; 2],
    /// Bits of directions that have ended.
    ended: AtomicU32,
    /// Plain TCP, and not iWARP.
    is_plain: AtomicBool,
}

const PLACES: usize = 8192;
/// Somebody writes the entry.
const BUSY: u64 = u64::MAX;

static FLOWS: [Flow; PLACES] = [const { Flow::new() }; PLACES];

/// Returns the connection of a socket. `None` if it is not one of TCP over IP, or was not connected
/// when it was seen first.
pub(crate) fn find(fd: BorrowedFd<'_>) -> Option<(&'static Flow, Names)> {
    let cookie = sockopt::socket_cookie(fd).ok()?;
    let flow = &FLOWS[(cookie % PLACES as u64) as usize];
    let seen = flow.cookie.load(Ordering::Acquire);
    if seen == cookie {
        return Some((flow, flow.names()));
    }
    let [local, peer] = [rustix::net::getsockname(fd).ok()?, rustix::net::getpeername(fd).ok()??];
    let names = Names { local: canonical(local)?, peer: canonical(peer)? };
    flow.take_over(seen, cookie, names).then_some((flow, names))
}

impl Flow {
    const fn new() -> Self {
        Flow {
            cookie: AtomicU64::new(0),
            names: [const { AtomicU64::new(0) }; 5],
            octets: [const { AtomicU32::new(0) }; 2],
            ended: AtomicU32::new(0),
            is_plain: AtomicBool::new(false),
        }
    }

    /// Makes this the entry of another socket, unless somebody else does so.
    fn take_over(&self, seen: u64, cookie: u64, names: Names) -> bool {
        let taken = self.cookie.compare_exchange(seen, BUSY, Ordering::Acquire, Ordering::Relaxed);
        if seen == BUSY || taken.is_err() {
            return false;
        }
        let [local, peer] = [names.local, names.peer].map(|name| bits(name.ip()));
        let ports = u64::from(names.local.port()) << 16 | u64::from(names.peer.port());
        let words = [local.0, local.1, peer.0, peer.1, ports];
        for (at, word) in self.names.iter().zip(words) {
            at.store(word, Ordering::Relaxed);
        }
        self.octets.iter().for_each(|octets| octets.store(0, Ordering::Relaxed));
        self.ended.store(0, Ordering::Relaxed);
        self.is_plain.store(false, Ordering::Relaxed);
        self.cookie.store(cookie, Ordering::Release);
        true
    }

    fn names(&self) -> Names {
        let words = [0, 1, 2, 3, 4].map(|at| self.names[at].load(Ordering::Relaxed));
        let name = |high, low, port| {
            let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
            SocketAddr::new(ip.to_canonical(), port)
        };
        Names {
            local: name(words[0], words[1], (words[4] >> 16) as u16),
            peer: name(words[2], words[3], words[4] as u16),
        }
    }

    /// Counts octets of a direction. Returns the sequence number of the first, and that of the next
    /// one of the other direction.
    pub(crate) fn advance(&self, direction: Direction, octets: u32) -> (u32, u32) {
        let (own, other) = match direction {
            Direction::Sent => (0, 1),
            Direction::Received => (1, 0),
        };
        let seq = self.octets[own].fetch_add(octets, Ordering::Relaxed);
        (seq.wrapping_add(1), self.octets[other].load(Ordering::Relaxed).wrapping_add(1))
    }

    /// Marks the connection as one of plain TCP.
    pub(crate) fn set_plain(&self) {
        self.is_plain.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain.load(Ordering::Relaxed)
    }

    /// Notes the end of a direction. Returns whether it is new.
    pub(crate) fn end(&self, direction: Direction) -> bool {
        let bit = 1 << direction as u32;
        self.ended.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}

fn bits(ip: IpAddr) -> (u64, u64) {
    let ip = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    ((ip.to_bits() >> 64) as u64, ip.to_bits() as u64)
}

/// Returns a socket's address; one of IPv4 as such, also where a socket of IPv6 maps it, so that
/// each frame of a connection has the same.
fn canonical(name: SocketAddrAny) -> Option<SocketAddr> {
    let name = SocketAddr::try_from(name).ok()?;
    Some(SocketAddr::new(name.ip().to_canonical(), name.port()))
}
