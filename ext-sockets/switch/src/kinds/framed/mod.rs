//! A socket of the program whose octets travel in FPDUs: its calls, led to its [stream].
//!
//! | file | what |
//! |---|---|
//! | `begin.rs` | from `connect`, `accept` and `setsockopt` to a stream |
//! | `fall_back.rs` | plain TCP for a peer that speaks nothing else (the policy's `both`) |
//! | `end.rs` | `close`, by the last holder and by others |
//! | `by_threads.rs` | calls that the threads of the report's design make |

mod begin;
mod by_threads;
mod end;
mod fall_back;

use std::ffi::{c_int, c_short};
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use libc::POLLNVAL;
use rddp_real as real;
use rddp_stream::{self as stream, Calls, Errno, Phase, State, Stream, Uncancelled, Why};

use super::{progress_other_sockets, unsettled};
use crate::socket::{self, Held, Mode};
use crate::{switch, table, wait};

pub use begin::{Connecting, accepted, connecting, establish, keep};
pub(super) use end::leave_alone;
pub use end::{Expected, closing, exiting, expect_number};

/// The calls of every stream. Before one sleeps, it sees to the sockets that no call is at.
pub(super) static CALLS: Calls = real::calls(progress_other_sockets);

/// The process is about to give up most system calls: see [`stream::confine`]. What memory its
/// streams may need is had now.
pub fn confine() {
    socket::for_each(|held| held.state().into_iter().for_each(State::prepare_to_confine));
    stream::map_all();
    stream::confine();
}

/// A framed socket, held for the length of a call.
#[derive(Debug)]
pub struct Framed {
    pub(super) held: Held,
    pub(super) fd: c_int,
}

/// The socket under `fd`, if it is framed. `Err`: it was to be, and this is what every call on it answers.
#[inline]
pub fn of(fd: c_int) -> Result<Option<Framed>, Errno> {
    match socket::hold(fd) {
        // The kernel knows what a socket answers that was never connected.
        Some(held) if !held.is_still_tcp() => Framed::of_held(held, fd).map(Some),
        _ => Ok(None),
    }
}

impl Framed {
    #[cold]
    fn of_held(held: Held, fd: c_int) -> Result<Self, Errno> {
        if held.state().is_some() {
            return Ok(Framed { held, fd });
        }
        let settings = held.settings();
        if settings.raw {
            return Err(Errno::UNSUPPORTED);
        }
        Err(Errno(if settings.mode == Mode::Failed { settings.failure } else { libc::ENOTCONN }))
    }

    /// What is known of the socket.
    #[must_use]
    pub fn held(&self) -> &Held {
        &self.held
    }

    pub(super) fn state(&self) -> Result<&State, Errno> {
        self.held.state().ok_or(Errno::ABORTED)
    }

