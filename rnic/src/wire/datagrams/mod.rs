//! UDP (RFC 768): each request is one datagram to an address of its own, and each that arrives
//! completes one receive, in which it has its source in front ([`rddp_rdma::Datagram`]). Unreliable
//! datagrams of verbs are such datagrams, too, whose first octets name the QP they are for.
//!
//! Neighbours in the send queue that have one address and one size leave as one bundle
//! (`UDP_SEGMENT`), and bundles are received whole (`UDP_GRO`), several by one call. The network's
//! word that an address cannot be reached becomes an event, and never changes the state: it comes
//! late, about any datagram, and may be a lie.

mod notices;
mod read;
mod unreliable;
mod write;

use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::Domain;

use self::notices::Limit;
use self::read::Staged;
use crate::conn::socket::DeviceSocket;
use crate::mem::set_option;
use crate::queues::options::{DatagramOptions, Transport, WithoutReceive};

/// The state of a bound QP.
#[derive(Debug)]
pub(crate) struct Datagrams {
    options: DatagramOptions,
    /// The address that the socket is bound to.
    local: SocketAddr,
    /// The socket is one of IPv6, to which addresses of IPv4 are mapped.
    is_ipv6: bool,
    /// Buffers of the next call that receives.
    buffers: usize,
    /// Datagrams that came with others and have found no receive yet.
    staged: VecDeque<Staged>,
    /// The socket's own count of what it has dropped, as it was last told.
    overflow: u32,
    events: Limit,
    /// Destinations to which no bundle goes.
    without_bundles: HashSet<SocketAddr>,
    /// Requests of a bundle that was refused: they go one by one.
    alone: usize,
    /// Memory of the last bundle has gone bad: requests go one by one until that is found.
    one_by_one: bool,
    /// Calls in a row that have only told of earlier datagrams.
    told: u32,
}

impl Datagrams {
    /// Prepares a socket that is bound.
    pub(super) fn new(
        socket: &DeviceSocket,
        mut options: DatagramOptions,
        transport: Transport,
    ) -> io::Result<Self> {
        if transport == Transport::Unreliable {
            options.without_receive = WithoutReceive::Drop;
        }
        let is_ipv6 = socket.domain()? == Domain::IPV6;
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let local = SocketAddr::new(local.ip().to_canonical(), local.port());
        prepare(socket.as_fd(), is_ipv6, local.ip(), options)?;
        let (staged, without_bundles) = Default::default();
        Ok(Datagrams {
            options,
            local,
            is_ipv6,
            buffers: 1,
            staged,
            overflow: 0,
            events: Limit::default(),
            without_bundles,
            alone: 0,
            one_by_one: false,
            told: 0,
        })
    }
}

/// Sets the options of a socket.
fn prepare(fd: BorrowedFd<'_>, is_ipv6: bool, local: IpAddr, options: DatagramOptions) -> io::Result<()> {
    // A kernel without bundles gives datagrams one by one.
    let _ = set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
    set_option(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
    let discover = if options.fragment { libc::IP_PMTUDISC_DONT } else { libc::IP_PMTUDISC_DO };
    let mut of_ipv4 = vec![(libc::IP_MTU_DISCOVER, discover), (libc::IP_RECVERR, 1), (libc::IP_RECVTOS, 1)];
    let mut of_ipv6 =
        vec![(libc::IPV6_MTU_DISCOVER, discover), (libc::IPV6_RECVERR, 1), (libc::IPV6_RECVTCLASS, 1)];
    if local.is_unspecified() {
        of_ipv4.push((libc::IP_PKTINFO, 1));
        of_ipv6.push((libc::IPV6_RECVPKTINFO, 1));
    }
    // A socket of IPv6 has the options of IPv4, too, for addresses that it maps.
    for (name, value) in of_ipv4 {
        let set = set_option(fd, libc::IPPROTO_IP, name, value);
        if !is_ipv6 {
            set?;
        }
    }
    if is_ipv6 {
        for (name, value) in of_ipv6 {
            set_option(fd, libc::IPPROTO_IPV6, name, value)?;
        }
    }
    Ok(())
}
