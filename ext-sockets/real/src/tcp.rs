//! Checks of the kind of socket that a descriptor is.

use std::ffi::c_int;
use std::time::Duration;

use rddp_stream::{Calls, Errno, SameErrno};

/// The functions that this crate has found. None of those called here sleeps.
const CALLS: Calls = super::calls(no_others);

fn no_others() -> Option<Duration> {
    None
}

/// Returns the state of a TCP socket, as `tcp_info` numbers it; `None` for any other descriptor.
/// Leaves errno as it was.
pub fn tcp_state(fd: c_int) -> Option<u8> {
    let _same = SameErrno::here();
    CALLS.tcp_state(fd)
}

/// Returns whether a TCP socket has the peer's FIN, or no connection any more. Leaves errno as it
/// was.
pub fn has_peers_fin(fd: c_int) -> bool {
    tcp_state(fd).is_some_and(rddp_stream::tcp_state::has_peers_fin)
}

/// Dissolves a connection, so that the socket can be connected again. Leaves errno as it was.
pub fn disconnect(fd: c_int) {
    let _same = SameErrno::here();
    CALLS.disconnect(fd);
}

/// Returns whether `fd` is an MPTCP socket, which can carry no FPDUs: its octets come by several
/// connections.
pub fn is_mptcp(fd: c_int) -> bool {
    super::int_option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Some(libc::IPPROTO_MPTCP)
}

/// Checks that `fd` is a TCP socket, so that DDPMODE can be set on it.
///
/// # Errors
/// Those of [`state_of_tcp`].
pub fn is_tcp(fd: c_int) -> Result<(), Errno> {
    state_of_tcp(fd).map(drop)
}

/// Returns the state of a TCP socket.
///
/// # Errors
/// The errno for a descriptor that is not a TCP socket.
pub fn state_of_tcp(fd: c_int) -> Result<u8, Errno> {
    // The kernel's errno where `fd` is not open or not a socket.
    let protocol =
        super::int_option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL).ok_or_else(|| super::why_no_socket(fd))?;
    // A raw socket may have TCP's protocol number, and MPTCP answers TCP's options; TCP alone does
    // both.
    let state = (protocol == libc::IPPROTO_TCP).then(|| tcp_state(fd)).flatten();
    state.ok_or(Errno::UNSUPPORTED)
}
