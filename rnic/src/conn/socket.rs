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
