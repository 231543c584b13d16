//! Socket activation: a listening socket that a service manager has opened (`sd_listen_fds(3)`).

use std::net::TcpListener;

use listenfd::ListenFd;
use rddp_command::failure::Failure;

/// Connections that the kernel keeps until they are accepted. The socket listens already, and
/// listening again sets this anew.
pub(super) const BACKLOG: u32 = 1024;

/// Returns the listening TCP socket that `LISTEN_FDS` and `LISTEN_PID` tell of, if they are for
/// this process.
pub(super) fn listener() -> Result<Option<TcpListener>, Failure> {
    let mut passed = ListenFd::from_env();
    if passed.len() > 1 {
        return Err(Failure::failed(format!("{} sockets were passed in LISTEN_FDS", passed.len()))
            .remedy("give the socket unit one ListenStream=; [::]:7177 is for IPv4 too"));
    }
    passed.take_tcp_listener(0).map_err(|error| {
        Failure::failed(format!("the socket that was passed in LISTEN_FDS: {error}"))
            .remedy("give the socket unit an address and a port: ListenStream=127.0.0.1:7177")
    })
}
