//! A socket of the program whose octets travel in FPDUs: its calls, led to its
//! [stream](rddp_stream).
//!
//! | file | what |
//! |---|---|
//! | `begin.rs` | from `connect`, `accept` and `setsockopt` to a stream |
//! | `fall_back.rs` | plain TCP for a peer that speaks nothing else (the policy's `both`) |
//! | `ready.rs` | what waits ask, and steps that no call is at |
//! | `end.rs` | `close`, by the last holder and by others |
//! | `by_threads.rs` | calls that the threads of the report's design make |

mod begin;
mod by_threads;
mod end;
mod fall_back;
mod ready;

use std::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};

use rddp_real::{self as real, Value};
use rddp_stream::{Calls, Errno, Phase, State, Stream, Uncancelled, Why};

use super::kind::Kind;
use super::{progress_other_sockets, unsettled};
use crate::socket::{self, Care, Held, Mode, SavedOptions, Settings};
use crate::{switch, table, wait};

/// The calls of every stream. Before one sleeps, it sees to the sockets that no call is at.
static CALLS: Calls = real::calls(progress_other_sockets);

/// A framed socket, held for the length of a call.
#[derive(Debug)]
pub struct Framed {
    pub(super) held: Held,
    pub(super) fd: c_int,
}

impl Kind for Framed {
    #[inline]
    fn admit(held: Held, fd: c_int) -> Result<Self, Errno> {
        if held.state().is_some() { Ok(Framed { held, fd }) } else { Err(refusal(&held)) }
    }

    fn held(&self) -> &Held {
        &self.held
    }

    fn fd(&self) -> c_int {
        self.fd
    }

