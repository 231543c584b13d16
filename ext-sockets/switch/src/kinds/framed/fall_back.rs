//! Plain TCP for a peer that does not speak MPA: the policy's `both`, on the side that connects.
//!
//! The peer has taken our Request for its client's first octets, so that connection cannot be used.
//! The stream has dissolved it when it gave up; now the same socket is connected again, under the
//! same number and in the same epoll sets. The peer is remembered as a plain one for a time, so
//! that the next `connect` does not try MPA. A peer that has rejected the Request, and goes on in
//! plain TCP, is spoken to in the same connection.

use std::ffi::c_short;

use rddp_real as real;
use rddp_stream::{Errno, Phase, Role};

use super::{Framed, Protocol};

/// Returns the error for the program after the stream had `error`. If that means a plain peer, and
/// plain TCP is allowed, the socket is connected again.
pub(super) fn after<P: Protocol>(framed: &Framed<P>, error: Errno) -> Errno {
    if error == Errno::PLAIN {
        framed.become_plain();
        return error;
    }
    if !is_due(framed) {
        return error;
    }
    match connect_again(framed) {
        Ok(()) => Errno::PLAIN,
        Err(error) => error,
    }
}

/// Returns whether the stream's end means a plain peer, and plain TCP is allowed.
pub(super) fn is_due<P: Protocol>(framed: &Framed<P>) -> bool {
    let Some(state) = framed.held.state() else { return false };
    let options = state.options();
    options.role == Role::Initiator
        && framed.held.settings().plain_allowed
        && framed.stream().is_some_and(|stream| stream.is_peer_plain())
}

/// Returns the events of a wait on a socket that has just been connected again.
pub(super) fn revents<P: Protocol>(framed: &Framed<P>, want: c_short) -> c_short {
    match connect_again(framed) {
        // The socket is writable once it is connected; the next wait asks the kernel.
        Ok(()) => 0,
        Err(_) => want & (libc::POLLIN | libc::POLLOUT) | libc::POLLERR,
    }
}

/// Connects the socket again, in plain TCP.
pub(super) fn connect_again<P: Protocol>(framed: &Framed<P>) -> Result<(), Errno> {
    let state = framed.state()?;
    let to = framed.held.settings().to.ok_or(Errno::PROTOCOL)?;
    real::disconnect(framed.fd);
    state.stay_plain();
    framed.become_plain();
    debug_assert_eq!(state.phase(), Phase::Plain);
    match real::connect_to(framed.fd, to) {
        Err(Errno(libc::EINPROGRESS) | Errno::INTERRUPTED) => Ok(()),
        result => result,
    }
}
