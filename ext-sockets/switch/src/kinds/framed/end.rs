//! `close` of a framed socket: the stream's octets go to TCP before the last holder's last number
//! is closed.

use std::ffi::c_short;
use std::time::Duration;

use rddp_real as real;
use rddp_stream::{self as stream, Leaving, Linger, Phase, Role, State};

use super::{Framed, Protocol};
use crate::kinds::kind::{Close, Farewell, Obligation};
use crate::kinds::linger;
use crate::socket::UNTIL_PLAIN;
use crate::wait::{self, Elsewhere};
use crate::{exit, switch};

/// The time for which a peer may read nothing before the octets that wait for it are given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time for which the peer's part of a startup is waited for, so that the end of the stream can
/// follow it.
const UNTIL_STARTED: Duration = Duration::from_secs(2);

impl<P: Protocol> Close for Framed<P> {
    fn close(&self) -> bool {
        let Some(state) = self.held.state() else {
            wait::gone(&self.held, Elsewhere::Unknown);
            return false;
        };
        if stream::is_confined() {
            // This process may make none of the calls that follow; its parent finishes the stream.
            return false;
        }
        if !self.held.is_under(self.fd) {
            // The number was closed without our notice, and is something else's by now: nothing can
            // be sent any more.
            self.release(state);
            return false;
        }
        self.tell_silent(state);
        self.expect_programs();
        if !self.finishes_at_once(state) {
            wait::withdraw(&self.held, self.fd);
            return true;
        }
        self.release_and_wake(state);
        false
    }

    #[cold]
    fn linger(&self) -> bool {
        let (Some(state), Some(stream)) = (self.held.state(), self.stream()) else { return true };
        let is_left = P::leave(&stream).is_some();
        let finished = match self.linger_time(state) {
            // TCP waits until all is acknowledged, and not for the peer's end.
            Some(time) if is_left && !exit::has_begun() => {
                P::leave_within(&stream, time) && self.is_left() != Some(false)
            }
            Some(time) if !exit::has_begun() => stream.finish(time),
            _ => false,
        };
        if finished {
            let _no_signals = real::NoSignals::here();
            self.release_and_wake(state);
        }
        finished
    }

    fn lost(&self) {
        if let Some(state) = self.held.state() {
            self.release(state);
        }
    }

    fn ends_at_exit(&self) -> bool {
        self.held.state().is_some()
    }

    fn farewell(&self) -> Option<Farewell> {
        P::leave(&self.stream()?).map(|progress| match progress {
            Leaving::Sending => Farewell::Sending,
            Leaving::Sent => Farewell::Sent,
            Leaving::Over => Farewell::Over,
        })
    }

    fn finishes(&self) -> bool {
        self.stream().is_none_or(|stream| stream.finishes())
    }

    fn interest_to_finish(&self) -> c_short {
        self.stream().map_or(0, |stream| stream.interest_to_pay())
    }

    /// Returns the time limit: TCP's where octets wait that the program was told are sent,
    /// otherwise the startup's.
    fn patience(&self) -> Duration {
        let (Some(state), Some(stream)) = (self.held.state(), self.stream()) else { return Duration::ZERO };
        // The peer of a connection of SDP returns credits while it reads, and then ends its own
        // direction. A kernel without the socket would answer by a reset, and what it has not read
        // would be lost.
        if P::ENDS_BY_MESSAGE && state.phase() == Phase::Framed {
            return PATIENCE;
        }
        match (stream.owes(), stream.startup_time()) {
            // A server that has long not answered will probably not answer now.
            (false, Some(_)) if state.options().role == Role::Initiator => {
                UNTIL_STARTED.saturating_sub(state.startup_age().unwrap_or_default())
            }
            (false, _) => UNTIL_STARTED,
            (true, Some(left)) => left + linger::A_WHILE,
            (true, None) => PATIENCE,
        }
    }

    fn silence(&self) -> Duration {
        let silent = self.held.state().filter(|state| state.phase() == Phase::Starting);
        silent.and_then(State::startup_age).unwrap_or_default()
    }

    /// Returns the obligation for octets of sends that have returned (SDP): the peer is to read
    /// them from memory of the stream, or to get them from there.
    fn obligation(&self) -> Option<Obligation> {
        P::has_obligation(&self.stream()?).then_some(Obligation { within: Some(linger::A_WHILE) })
    }

    fn meet_obligation(&self) {
        if let Some(stream) = self.stream() {
            P::meet_obligation(&stream);
        }
    }

    fn loses_octets(&self) -> bool {
        self.held.state().is_some_and(State::waits)
    }