    fn recv(&self, pieces: &mut [IoSliceMut<'_>], flags: c_int) -> Result<usize, Errno> {
        if flags & libc::MSG_ERRQUEUE != 0 {
            return Err(Errno::PLAIN);
        }
        if self.is_for_threads(flags) {
            return self.recv_by_thread(pieces, flags);
        }
        self.call(|stream| stream.recv(pieces, flags))
    }

    fn send(&self, pieces: &[IoSlice<'_>], flags: c_int) -> Result<usize, Errno> {
        if flags & libc::MSG_ZEROCOPY != 0 && self.promises_completions() {
            return Err(Errno(libc::ENOBUFS));
        }
        if self.is_for_threads(flags) {
            return self.send_by_thread(pieces, flags);
        }
        self.call(|stream| stream.send(pieces, flags))
    }

    fn send_file(&self, from: c_int, offset: Option<&mut i64>, count: usize) -> Result<usize, Errno> {
        self.call(|stream| stream.send_file(from, offset, count))
    }

    fn shutdown(&self, how: c_int) -> Result<(), Errno> {
        self.call(|stream| stream.shutdown(how))
    }

    fn available(&self) -> Result<usize, Errno> {
        if !self.held.tells_edges() {
            return self.call(|stream| self.enough_in_front(&stream).map_or_else(|| stream.available(), Ok));
        }
        let octets = self.call(|stream| stream.available())?;
        if self.call(|stream| Ok(stream.has_more_than_a_look()))? {
            // A program that waits for edges takes what it reads beyond this number for new, and
            // waits for the edge of it.
            wait::tell_again(&self.held, self.fd);
        }
        Ok(octets)
    }

    fn unsent(&self) -> usize {
        self.held.state().map_or(0, |state| self.stream(state).unsent())
    }

    fn care(&self, level: c_int, name: c_int) -> Care {
        socket::care(level, name)
    }

    fn apply(&self, saved: &SavedOptions) {
        let Some(state) = self.held.state() else { return };
        state.set_receive_timeout(saved.rcvtimeo.duration());
        state.set_send_timeout(saved.sndtimeo.duration());
        state.set_low_water(saved.rcvlowat.unsigned_abs());
        let _ = self.stream(state).cork(saved.cork);
    }

    /// How far the startup has come the stream knows, which may have been in another process.
    fn describe(&self, settings: &mut Settings) {
        let Some(state) = self.held.state().filter(|_| settings.mode == Mode::Starting) else { return };
        settings.role.get_or_insert(state.options().role);
        match state.phase() {
            Phase::Starting => {}
            Phase::Framed => settings.mode = Mode::On,
            Phase::Plain => settings.mode = Mode::Off,
            Phase::Ended => {
                let end = state.ended();
                settings.fail(end.map_or(Errno::ABORTED, |end| end.errno));
                settings.terminate = end.map_or(0, |end| end.code.0);
            }
        }
    }

    fn peer_private_data(&self) -> Value {
        let data = self.held.state().and_then(State::peer_private_data);
        data.map_or(Value::octets(&[]), |data| Value::octets(data.as_ref()))
    }

    /// Of a stream that has ended: why, once. What the kernel says of the connection is a
    /// consequence. Of one that goes on: what a call of ours came upon, if any did.
    fn take_error(&self) -> Option<Errno> {
        let state = self.held.state()?;
        let Some(end) = state.ended() else { return state.take_pending() };
        if let Some(told) = state.take_startup_error() {
            return Some(told.err().unwrap_or(Errno::NONE));
        }
        let kernels = real::int_option(self.fd, libc::SOL_SOCKET, libc::SO_ERROR).map_or(Errno::NONE, Errno);
        let told = std::mem::replace(&mut self.held.settings().error_told, true);
        Some(if told { kernels } else { end.errno })
    }
}

impl Framed {
    fn state(&self) -> Result<&State, Errno> {
        self.held.state().ok_or(Errno::ABORTED)
    }

    /// Leads a call to the stream, and sees to what it changes. [`Errno::PLAIN`]: the call is the C library's.
    fn call<T>(&self, call: impl FnOnce(Stream<'_>) -> Result<T, Errno>) -> Result<T, Errno> {
        let state = self.state()?;
        // It was closed since it was looked up, whatever it is by now.
        let at_work = self.held.work_on(self.fd).ok_or(Errno::NO_DESCRIPTOR)?;
        let _uncancelled = Uncancelled::here();
        let (before, errno) = (state.condition(), Errno::last());
        let result = call(Stream::new(self.fd, state, &CALLS).called_by(&at_work));
        // What was tried and did not succeed is nothing to a program whose call does.
        errno.set_last();
        if self.held.is_closed() {
            return result.map_err(|_| Errno::NO_DESCRIPTOR);
        }
        let result = result.map_err(|error| self.reconsider(error));
        if state.condition() != before {
            self.changed(state);
        }
        result
    }

    #[cold]
    fn changed(&self, state: &State) {
        let _no_signals = real::NoSignals::here();
        if !state.condition().is_settled() {
            unsettled::note(&self.held, self.fd);
        }
        if self.held.is_watched() {
            wait::changed(&self.held, self.fd);
        }
    }

    /// What an error comes to: it may be another socket's by now, and it may be one that plain TCP does not have.
    #[cold]
    fn reconsider(&self, error: Errno) -> Errno {
        match error {
            Errno::NO_DESCRIPTOR | Errno(libc::ENOTSOCK) if !self.held.is_under(self.fd) => {
                socket::forget_stale(self.fd, &self.held);
                // What is known by now as another of ours is not for the C library.
                if table::entry(self.fd).is_none() { Errno::PLAIN } else { error }
            }
            Errno::WOULD_BLOCK | Errno::INTERRUPTED => error,
            _ => {
                let error = fall_back::after(self, error);
                self.tell_end();
                error
            }
        }
    }

    /// Says once, where the policy's log goes, why the stream has ended.
    fn tell_end(&self) {
        let Some(end) = self.held.state().and_then(State::ended) else { return };
        let mut settings = self.held.settings();
        if !std::mem::replace(&mut settings.end_told, true) {
            match settings.to {
                Some(peer) if end.why == Why::NoAnswer => switch::tell_silent(peer),
                Some(peer) => switch::tell_failed(format_args!("{peer}: {end}")),
                None => switch::tell_failed(end),
            }
        }
    }

    /// Returns the stream, for what is no call of the program's.
    fn stream<'a>(&self, state: &'a State) -> Stream<'a> {
        Stream::new(self.fd, state, &CALLS)
    }

    /// Returns whether `MSG_ZEROCOPY` has a meaning here: the program set `SO_ZEROCOPY` before it
    /// was refused, or on the listener. A program that the kernel tells ENOBUFS sends without the
    /// flag; one that is told nothing waits for a completion.
    fn promises_completions(&self) -> bool {
        real::int_option(self.fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY).is_some_and(|on| on != 0)
    }

    /// Returns the octets left of the FPDU in front, for a program that reads in pieces and asks
    /// after each whether there is more. Whoever asks twice with no read in between may wait for
    /// more than that, and so does whoever is told of little: to them all that is there is counted,
    /// for which all of it is looked at.
    fn enough_in_front(&self, stream: &Stream<'_>) -> Option<usize> {
        let left = stream.left_in_front();
        (self.held.tell_left(left) != left && left >= ENOUGH).then_some(left)
    }

    /// The connection goes on as plain TCP.
    fn become_plain(&self) {
        let mut settings = self.held.settings();
        if settings.mode == Mode::Starting {
            settings.mode = Mode::Off;
            settings.saved.restore(self.fd);
        }
    }
}

/// Returns why a socket that was to be framed has no stream.
#[cold]
fn refusal(held: &Held) -> Errno {
    let settings = held.settings();
    if settings.mode == Mode::Failed { settings.failure } else { Errno(libc::ENOTCONN) }
}

/// Octets left of an FPDU from which on they are told without a look at the FPDUs behind it.
const ENOUGH: usize = 512;
