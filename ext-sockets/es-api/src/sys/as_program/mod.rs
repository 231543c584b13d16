//! The socket calls of this process as its program finds them, none of which waits.
//!
//! The ES-API and the threads act for a program and make the same calls as the program would make:
//! in the preloaded library its own functions ([`install`]), which serve a socket in any mode;
//! elsewhere the C library's.

mod accept;
mod calls;
mod lending;
mod memory;

use std::ffi::{c_int, c_void};

use libc::{msghdr, nfds_t, pollfd, sockaddr, socklen_t, ssize_t};
use once_cell::race::OnceBox;
use rddp_real::{self as real, Errno, Sends};

pub use accept::{AcceptAddr, Places};
pub use calls::{
    Address, accept, connect, file_length, is_ready, nonblocking, poll, read_at, receive, send, send_octets,
    socket_error, would_block,
};
pub(crate) use lending::{Loan, Outgoing, lend, lends, offer};
pub use memory::{Pieces, PollPlaces};

/// Socket calls, each with the contract of the C function of its name; and three of our own.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each is the C function of its name, but for those with a comment")]
pub struct Sockets {
    pub recvmsg: unsafe fn(c_int, *mut msghdr, c_int) -> ssize_t,
    pub sendmsg: unsafe fn(c_int, *const msghdr, c_int) -> ssize_t,
    pub connect: unsafe fn(c_int, *const sockaddr, socklen_t) -> c_int,
    pub accept4: unsafe fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int,
    pub poll: unsafe fn(*mut pollfd, nfds_t, c_int) -> c_int,
    pub fcntl: unsafe fn(c_int, c_int, usize) -> c_int,
    pub getsockopt: unsafe fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    /// Returns whether a send of so many octets may lend its memory to the peer.
    pub lends: fn(c_int, usize) -> bool,
    /// Lends the memory of sends until there are no more; returns whether the next octets are to be
    /// sent by a call.
    pub lend: fn(c_int, &mut dyn Sends<'_>) -> Result<bool, Errno>,
    /// Says that receives of so many octets wait.
    pub offer: fn(c_int, usize),
}

static INSTALLED: OnceBox<Sockets> = OnceBox::new();

/// The C library's functions.
static C_LIBRARY: Sockets = Sockets {
    recvmsg: real::recvmsg,
    sendmsg: real::sendmsg,
    connect: real::connect,
    accept4: real::accept4,
    poll: real::poll,
    fcntl: real::fcntl,
    getsockopt: real::getsockopt,
    lends: |_, _| false,
    lend: |_, _| Ok(true),
    offer: |_, _| {},
};

/// Replaces the calls from now on. Only the first such call has an effect.
///
/// # Safety
/// Each keeps the contract of the C function of its name, from any thread.
pub unsafe fn install(sockets: Sockets) {
    let _ = INSTALLED.set(Box::new(sockets));
}

fn calls() -> &'static Sockets {
    INSTALLED.get().unwrap_or(&C_LIBRARY)
}
