//! A framed socket: its octets travel in FPDUs, and its calls go to its [stream](rddp_stream).
//!
//! The sockets of two kinds are framed, one type each: those in DDPMODE, whose Sends are the
//! program's octets and no more, and those that speak SDP. What they do differently is the
//! [`Protocol`]'s.
//!
//! | file | what |
//! |---|---|
//! | `protocol.rs` | what the two kinds do differently |
//! | `begin.rs` | from `connect`, `accept` and `setsockopt` to a stream |
//! | `fall_back.rs` | plain TCP for a peer that does not speak MPA (the policy's `both`) |
//! | `ready.rs` | readiness, and the steps that no call takes |
//! | `end.rs` | `close`, by the last holder and by others |
//! | `elsewhere.rs` | processes that have the socket and do not hold it yet |
//! | `by_threads.rs` | calls that the threads of the report's design make |

mod begin;
mod by_threads;
mod elsewhere;
mod end;
mod fall_back;
mod protocol;
mod ready;

pub use elsewhere::{passing, program_begins, program_runs};

use std::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};
use std::marker::PhantomData;

use rddp_real::{self as real, Value};
use rddp_rnic::TerminateCode;
use rddp_stream::{Calls, Errno, Framed as Stream, Phase, SdpInfo, Sends, State, Uncancelled, Why};

use self::protocol::Protocol;
use super::kind::{Ours, Readiness, SocketKind};
use super::{linger, progress_other_sockets, unsettled};
use crate::socket::{self, Care, Held, KindId, Mode, Settings};
use crate::{plain_peers, switch, table, trace, wait};

/// The C library's calls for every stream. Before one of them sleeps, unsettled sockets take their
/// steps.
static CALLS: Calls = real::calls(progress_other_sockets);

/// A framed socket, held for the length of a call.
#[derive(Debug)]
pub struct Framed<P> {
    pub(super) held: Held,
    pub(super) fd: c_int,
    protocol: PhantomData<P>,
}

impl<P> Framed<P> {
    pub(super) const fn new(held: Held, fd: c_int) -> Self {
        Framed { held, fd, protocol: PhantomData }
    }
}

impl<P: Protocol> SocketKind for Framed<P> {
    #[inline]
    fn admit(held: Held, fd: c_int) -> Result<Self, Errno> {
        if held.state().is_some() { Ok(Framed::new(held, fd)) } else { Err(refusal(&held)) }
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
        let sent = self.call(|stream| stream.send(pieces, flags));
        self.give_obligation();
        sent
    }

    fn lends(&self, octets: usize) -> bool {
        self.stream().is_some_and(|stream| P::lends(&stream, octets))
    }

    fn lend(&self, sends: &mut dyn Sends<'_>) -> Result<bool, Errno> {
        let lent = self.call(|stream| P::lend(&stream, sends));
        self.give_obligation();
        lent
    }

