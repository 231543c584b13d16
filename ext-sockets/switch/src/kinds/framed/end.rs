//! `close`: what is owed to TCP goes out before the last number of the last holder does.

use std::ffi::c_int;
use std::time::Duration;

use rddp_real as real;
use rddp_stream::{self as stream, Phase, Role, State, Stream};

use super::CALLS;
use crate::kinds::{linger, received};
use crate::socket::{self, Held, UNTIL_PLAIN};
use crate::{switch, table, wait};

/// `fd` is about to be closed. `close_raw` closes a socket in raw mode, by its cookie.
#[inline]
pub fn closing(fd: c_int, close_raw: fn(u64)) {
    let no_signals = real::NoSignals::here();
    wait::closing(fd);
    let Some(held) = socket::forget_before_close(fd) else { return };
    let before = real::errno();
    let lingers = last_number(&held, fd, close_raw);
    drop(no_signals);
    if lingers && !waits_until_finished(&held, fd) {
        linger::see_to(&held, fd);
    }
    real::set_errno(before);
}

/// Waits as `SO_LINGER` says, until a signal comes, with the signals as the program has them.
/// Whether nothing is left to do.
#[cold]
fn waits_until_finished(held: &Held, fd: c_int) -> bool {
    let Some(state) = held.state() else { return true };
    let finished = match real::linger(fd) {
        Some(time) if !linger::is_exit() => Stream::new(fd, state, &CALLS).finish(time),
        _ => false,
    };
    if finished {
        let _no_signals = real::NoSignals::here();
        leave_alone(held, state, fd);
    }
    finished
}

/// Ends the last number of a socket. Returns whether it owes something to TCP, and leaves when that
/// is done.
#[cold]
fn last_number(held: &Held, fd: c_int, close_raw: fn(u64)) -> bool {
    if held.settings().raw {
        close_raw(held.cookie());
    }
    let Some(state) = held.state() else {
        wait::gone(held, false);
        return false;
    };
    if stream::is_confined() {
        // It may make none of the calls that follow; its parent sees to them.
        return false;
    }
    if !held.is_under(fd) {
        // Closed behind our back, and the number is something else's by now: nothing can be sent any more.
        leave(held, state);
        return false;
    }
    tell_silent(held, state);
    if !finishes(state, fd) {
        wait::withdraw(held, fd);
        return true;
    }
    leave_alone(held, state, fd);
    false
}

/// A client gives up on a server that has said nothing for so long that a plain one is likely.
fn tell_silent(held: &Held, state: &State) {
    if state.phase() == Phase::Starting
        && state.options().role == Role::Initiator
        && state.startup_age().is_some_and(|age| age >= UNTIL_PLAIN)
    {
        let mut settings = held.settings();
        if let Some(peer) = settings.to.filter(|_| !settings.plain_allowed)
            && !std::mem::replace(&mut settings.end_told, true)
        {
            switch::tell_silent(peer);
        }
    }
}

/// Brings what is unfinished as far as it goes at once. Whether that is all there is to do.
fn finishes(state: &State, fd: c_int) -> bool {
    let stream = Stream::new(fd, state, &CALLS);
    let concerns_us = || stream.owes() || !state.is_held_by_others();
    if !stream.is_unfinished() || !concerns_us() {
        return true;
    }
    // With a time of nothing the kernel resets the connection.
    real::linger(fd) == Some(Duration::ZERO) || stream.finishes()
}

/// Leaves; and a thread that sleeps in a call is woken. It would sleep on, holding a connection that nobody can reach any more.
/// A socket that has come back in a message since it was closed stays.
pub(in crate::kinds) fn leave_alone(held: &Held, state: &State, fd: c_int) {
    if held.is_closed() && !leave(held, state) && held.has_sleepers() {
        real::shut_both(fd);
    }
}

/// A number that a socket is about to get.
#[derive(Debug)]
pub struct Expected {
    held: Held,
}

/// `fd`, if it is one of ours, is about to get another number.
#[inline]
pub fn expect_number(fd: c_int) -> Option<Expected> {
    socket::expect_number(fd).map(|held| Expected { held })
}

impl Expected {
    /// It is `to`, if nobody has put something else under the old number first.
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
        // All others were closed in the meantime, and there is nothing by which to send any more.
        if self.held.one_less()
            && let Some(state) = self.held.state()
        {
            leave(&self.held, state);
        }
    }
}

/// Returns whether another process holds it. This one does until the last call on it has ended.
fn leave(held: &Held, state: &State) -> bool {
    let is_held = state.is_held_by_others();
    wait::gone(held, is_held);
    is_held
}

/// Closes a number at the exit. The kernel would when the last connection is finished, and the peer
/// of that one may wait for the end of this one first.
fn end(fd: c_int, close_raw: fn(u64)) {
    let is_framed = socket::hold(fd).is_some_and(|held| held.state().is_some() && held.is_under(fd));
    closing(fd, close_raw);
    if is_framed {
        real::close_number(fd);
    }
}

/// The process is about to exit, which closes all that is open. `close_raw` as of [`closing`].
pub fn exiting(close_raw: fn(u64)) {
    if !socket::were_any() || stream::is_confined() {
        return;
    }
    linger::exit_begins();
    let open: Vec<c_int> = table::within(0, c_int::MAX).collect();
    open.into_iter().for_each(|fd| end(fd, close_raw));
    linger::finish();
    stream::leave_all();
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use rddp_stream::{Caller, Options};

    use super::*;
    use crate::kinds::store;
    use crate::socket::{Mode, Settings};

    /// A program that a child runs has the connection before it has begun, and so before it can say
    /// that it holds it.
    #[test]
    fn a_closed_connection_is_not_shut_for_who_looks_at_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let mut of_a_child = server.try_clone().unwrap();
        let fd = server.as_raw_fd();
        let looked_at = socket::adopt(fd, responder()).unwrap();
        looked_at.set_state(store::create(looked_at.cookie(), &Options::new(Role::Responder)).unwrap());
        let call = looked_at.work_on(fd).unwrap();
        call.sleeps();
        call.wakes();
        drop(call);
        let held = socket::forget_before_close(fd).unwrap();
        leave_alone(&held, held.state().unwrap(), fd);
        of_a_child.write_all(b"x").expect("the child may write");
        assert_eq!(client.peek(&mut [0; 2]).unwrap(), 1);
    }

    #[test]
    fn a_closed_connection_is_shut_for_a_call_that_sleeps() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let fd = server.as_raw_fd();
        let held = socket::adopt(fd, responder()).unwrap();
        held.set_state(store::create(held.cookie(), &Options::new(Role::Responder)).unwrap());
        let call = held.work_on(fd).unwrap();
        call.sleeps();
        let closed = socket::forget_before_close(fd).unwrap();
        leave_alone(&closed, closed.state().unwrap(), fd);
        assert_eq!(client.peek(&mut [0; 2]).unwrap(), 0, "the end");
        assert!(!call.wakes());
    }

    fn responder() -> Settings {
        Settings { mode: Mode::Starting, role: Some(socket::Role::Responder), ..Settings::default() }
    }
}
