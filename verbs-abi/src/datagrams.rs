//! Sockets of queue pairs of unreliable datagrams: a queue pair has one of its own, whose port its
//! number names.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU8, Ordering};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;
use rddp_fault_guard::sockets;
use rddp_rnic::{DatagramOptions, QueuePair};
use rddp_roce::own_address;
use socket2::SockRef;

use crate::errors::{Outcome, of_connect, of_io, of_ports};

/// Octets that wait in the socket for the program, if the system gives as much
/// (`net.core.rmem_max`, or to whoever has `CAP_NET_ADMIN`): what does not fit is lost.
const WAITING: usize = 8 << 20;

/// Datagrams that are dropped at most when a queue pair becomes ready to receive.
const OLD: usize = 1 << 16;

/// The socket of one queue pair, which keeps its port through all its states.
#[derive(Debug)]
pub(crate) struct Datagrams {
    socket: UdpSocket,
    number: u32,
}

impl Datagrams {
    pub(crate) fn open(address: IpAddr) -> Outcome<Self> {
        // The low octet tells it from queue pairs that have had the port before it.
        static NEXT: AtomicU8 = AtomicU8::new(0);
        let socket = UdpSocket::bind(own_address(address, 0)).map_err(|error| of_ports(of_io(&error)))?;
        let of = || -> std::io::Result<SocketAddr> {
            socket.set_nonblocking(true)?;
            if setsockopt(&socket, RcvBufForce, &WAITING).is_err() {
                SockRef::from(&socket).set_recv_buffer_size(WAITING)?;
            }
            socket.local_addr()
        };
        let port = of().map_err(|error| of_io(&error))?.port();
        sockets::note(socket.as_fd());
        let low = NEXT.fetch_add(1, Ordering::Relaxed) ^ std::process::id() as u8;
        Ok(Datagrams { socket, number: u32::from(port) << 8 | u32::from(low) })
    }

    /// Returns the number of the queue pair.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Has the queue pair send and receive. What came before is lost, as on an adapter.
    pub(crate) fn begin(&self, queues: &QueuePair) -> Outcome<()> {
        let _ = (0..OLD).take_while(|_| self.socket.recv(&mut []).is_ok()).count();
        let socket = self.socket.try_clone().map_err(|error| of_io(&error))?;
        queues.bind_to(socket, &DatagramOptions::default()).map_err(|error| of_connect(&error))
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        sockets::forget(self.socket.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_may_have_a_larger_buffer_than_others_has_it() {
        let datagrams = Datagrams::open(std::net::Ipv4Addr::LOCALHOST.into()).unwrap();
        let has = SockRef::from(&datagrams.socket).recv_buffer_size().unwrap();
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        if setsockopt(&other, RcvBufForce, &WAITING).is_err() {
            SockRef::from(&other).set_recv_buffer_size(WAITING).unwrap();
        }
        assert_eq!(has, SockRef::from(&other).recv_buffer_size().unwrap());
    }
}
