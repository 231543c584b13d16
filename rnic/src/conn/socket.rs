//! The device's sockets, and TCP's options that every connection needs.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rddp_fault_guard::sockets;
use rddp_rdma::{ConnectOptions, Keepalive};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::sys::stay_plain;

/// A socket of the device: a connection, a listener, or one of UDP. A child of `fork` closes
/// its copies of all such sockets when it first uses the library.
#[derive(Debug)]
pub(crate) struct DeviceSocket(Socket);

impl DeviceSocket {
    pub(crate) fn new(socket: Socket) -> Self {
        sockets::note(socket.as_fd());
        DeviceSocket(socket)
    }

    /// Takes a TCP connection that the program has made, or is making. It gets the congestion
    /// control of `options`, and their keepalive unless it has one.
    pub(crate) fn of(socket: impl Into<OwnedFd>, options: &ConnectOptions) -> io::Result<Self> {
        let socket = Socket::from(socket.into());
        check_tcp(&socket)?;
        if socket.is_listener()? {
            return Err(invalid("this TCP socket listens: hand over a connection that it has accepted"));
        }
        control_congestion(&socket, options)?;
        if !socket.keepalive()? {
            keep_alive(&socket, options)?;
        }
        Ok(DeviceSocket::new(socket))
    }
}

impl Deref for DeviceSocket {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        &self.0
    }
}

impl AsFd for DeviceSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for DeviceSocket {
    fn drop(&mut self) {
        sockets::forget(self.0.as_fd());
    }
}

/// Makes a TCP socket for the family of `addr` with the MSS, congestion control and keepalive of
/// `options`. Connections that it accepts, if it listens, inherit them.
pub(super) fn tcp_socket(addr: &SocketAddr, options: &ConnectOptions) -> io::Result<DeviceSocket> {
    let socket = Socket::new(Domain::for_address(*addr), Type::STREAM, Some(Protocol::TCP))?;
    prepare(&socket, options)?;
    Ok(DeviceSocket::new(socket))
}

/// Takes a TCP socket of the program's own, which is neither connected nor listening, as
/// [`tcp_socket`] makes one.
pub(crate) fn adopt(socket: Socket, options: &ConnectOptions) -> io::Result<DeviceSocket> {
    check_tcp(&socket)?;
    prepare(&socket, options)?;
    Ok(DeviceSocket::new(socket))
}

/// Refuses what is no TCP socket. A descriptor that is no socket at all is refused by the kernel.
fn check_tcp(socket: &Socket) -> io::Result<()> {
    // An MPTCP socket that has fallen back is one of TCP by the time that it is accepted.
    if socket.r#type()? == Type::STREAM && socket.protocol()? == Some(Protocol::TCP) {
        return Ok(());
    }
    Err(invalid("this is no TCP socket: iWARP needs one"))
}

/// Refuses what is no UDP socket.
pub(super) fn check_udp(socket: &Socket) -> io::Result<()> {
    if socket.r#type()? == Type::DGRAM && socket.protocol()? == Some(Protocol::UDP) {
        return Ok(());
    }
    Err(invalid("this is no UDP socket"))
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn prepare(socket: &Socket, options: &ConnectOptions) -> io::Result<()> {
    stay_plain(socket.as_fd());
    if let Some(mss) = options.mss {
        socket.set_tcp_mss(u32::from(mss))?;
    }
    control_congestion(socket, options)?;
    keep_alive(socket, options)
}

/// Has TCP control congestion as `options` say.
pub(super) fn control_congestion(socket: &Socket, options: &ConnectOptions) -> io::Result<()> {
    let Some(name) = &options.congestion else { return Ok(()) };
    socket.set_tcp_congestion(name.as_bytes()).map_err(|error| {
        let why = match error.raw_os_error() {
            Some(libc::ENOENT | libc::EINVAL) => {
                "this host has none of that name: see tcp_available_congestion_control"
            }
            Some(libc::EPERM) => "this host allows it to root alone: see tcp_allowed_congestion_control",
            _ => return error,
        };
        io::Error::new(error.kind(), format!("congestion control {name:?}: {why} in /proc/sys/net/ipv4"))
    })
}

fn keep_alive(socket: &Socket, options: &ConnectOptions) -> io::Result<()> {
    if let Some(Keepalive { idle, interval, probes }) = options.keepalive {
        let keepalive = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(probes);
        socket.set_tcp_keepalive(&keepalive).map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => invalid(
                "ConnectOptions::keepalive is out of range: idle and interval take 1 to 32767 seconds, probes 1 to 127",
            ),
            _ => error,
        })?;
    }
    Ok(())
}

