//! TCP sockets as every connection wants them.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};

/// A TCP socket for `addr`'s family, its segments limited to `mss`.
pub(super) fn tcp_socket(addr: &SocketAddr, mss: Option<u16>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(*addr), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(mss) = mss {
        socket.set_tcp_mss(u32::from(mss))?;
    }
    Ok(socket)
}

/// FPDUs are written when they are due: nothing is to be held back by Nagle's algorithm.
pub(super) fn no_delay(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)
}

/// Writes all of `octets`. A program that has not switched `SIGPIPE` off is not ended by a peer that has gone.
pub(super) fn write_all(socket: &Socket, mut octets: &[u8]) -> io::Result<()> {
    while !octets.is_empty() {
        match socket.send_with_flags(octets, libc::MSG_NOSIGNAL) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => octets = &octets[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