    fn offer(&self, room: usize) {
        // The receive itself meets an error.
        let _ = self.call(|stream| {
            P::offer(&stream, room);
            Ok(())
        });
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
            // A program that waits for edges takes the octets that it reads beyond this number for
            // new ones, and waits for their edge.
            wait::tell_again(&self.held, self.fd);
        }
        Ok(octets)
    }

    fn is_at_mark(&self) -> Result<bool, Errno> {
        self.call(|stream| P::is_at_mark(&stream))
    }

    fn unsent(&self) -> usize {
        self.stream().map_or(0, |stream| stream.unsent())
    }

    fn care(&self, level: c_int, name: c_int) -> Care {
        socket::care(level, name)
    }

    fn apply(&self, Settings { saved, sdp, .. }: &Settings) {
        let (Some(state), Some(stream)) = (self.held.state(), self.stream()) else { return };
        state.set_receive_timeout(saved.rcvtimeo.duration());
        state.set_send_timeout(saved.sndtimeo.duration());
        stream.set_low_water(saved.rcvlowat.unsigned_abs());
        let _ = stream.cork(saved.cork);
        P::apply(state, *sdp);
    }

    /// Asks the stream how far the startup has come: it may have gone on in another process.
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

    fn prepare_to_confine(&self) {
        if let Some(stream) = self.stream() {
            stream.prepare_to_confine();
        }
    }

    fn sdp_info(&self) -> Option<SdpInfo> {
        P::info(&self.stream()?)
    }

    fn peer_private_data(&self) -> Value {
        if !P::HAS_PRIVATE_DATA {
            return Value::octets(&[]);
        }
        let data = self.held.state().and_then(State::peer_private_data);
        data.map_or(Value::octets(&[]), |data| Value::octets(data.as_ref()))
    }

    /// Returns, for a stream that has ended, its reason once; the kernel's error of the connection
    /// is a consequence. For one that goes on, returns an error that an earlier call noted, if any.
    fn take_error(&self) -> Option<Errno> {
        let state = self.held.state()?;
        if state.phase() == Phase::Starting {
            // An error of the kernel's may be what becomes of the startup.
            self.step();
            if fall_back::is_due(self) {
                return fall_back::connect_again(self).err();
            }
        }
        let connected = std::mem::take(&mut self.held.settings().connects);
        let Some(end) = state.ended() else {
            let is_behind = self.stream().is_some_and(|stream| stream.is_reset_behind_more());
            let pending = state.take_pending().or_else(|| is_behind.then(|| self.drop_reset()));
            return pending.or_else(|| connected.then(|| self.error_of_connect()));
        };
        if let Some(told) = state.take_startup_error(connected) {
            return Some(told.err().unwrap_or(Errno::NONE));
        }
        let kernels = self.kernels_error();
        let told = std::mem::replace(&mut self.held.settings().error_told, true);
        Some(if told { kernels } else { end.errno })
    }
}

impl<P: Protocol> Framed<P> {
    /// Gives what a send has left behind for the peer to the helper thread.
    fn give_obligation(&self) {
        if self.stream().is_some_and(|stream| P::has_obligation(&stream)) {
            let _no_signals = real::NoSignals::here();
            linger::oblige(&Ours::of_kind(P::KIND, self.held.clone(), self.fd));
        }
    }

    fn state(&self) -> Result<&State, Errno> {
        self.held.state().ok_or(Errno::ABORTED)
    }

