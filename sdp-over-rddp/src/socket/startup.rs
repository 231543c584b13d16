//! Hello and `HelloAck` in the private data of a connection's startup.

use core::net::SocketAddr;
use core::num::NonZeroU8;

use crate::socket::Config;
use crate::transport::Carrier;
use crate::wire::{Addresses, Capabilities, FormatError, Hello, HelloAck, Version};

/// The end of a connection that a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that connected.
    Active,
    /// The end that accepted.
    Passive,
}

/// Properties of the peer, from its Hello or `HelloAck`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// This end's role.
    pub role: Role,
    /// Private receive buffers of the peer: the first credits.
    pub peer_bufs: u16,
    /// Octets of each, the base header included.
    pub peer_size: u32,
    /// Adverts that the peer takes at a time.
    pub peer_adverts: u8,
    /// The peer is this program.
    pub is_rddp: bool,
}

/// Returns the private data of a request to connect: a Hello, compact where there is no room for a
/// whole one. `None` where no form fits.
#[must_use]
pub fn hello(config: &Config, local: SocketAddr, remote: SocketAddr, carrier: Carrier) -> Option<Vec<u8>> {
    let hello = Hello {
        version: Version::OURS,
        bufs: config.buffers,
        capabilities: Capabilities::default(),
        max_adverts: NonZeroU8::new(config.max_adverts).unwrap_or(NonZeroU8::MIN),
        desired_remote_size: config.buffer_size,
        local_size: config.buffer_size,
        port: local.port(),
        addresses: addresses(local, remote),
        ext_max_adverts: 0,
        rddp: true,
    };
    match carrier.request_room() {
        room if room >= Hello::LEN => Some(hello.octets().to_vec()),
        room if room >= Hello::COMPACT_LEN => Some(hello.compact_octets().to_vec()),
        _ => None,
    }
}

/// Reads the private data of a request to connect, and returns those of the reply.
///
/// # Errors
/// They are no good Hello: the connection is to be rejected.
pub fn answer(
    config: &Config,
    private_data: &[u8],
    local: SocketAddr,
    remote: SocketAddr,
    carrier: Carrier,
) -> Result<(Agreed, Vec<u8>), FormatError> {
    let hello = read_hello(private_data, local, remote, carrier)?;
    let ack = HelloAck {
        version: Version::OURS,
        bufs: config.buffers,
        max_adverts: config.max_adverts.max(1),
        // What is really posted, whatever the peer wishes.
        actual_size: config.buffer_size,
        rddp: true,
    };
    let agreed = Agreed {
        role: Role::Passive,
        peer_bufs: hello.bufs,
        peer_size: hello.local_size,
        peer_adverts: hello.max_adverts.get(),
        is_rddp: hello.is_rddp(),
    };
    Ok((agreed, ack.octets().to_vec()))
}

/// Reads the private data of a reply.
///
/// # Errors
/// They are no good `HelloAck`: the connection is to be reset.
pub fn answered(private_data: &[u8], carrier: Carrier) -> Result<Agreed, FormatError> {
    // A carrier with a fixed length adds zeros, so the length says nothing there.
    let octets = if carrier.pads() { front(private_data, HelloAck::LEN) } else { private_data };
    let ack = HelloAck::parse(octets)?;
    Ok(Agreed {
        role: Role::Active,
        peer_bufs: ack.bufs,
        peer_size: ack.actual_size,
        peer_adverts: ack.max_adverts,
        is_rddp: ack.is_rddp(),
    })
}

fn read_hello(
    private_data: &[u8],
    local: SocketAddr,
    remote: SocketAddr,
    carrier: Carrier,
) -> Result<Hello, FormatError> {
    if carrier.request_room() < Hello::LEN {
        return Hello::parse_compact(private_data, addresses(remote, local));
    }
    Hello::parse(if carrier.pads() { front(private_data, Hello::LEN) } else { private_data })
}

fn front(octets: &[u8], len: usize) -> &[u8] {
    octets.get(..len).unwrap_or(octets)
}

/// Returns the addresses as a Hello has them: IPv4 if both are.
fn addresses(source: SocketAddr, destination: SocketAddr) -> Addresses {
    use core::net::IpAddr;
    match (source.ip().to_canonical(), destination.ip().to_canonical()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 { source, destination },
        (source, destination) => Addresses::V6 { source: v6(source), destination: v6(destination) },
    }
}

fn v6(ip: core::net::IpAddr) -> core::net::Ipv6Addr {
    match ip {
        core::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        core::net::IpAddr::V6(ip) => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> (SocketAddr, SocketAddr) {
        ("192.0.2.1:4000".parse().unwrap(), "192.0.2.2:5000".parse().unwrap())
    }

    #[test]
    fn both_ends_learn_buffers_and_adverts_through_every_carrier() {
        let (a, b) = ends();
        let (ours, theirs) = (Config::default(), Config { buffers: 7, max_adverts: 3, ..Config::default() });
        for carrier in [Carrier::Mpa, Carrier::EnhancedMpa, Carrier::Cm, Carrier::IpCm] {
            let mut request = hello(&ours, a, b, carrier).unwrap();
            assert!(request.len() <= carrier.request_room());
            if carrier.pads() {
                request.resize(carrier.request_room(), 0);
            }
            let (passive, mut reply) = answer(&theirs, &request, b, a, carrier).unwrap();
            assert_eq!((passive.peer_bufs, passive.peer_size), (ours.buffers, ours.buffer_size));
            if carrier.pads() {
                reply.resize(carrier.reply_room() + 8, 0);
            }
            let active = answered(&reply, carrier).unwrap();
            assert_eq!((active.peer_bufs, active.peer_adverts, active.is_rddp), (7, 3, true));
        }
    }

    #[test]
    fn a_bad_hello_is_refused() {
        let (a, b) = ends();
        let good = hello(&Config::default(), a, b, Carrier::Mpa).unwrap();
        // MID; Len; MaxAdverts; version; version of IP.
        for (at, value) in [(0, 1), (7, 93), (19, 0), (16, 0x32), (17, 0x50)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert!(answer(&Config::default(), &bad, b, a, Carrier::Mpa).is_err(), "octet {at}");
        }
        assert!(answer(&Config::default(), &good[..91], b, a, Carrier::Mpa).is_err());
        assert!(answer(&Config::default(), b"", b, a, Carrier::IpCm).is_err());
    }
}