/// Switches Nagle's algorithm off: FPDUs are written when they are due, and TCP is not to hold them
/// back.
pub(super) fn no_delay(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)
}

/// Writes all of `octets`. Where the peer has left, no `SIGPIPE` ends the program.
pub(crate) fn write_all(socket: &Socket, mut octets: &[u8]) -> io::Result<()> {
    while !octets.is_empty() {
        match socket.send_with_flags(octets, libc::MSG_NOSIGNAL) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                rddp_capture::sent(socket, &octets[..count]);
                octets = &octets[count..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends as much of `octets` as TCP takes at once, and returns how much that is.
pub(crate) fn send_now(socket: &Socket, octets: &[u8]) -> io::Result<usize> {
    let count = socket.send_with_flags(octets, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)?;
    rddp_capture::sent(socket, &octets[..count]);
    Ok(count)
}

/// Ends what this end sends.
pub(crate) fn finish_sending(socket: &Socket) -> io::Result<()> {
    socket.shutdown(Shutdown::Write)?;
    rddp_capture::ended(socket, rddp_capture::Direction::Sent);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use socket2::SockAddr;

    use super::*;

    fn keepalive(socket: &Socket) -> Option<Keepalive> {
        socket.keepalive().unwrap().then(|| Keepalive {
            idle: socket.tcp_keepalive_time().unwrap(),
            interval: socket.tcp_keepalive_interval().unwrap(),
            probes: socket.tcp_keepalive_retries().unwrap(),
        })
    }

    fn congestion(socket: &Socket) -> String {
        let name = socket.tcp_congestion().unwrap();
        String::from_utf8(name).unwrap().trim_end_matches('\0').to_owned()
    }

    #[test]
    fn congestion_control_is_the_hosts_unless_it_is_asked_for() {
        let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let of_host = congestion(&socket());
        assert_eq!(congestion(&DeviceSocket::of(socket(), &ConnectOptions::default()).unwrap()), of_host);
        // Each kernel has it, and allows it to everybody.
        let options = ConnectOptions { congestion: Some("reno".into()), ..ConnectOptions::default() };
        assert_eq!(congestion(&DeviceSocket::of(socket(), &options).unwrap()), "reno");
        assert_eq!(congestion(&tcp_socket(&"127.0.0.1:0".parse().unwrap(), &options).unwrap()), "reno");
    }

    #[test]
    fn a_congestion_control_that_the_host_lacks_is_named() {
        for name in ["none-of-that-name", ""] {
            let options = ConnectOptions { congestion: Some(name.into()), ..ConnectOptions::default() };
            let error = tcp_socket(&"127.0.0.1:0".parse().unwrap(), &options).unwrap_err().to_string();
            assert!(error.contains(&format!("{name:?}: this host has none")), "{error}");
        }
    }

    /// RFC 5042 §6.4.2: keepalive bounds the time for which a host that has vanished holds a
    /// connection's memory.
    #[test]
    fn either_side_asks_whether_a_silent_peer_is_still_there() {
        let seldom = Keepalive { idle: Duration::from_secs(600), ..Keepalive::default() };
        for wanted in [Some(Keepalive::default()), Some(seldom), None] {
            let options = ConnectOptions { keepalive: wanted, ..ConnectOptions::default() };
            let addr: SocketAddr = "127.0.0.1:0".parse().unwrap();
            let [listener, active] = [0, 1].map(|_| tcp_socket(&addr, &options).unwrap());
            listener.bind(&SockAddr::from(addr)).unwrap();
            listener.listen(1).unwrap();
            active.connect(&listener.local_addr().unwrap()).unwrap();
            let (passive, _) = listener.accept().unwrap();
            assert_eq!([keepalive(&active), keepalive(&passive)], [wanted; 2]);
        }
    }

    /// Programs' own sockets are no exception, unless they are set already.
    #[test]
    fn a_socket_of_the_program_keeps_the_keepalive_that_it_has() {
        let options = ConnectOptions::default();
        let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        assert_eq!(keepalive(&DeviceSocket::of(socket(), &options).unwrap()), options.keepalive);
        let (own, second) = (socket(), Duration::from_secs(1));
        own.set_tcp_keepalive(&TcpKeepalive::new().with_time(second).with_interval(second).with_retries(2))
            .unwrap();
        let wanted = Keepalive { idle: second, interval: second, probes: 2 };
        assert_eq!(keepalive(&DeviceSocket::of(own, &options).unwrap()), Some(wanted));
    }
}