    /// Makes a call of the stream, and acts on the changes. [`Errno::PLAIN`]: the call is for the C
    /// library.
    fn call<T>(&self, call: impl FnOnce(Stream<'_, P>) -> Result<T, Errno>) -> Result<T, Errno> {
        let state = self.state()?;
        // If this fails, the number was closed since it was looked up, whatever it is now.
        let at_work = self.held.work_on(self.fd).ok_or(Errno::NO_DESCRIPTOR)?;
        let _uncancelled = Uncancelled::here();
        let before = state.condition();
        let result = call(self.stream_of(state)?.called_by(&at_work));
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
        trace::startup_is_over(&self.held, self.fd, state);
        self.tell_plain_peer(state);
        if !state.condition().is_settled() {
            unsettled::add(&self.held, self.fd);
        }
        if self.held.is_watched() {
            wait::changed(&self.held, self.fd);
        }
    }

    /// Returns the error for the program after the stream had `error`: the number may be another
    /// socket's by now, and plain TCP may be the answer.
    #[cold]
    fn reconsider(&self, error: Errno) -> Errno {
        match error {
            Errno::NO_DESCRIPTOR | Errno(libc::ENOTSOCK) if !self.held.is_under(self.fd) => {
                socket::forget_stale(self.fd, &self.held);
                // A number that is known by now as another socket of ours must not go to the C
                // library.
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

    /// Logs once, where the policy's log goes, why the stream has ended.
    fn tell_end(&self) {
        let Some(end) = self.held.state().and_then(State::ended) else { return };
        let mut settings = self.held.settings();
        if !std::mem::replace(&mut settings.end_told, true) {
            match (settings.to, end.why) {
                (Some(peer), Why::NoAnswer) => switch::tell_silent(peer, settings.kind),
                (Some(peer), Why::NotMpa) if end.errno == Errno::PROTOCOL => {
                    switch::tell_plain_server(peer, settings.kind, "what the server said is not MPA");
                }
                (Some(peer), Why::NotMpa | Why::Closed) => {
                    switch::tell_plain_server(peer, settings.kind, "closed before the MPA startup");
                }
                (None, Why::NotMpa) if end.errno == Errno::PROTOCOL => {
                    switch::tell_plain_client(settings.kind);
                }
                (_, Why::Fault)
                    if end.code == TerminateCode::UNTAGGED_TOO_LONG && P::KIND == KindId::Framed =>
                {
                    switch::tell_too_long(real::peer_address(self.fd), settings.largest_send);
                }
                (peer, Why::NotSdp) => switch::tell_not_sdp(peer),
                (Some(peer), Why::Rejected) => {
                    switch::tell_rejected(peer, settings.kind, settings.plain_allowed);
                }
                (Some(peer), _) => switch::tell_failed(format_args!("{peer}: {end}")),
                (None, _) => switch::tell_failed(end),
            }
        }
    }

    /// Logs that the peer does not speak MPA. Where it has closed at once no call returns an error,
    /// and behind a wait that found one the program need not make another.
    fn tell_plain_peer(&self, state: &State) {
        let is_told = |why| matches!(why, Why::Closed | Why::NotMpa);
        if state.ended().is_some_and(|end| is_told(end.why)) && !fall_back::is_due(self) {
            self.tell_end();
        }
    }

    fn kernels_error(&self) -> Errno {
        real::int_option(self.fd, libc::SOL_SOCKET, libc::SO_ERROR).map_or(Errno::NONE, Errno)
    }

    /// Returns what has become of a connect, whose startup is over. A reset behind the peer's FIN
    /// is for octets that this end has sent since, such as those that the startup wants: the
    /// program reads the end.
    fn error_of_connect(&self) -> Errno {
        Some(self.kernels_error()).filter(|error| *error != Errno::BROKEN_PIPE).unwrap_or(Errno::NONE)
    }

    /// Drops the kernel's error of a connection of SDP behind whose end, or octets, a reset has
    /// come: it is of no consequence for the program.
    fn drop_reset(&self) -> Errno {
        let kernels = self.kernels_error();
        if [Errno::RESET, Errno::BROKEN_PIPE].contains(&kernels) { Errno::NONE } else { kernels }
    }

    /// Returns the stream, for work that is no call of the program's.
    fn stream(&self) -> Option<Stream<'_, P>> {
        self.stream_of(self.held.state()?).ok()
    }

    /// Returns the stream with this state. EINVAL: the state is one of another kind, where a policy
    /// wants this one for a second connect.
    fn stream_of<'a>(&self, state: &'a State) -> Result<Stream<'a, P>, Errno> {
        Stream::new(self.fd, state, &CALLS)
    }

    /// Returns whether `MSG_ZEROCOPY` has a meaning here: the program set `SO_ZEROCOPY` before it
    /// was refused, or on the listener. A program that gets ENOBUFS sends without the flag; one
    /// that gets no error would wait for a completion.
    fn promises_completions(&self) -> bool {
        real::int_option(self.fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY).is_some_and(|on| on != 0)
    }

    /// Returns the octets left of the first FPDU, for a program that reads in pieces and asks after
    /// each whether there is more. A program that asks twice without reading in between may wait
    /// for more than those octets, and so may one that is told of few: for both, all octets that
    /// have arrived are counted, which costs a look at every FPDU.
    fn enough_in_front(&self, stream: &Stream<'_, P>) -> Option<usize> {
        let left = stream.left_in_front();
        (self.held.tell_left(left) != left && left >= ENOUGH).then_some(left)
    }

    /// Goes on as a plain TCP socket. A peer that was connected to, and does not speak MPA, is
    /// remembered as a plain one; one that rejects at once costs a round trip, and to begin plainly
    /// would have a server that speaks first wait for this end's first octets.
    fn become_plain(&self) {
        let mut settings = self.held.settings();
        if settings.mode != Mode::Starting {
            return;
        }
        settings.mode = Mode::Off;
        settings.saved.restore(self.fd);
        let to = settings.to;
        drop(settings);
        if let Some(to) = to {
            let has_rejected = self.held.state().and_then(State::peer_private_data).is_some();
            if !has_rejected {
                plain_peers::remember(to);
            }
            switch::tell_plain(to, has_rejected);
        }
    }
}

/// Returns why a socket that was to be framed has no stream.
#[cold]
fn refusal(held: &Held) -> Errno {
    let settings = held.settings();
    if settings.mode == Mode::Failed { settings.failure } else { Errno(libc::ENOTCONN) }
}

/// The number of octets left of an FPDU from which on the FPDUs behind it need no look.
const ENOUGH: usize = 512;