    /// Leads a call to the stream, and sees to what it changes. [`Errno::PLAIN`]: the call is the C library's.
    fn call<T>(&self, call: impl FnOnce(Stream<'_>) -> Result<T, Errno>) -> Result<T, Errno> {
        let state = self.state()?;
        // It was closed since it was looked up, whatever it is by now.
        let at_work = self.held.work_on(self.fd).ok_or(Errno::NO_DESCRIPTOR)?;
        let _uncancelled = Uncancelled::here();
        let (before, errno) = (state.condition(), real::errno());
        let result = call(Stream::new(self.fd, state, &CALLS).called_by(&at_work));
        // What was tried and did not succeed is nothing to a program whose call does.
        real::set_errno(errno);
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
        match error.0 {
            libc::EBADF | libc::ENOTSOCK if !self.held.is_under(self.fd) => {
                socket::forget_stale(self.fd, &self.held);
                // What is known by now as another of ours is not for the C library.
                if table::entry(self.fd).is_none() { Errno::PLAIN } else { error }
            }
            libc::EAGAIN | libc::EINTR => error,
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

    /// `recv` and its like: see [`Stream::recv`].
    ///
    /// # Errors
    /// As there.
    pub fn recv(&self, pieces: &mut [IoSliceMut<'_>], flags: c_int) -> Result<usize, Errno> {
        if flags & libc::MSG_ERRQUEUE != 0 {
            return Err(Errno::PLAIN);
        }
        if self.is_for_threads(flags) {
            return self.recv_by_thread(pieces, flags);
        }
        self.call(|stream| stream.recv(pieces, flags))
    }

    /// `send` and its like: see [`Stream::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&self, pieces: &[IoSlice<'_>], flags: c_int) -> Result<usize, Errno> {
        if flags & libc::MSG_ZEROCOPY != 0 && self.promises_completions() {
            return Err(Errno(libc::ENOBUFS));
        }
        if self.is_for_threads(flags) {
            return self.send_by_thread(pieces, flags);
        }
        self.call(|stream| stream.send(pieces, flags))
    }

    /// Returns whether `MSG_ZEROCOPY` has a meaning here: the program set `SO_ZEROCOPY` before it
    /// was refused, or on the listener. A program that the kernel tells ENOBUFS sends without the
    /// flag; one that is told nothing waits for a completion.
    fn promises_completions(&self) -> bool {
        real::int_option(self.fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY).is_some_and(|on| on != 0)
    }

    /// `sendfile`: see [`Stream::send_file`].
    ///
    /// # Errors
    /// As there.
    pub fn send_file(&self, from: c_int, offset: Option<&mut i64>, count: usize) -> Result<usize, Errno> {
        self.call(|stream| stream.send_file(from, offset, count))
    }

    /// `shutdown`.
    ///
    /// # Errors
    /// As of [`Stream::shutdown`].
    pub fn shutdown(&self, how: c_int) -> Result<(), Errno> {
        self.call(|stream| stream.shutdown(how))
    }

    /// `ioctl(FIONREAD)`.
    ///
    /// # Errors
    /// What a read would answer.
    pub fn available(&self) -> Result<usize, Errno> {
        if !self.held.tells_edges() {
            return self.call(|stream| self.enough_in_front(&stream).map_or_else(|| stream.available(), Ok));
        }
        let octets = self.call(|stream| stream.available())?;
        if self.call(|stream| Ok(stream.has_more_than_a_look()))? {
            // A program that waits for edges takes what it reads beyond this number for new, and waits for the edge of it.
            wait::tell_again(&self.held, self.fd);
        }
        Ok(octets)
    }

    /// Returns the octets left of the FPDU in front, for a program that reads in pieces and asks
    /// after each whether there is more. Whoever asks twice with no read in between may wait for
    /// more than that, and so does whoever is told of little: to them all that is there is counted,
    /// for which all of it is looked at.
    fn enough_in_front(&self, stream: &Stream<'_>) -> Option<usize> {
        let left = stream.left_in_front();
        (self.held.tell_left(left) != left && left >= ENOUGH).then_some(left)
    }

    /// Octets that wait for leave to send: see [`Stream::unsent`].
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.state().map_or(0, |state| Stream::new(self.fd, state, &CALLS).unsent())
    }

    /// What to ask the kernel for when the program wants to know of `want`.
    #[must_use]
    pub fn interest(&self, want: c_short) -> c_short {
        self.state().map_or(want, |state| Stream::new(self.fd, state, &CALLS).interest(want))
    }

    /// What of `want` holds for the program, the kernel having answered `ready`: see [`Stream::revents`].
    #[must_use]
    pub fn revents(&self, ready: c_short, want: c_short) -> c_short {
        let Ok(state) = self.state() else { return ready };
        let Some(at_work) = self.held.work_on(self.fd) else { return POLLNVAL };
        let _uncancelled = Uncancelled::here();
        let (before, errno) = (state.condition(), real::errno());
        let stream = Stream::new(self.fd, state, &CALLS).called_by(&at_work);
        let mut revents = stream.revents(ready, want);
        if state.phase() == Phase::Ended && fall_back::is_due(self) {
            revents = fall_back::revents(self, want);
        } else if state.phase() == Phase::Ended {
            self.tell_end();
        }
        if state.phase() == Phase::Plain {
            self.become_plain();
        }
        if state.condition() != before {
            self.changed(state);
        }
        real::set_errno(errno);
        revents
    }

    /// When to call [`revents`](Self::revents) at the latest, though the kernel says nothing.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        Stream::new(self.fd, self.state().ok()?, &CALLS).deadline()
    }

    /// Every call answers why it is over, whatever the kernel's socket is like.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.held.state().is_some_and(|state| state.phase() == Phase::Ended)
    }

    /// Whether the number is still this socket's. One that another file was opened under, where nobody saw it, is forgotten.
    #[must_use]
    pub fn is_there(&self) -> bool {
        let is_there = self.held.is_under(self.fd);
        if !is_there {
            socket::forget_stale(self.fd, &self.held);
        }
        is_there
    }

    /// Octets are there of which the kernel knows nothing: a process that is confined asks before it waits.
    #[must_use]
    pub fn holds_octets(&self) -> bool {
        self.state().is_ok_and(|state| Stream::new(self.fd, state, &CALLS).holds_octets())
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

/// Octets left of an FPDU from which on they are told without a look at the FPDUs behind it.
const ENOUGH: usize = 512;