    fn end(&self, by_reset: bool) {
        let Some(state) = self.held.state() else { return };
        // This process may give up its own octets. The connection stays while another process has
        // it, or if the program has received it again.
        let is_ours_alone = self.held.is_closed() && !state.is_held_by_others();
        if by_reset && is_ours_alone && self.held.is_under(self.fd) {
            self.stream().into_iter().for_each(|stream| stream.abandon());
        }
        self.release_and_wake(state);
    }
}

impl<P: Protocol> Framed<P> {
    /// Reports once that a server has not answered for so long that it is probably a plain one.
    pub(super) fn tell_silent(&self, state: &State) {
        if self.until_told(state) == Some(Duration::ZERO) {
            let mut settings = self.held.settings();
            if let Some(peer) = settings.to
                && !std::mem::replace(&mut settings.end_told, true)
            {
                switch::tell_silent(peer, settings.kind);
            }
        }
    }

    /// Returns the time after which a server that has not answered by then is reported.
    pub(super) fn until_told(&self, state: &State) -> Option<Duration> {
        if state.phase() != Phase::Starting || state.options().role != Role::Initiator {
            return None;
        }
        let age = state.startup_age()?;
        let settings = self.held.settings();
        let is_to_tell = settings.to.is_some() && !settings.plain_allowed && !settings.end_told;
        is_to_tell.then(|| UNTIL_PLAIN.saturating_sub(age))
    }

    /// Returns the time of `SO_LINGER` as the program has it, if it is on.
    fn linger_time(&self, state: &State) -> Option<Duration> {
        let Some(Linger { on, seconds }) = state.linger() else { return real::linger(self.fd) };
        (on != 0).then(|| Duration::from_secs(seconds.unsigned_abs().into()))
    }

    /// Does as much as is possible at once for an unfinished stream. Returns whether it is
    /// finished.
    fn finishes_at_once(&self, state: &State) -> bool {
        let Some(stream) = self.stream() else { return true };
        let concerns_us = || stream.owes() || !state.is_left_to_others();
        if !stream.is_unfinished() || !concerns_us() {
            return true;
        }
        // With a linger time of zero the kernel resets the connection.
        self.linger_time(state) == Some(Duration::ZERO) || self.is_left().unwrap_or_else(|| stream.finishes())
    }

    /// Returns whether the kernel may close a connection of SDP that the program has closed. `None`
    /// where there is none to be left.
    fn is_left(&self) -> Option<bool> {
        let farewell = self.farewell()?;
        Some(linger::is_said(farewell) && real::unacknowledged(self.fd) == 0)
    }

    /// Releases the state, and wakes a thread that sleeps in a call: it would sleep on and hold a
    /// connection that no number leads to any more. A socket that has come back in a message since
    /// it was closed stays.
    fn release_and_wake(&self, state: &State) {
        if self.held.is_closed() && !self.release(state) && self.held.has_sleepers() {
            real::shut_both(self.fd);
        }
    }

    /// Releases the state. Returns whether another process holds it. This process does until the
    /// last call on the socket has ended.
    fn release(&self, state: &State) -> bool {
        let is_held = state.is_held_by_others();
        wait::gone(&self.held, if is_held { Elsewhere::Held } else { Elsewhere::Gone });
        is_held
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use rddp_stream::{Caller, Octets, Options};

    use super::*;
    use crate::kinds::store;
    use crate::socket::{self, KindId, Mode, Settings};

    /// A program that a child runs has the connection before it can register as a holder of it.
    #[test]
    fn a_closed_connection_is_not_shut_down_while_no_call_sleeps() {
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
        Framed::<Octets>::new(held.clone(), fd).release_and_wake(held.state().unwrap());
        of_a_child.write_all(b"x").expect("the child may write");
        assert_eq!(client.peek(&mut [0; 2]).unwrap(), 1);
    }

    #[test]
    fn a_closed_connection_is_shut_down_while_a_call_sleeps() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let fd = server.as_raw_fd();
        let held = socket::adopt(fd, responder()).unwrap();
        held.set_state(store::create(held.cookie(), &Options::new(Role::Responder)).unwrap());
        let call = held.work_on(fd).unwrap();
        call.sleeps();
        let closed = socket::forget_before_close(fd).unwrap();
        Framed::<Octets>::new(closed.clone(), fd).release_and_wake(closed.state().unwrap());
        assert_eq!(client.peek(&mut [0; 2]).unwrap(), 0, "the peer sees the end");
        assert!(!call.wakes());
    }

    fn responder() -> Settings {
        Settings {
            mode: Mode::Starting,
            kind: KindId::Framed,
            role: Some(Role::Responder),
            ..Settings::default()
        }
    }
}
