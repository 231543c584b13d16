//! Plain TCP for a peer that speaks nothing else: the policy's `both`, on the side that connects.
//!
//! The peer has read our Request as its client's first octets, so that connection is spoiled. The socket is connected again, as it
//! is: dissolved by the stream when it gave up, it is the same socket under the same number, in the same epoll sets. That the
//! peer is a plain one is remembered for a time, so that the next `connect` does not try.

use std::ffi::c_short;

use rddp_real as real;
use rddp_stream::{Errno, Phase, Role, Why};

use super::Framed;
use crate::{plain_peers, switch};

/// An error of the stream: where it means a plain peer, and that is allowed, the connection is made anew.
pub(super) fn after(framed: &Framed, error: Errno) -> Errno {
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

/// Whether the stream has ended in a way that means a plain peer, and plain TCP is allowed.
pub(super) fn is_due(framed: &Framed) -> bool {
    let Some(state) = framed.held.state() else { return false };
    let options = state.options();
    options.role == Role::Initiator
        && framed.held.settings().plain_allowed
        && state.ended().is_some_and(|end| matches!(end.why, Why::NotMpa | Why::NoAnswer))
}

/// What a wait tells of a socket that has just been connected again.
pub(super) fn revents(framed: &Framed, want: c_short) -> c_short {
    match connect_again(framed) {
        // Connected it is writable; the next wait asks the kernel.
        Ok(()) => 0,
        Err(_) => want & (libc::POLLIN | libc::POLLOUT) | libc::POLLERR,
    }
}

/// Makes the connection anew, in plain TCP.
pub(super) fn connect_again(framed: &Framed) -> Result<(), Errno> {
    let state = framed.state()?;
    let to = framed.held.settings().to.ok_or(Errno::PROTOCOL)?;
    plain_peers::remember(to);
    switch::tell_plain(to);
    real::disconnect(framed.fd);
    state.stay_plain();
    framed.become_plain();
    debug_assert_eq!(state.phase(), Phase::Plain);
    match real::connect_to(framed.fd, to) {
        Err(Errno(libc::EINPROGRESS) | Errno::INTERRUPTED) => Ok(()),
        result => result,
    }
}
