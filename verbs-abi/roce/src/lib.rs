//! Devices that look like RoCE, as far as they are known outside of programs: addresses and GUIDs
//! on this host, and the [`tree`] of files that tells of them.
//!
//! The library that makes the devices and the command that renders the tree agree by this crate.
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

pub mod tree;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use nix::ifaddrs::InterfaceAddress;

/// Capabilities of the port, as siw has them: a connection manager and device management.
pub const PORT_CAPABILITIES: u32 = 0x9_0000;

/// Indices at which a device has its GID. Scripts have the one that RoCE v2 has on many hosts, 1
/// or 3.
pub const GIDS: u32 = 8;

/// Returns the address of the interface of the default route, and else that of the loopback.
pub fn default_address() -> IpAddr {
    // To connect a UDP socket sends nothing: it is how the kernel is asked for a route. The
    // addresses are of documentation (RFC 5737, RFC 3849).
    let route = |from: SocketAddr, to: SocketAddr| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to).ok()?;
        socket.local_addr().ok().map(|here| here.ip())
    };
    let any = |ip: IpAddr| SocketAddr::from((ip, 0));
    let there = |ip: IpAddr| SocketAddr::from((ip, 9));
    let to_ipv6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    route(any(Ipv4Addr::UNSPECIFIED.into()), there(Ipv4Addr::new(192, 0, 2, 1).into()))
        .or_else(|| route(any(Ipv6Addr::UNSPECIFIED.into()), there(to_ipv6.into())))
        .unwrap_or(Ipv4Addr::LOCALHOST.into())
}

/// Returns the name of the interface that has an address.
pub fn interface_of(address: IpAddr) -> Option<String> {
    let has = |found: &InterfaceAddress| {
        let socket = found.address.as_ref();
        let ipv4 = socket.and_then(|socket| socket.as_sockaddr_in()).map(|socket| socket.ip().into());
        let ipv6 = socket.and_then(|socket| socket.as_sockaddr_in6()).map(|socket| socket.ip().into());
        ipv4.or(ipv6) == Some(address)
    };
    let mut found = nix::ifaddrs::getifaddrs().ok()?;
    found.find(has).map(|found| found.interface_name)
}

/// Returns a socket's own address. A link-local one has the scope of the interface that has it: by
/// that the kernel finds the peers of sockets that are bound to it (RFC 4007 §6).
pub fn own_address(address: IpAddr, port: u16) -> SocketAddr {
    let IpAddr::V6(ipv6) = address else { return SocketAddr::from((address, port)) };
    let scope = if ipv6.is_unicast_link_local() { scope_of(ipv6) } else { None };
    SocketAddrV6::new(ipv6, port, 0, scope.unwrap_or(0)).into()
}

fn scope_of(address: Ipv6Addr) -> Option<u32> {
    let of = |found: InterfaceAddress| {
        let socket = *found.address.as_ref()?.as_sockaddr_in6()?;
        (socket.ip() == address).then_some(socket.scope_id())
    };
    nix::ifaddrs::getifaddrs().ok()?.find_map(of)
}

/// Returns the GID of an address.
pub fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Returns a locally administered MAC address that stays the same on a host.
pub fn local_mac(index: u8) -> [u8; 6] {
    let id = std::fs::read("/etc/machine-id")
        .or_else(|_| std::fs::read("/proc/sys/kernel/hostname"))
        .unwrap_or_default();
    // FNV-1a: no secret, only spread over the octets.
    let hash = id.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(0x100_0000_01b3)
    });
    let [a, b, c, d, ..] = hash.to_be_bytes();
    [0x02, a, b, c, d, index]
}

/// Returns the modified EUI-64 of a MAC address (RFC 4291, appendix A).
pub fn eui_64(mac: [u8; 6]) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac;
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}
