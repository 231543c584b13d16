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
