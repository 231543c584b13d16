//! The kernel's list of TCP connections of this network namespace, asked for by netlink.

use std::collections::HashMap;
use std::io::{self, Read};
use std::time::Duration;

use nix::libc;
use socket2::{Domain, Protocol, Socket, Type};

use super::tcp_info::{Message, TcpSocket, messages, request};

/// Returns what TCP knows of each connection, by the cookie of its socket. What the kernel does not
/// tell is missing: counters of rddp are worth showing without.
pub(super) fn connections() -> HashMap<u64, TcpSocket> {
    let mut all = HashMap::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        if let Err(error) = ask(family as u8, &mut all) {
            tracing::info!(family, %error, "the kernel does not list its TCP connections");
        }
    }
    all
}

fn ask(family: u8, all: &mut HashMap<u64, TcpSocket>) -> io::Result<()> {
    let protocol = Protocol::from(libc::NETLINK_SOCK_DIAG);
    let mut socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::DGRAM, Some(protocol))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(&request(family))?;
    let mut datagram = vec![0; DATAGRAM];
    loop {
        let len = socket.read(&mut datagram)?;
        if len == 0 {
            return Ok(());
        }
        for message in messages(&datagram[..len]) {
            match message {
                Message::Connection(cookie, socket) => drop(all.insert(cookie, socket)),
                Message::Done => return Ok(()),
                Message::Refused(errno) => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }
}

/// Time that the kernel has for a part of its answer, which it has at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// Octets of a part of the answer: the kernel sends no longer ones to who reads so many.
const DATAGRAM: usize = 64 * 1024;
