//! States of a TCP socket, as `tcp_info` numbers them.

/// The socket is connected.
pub const TCP_ESTABLISHED: u8 = 1;
/// The socket is being connected.
pub const TCP_SYN_SENT: u8 = 2;
/// The socket is being connected by the peer.
pub const TCP_SYN_RECV: u8 = 3;
/// The socket is neither connected nor listening.
pub const TCP_CLOSE: u8 = 7;
/// The socket listens.
pub const TCP_LISTEN: u8 = 10;

/// Returns whether a socket in this state has the peer's FIN, or no connection any more.
#[must_use]
pub const fn has_peers_fin(state: u8) -> bool {
    matches!(state, TCP_TIME_WAIT | TCP_CLOSE | TCP_CLOSE_WAIT | TCP_LAST_ACK | TCP_CLOSING)
}

const TCP_TIME_WAIT: u8 = 6;
const TCP_CLOSE_WAIT: u8 = 8;
const TCP_LAST_ACK: u8 = 9;
const TCP_CLOSING: u8 = 11;
