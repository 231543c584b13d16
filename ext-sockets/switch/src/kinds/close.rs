//! `close` of any kind of socket, the exit of the process, and numbers that a socket is about to
//! get.

use std::ffi::c_int;

use rddp_real as real;
use rddp_stream::{self as stream, SameErrno};

use super::kind::Ours;
use super::{device, linger, raw, received};
use crate::socket::{self, Held};
use crate::{exit, table, wait};

/// Closes the library's side of `fd`, a socket of ours, before the kernel closes the number.
#[cold]
pub fn closing(fd: c_int) {
    let _same = SameErrno::here();
    raw::queue_closing(fd);
    let no_signals = real::NoSignals::here();
    wait::closing(fd);
    wait::forget_edges(fd);
    let Some(held) = socket::forget_before_close(fd) else { return };
    let ours = Ours::new(held, fd);
    let is_unfinished = ours.close();
    drop(no_signals);
    if is_unfinished && !ours.linger() {
        linger::see_to(&ours);
    }
    linger::release(ours.held());
}

/// Closes a socket at the exit of the process. The kernel would do so only after the last
/// connection is finished, and the peer of that one may wait for the end of this one first. The
/// number stays taken: another thread may use it, and must not meet a new file there.
fn close_at_exit(fd: c_int, instead: Option<c_int>) {
    let ours = socket::hold(fd).map(|held| Ours::new(held, fd));
    let is_to_end = ours.is_some_and(|ours| ours.ends_at_exit() && ours.held().is_under(fd));
    closing(fd);
    if let Some(instead) = instead.filter(|_| is_to_end) {
        real::replace_number(fd, instead);
    }
}

/// Closes all sockets of ours, before the process exits.
pub fn exiting() {
    if !socket::were_any() || stream::is_confined() {
        return;
    }
    // While its threads may still use their own sockets.
    device::finish();
    exit::begin();
    socket::await_calls();
    let (open, instead): (Vec<c_int>, _) = (table::within(0, c_int::MAX).collect(), real::silent_number());
    open.into_iter().for_each(|fd| close_at_exit(fd, instead));
    linger::finish();
    exit::is_finished();
    stream::leave_all();
}

/// A number that a socket is about to get.
#[derive(Debug)]
pub struct Expected {
    held: Held,
    from: c_int,
}

/// Announces that `fd` is about to get another number, if it is a socket of ours.
#[inline]
pub fn expect_number(fd: c_int) -> Option<Expected> {
    socket::expect_number(fd).map(|held| Expected { held, from: fd })
}

impl Expected {
    /// Enters `to`, the number that the socket has got. If the program has put something else under
    /// the old number first, `to` is taken in like one that came in a message.
    pub fn is(self, to: c_int) {
        if self.held.is_under(to) {
            socket::share(&self.held, to);
        } else {
            received(to);
        }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        // All other numbers were closed in the meantime.
        if self.held.one_less() {
            Ours::new(self.held.clone(), self.from).lost();
        }
    }
}
