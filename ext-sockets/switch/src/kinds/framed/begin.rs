//! From `connect`, `accept` and `setsockopt` to a stream.

use std::ffi::c_int;
use std::net::SocketAddr;

use rddp_real as real;
use rddp_stream::{Errno, State, Stream};

use super::{CALLS, Framed, fall_back};
use crate::kinds::{store, unsettled};
use crate::socket::{Held, Locked, Mode, Role, SavedOptions, UNTIL_PLAIN};
use crate::wait;

/// A framed socket whose `connect` is under way.
#[derive(Debug)]
pub struct Connecting {
    held: Held,
    fd: c_int,
}

/// What a `connect` on `fd` comes to, which is to be framed. To be finished by [`Connecting::connected`].
///
/// # Errors
/// The errno of what stands in the way.
pub fn connecting(held: Held, fd: c_int, to: Option<SocketAddr>) -> Result<Connecting, c_int> {
    let mut settings = held.settings();
    settings.to = to;
    match held.state() {
        // A second attempt: the first has failed, or goes on and the kernel will say so.
        Some(state) if settings.mode == Mode::Asked || real::tcp_state(fd) == Some(real::TCP_CLOSE) => {
            state.begin_again();
            settings.mode = Mode::Starting;
        }
        Some(_) => {}
        None => start(fd, &held, &mut settings, Role::Initiator)?,
    }
    drop(settings);
    wait::framed_now(&held, fd);
    Ok(Connecting { held, fd })
}

impl Connecting {
    /// The C library's `connect` has come back, with an errno if it failed.
    ///
    /// # Errors
    /// What the program is told.
    pub fn connected(self, result: Result<(), c_int>) -> Result<(), c_int> {
        let no_signals = real::NoSignals::here();
        match result {
            Ok(()) => self.up(no_signals),
            Err(libc::EINPROGRESS | libc::EINTR | libc::EALREADY | libc::EISCONN) => {
                self.held.settings().saved.store(self.fd);
                result
            }
            Err(_) => {
                self.held.settings().mode = Mode::Asked;
                wait::framed_now(&self.held, self.fd);
                result
            }
        }
    }

    fn up(self, no_signals: real::NoSignals) -> Result<(), c_int> {
        let Connecting { held, fd } = self;
        // Until now the time-outs were those of the kernel's `connect`.
        held.settings().saved.store(fd);
        held.state().into_iter().for_each(State::note_connected);
        let waits = held.settings().plain_allowed && !real::is_nonblocking(fd);
        let until_plain = held.state().map_or(UNTIL_PLAIN, |state| state.options().startup_timeout);
        let framed = Framed { held, fd };
        if !waits {
            let _ = framed.call(|stream| {
                stream.step();
                Ok(())
            });
            return Ok(());
        }
        drop(no_signals);
        match framed.call(|stream| stream.start(Some(until_plain))) {
            Ok(()) | Err(Errno::PLAIN) => Ok(()),
            Err(Errno::WOULD_BLOCK) => fall_back::connect_again(&framed).map_err(|error| error.0),
            Err(error) => Err(error.0),
        }
    }
}

/// `accept` has made `fd` of a connection to a listener in DDPMODE: the startup is for the first call on it.
pub fn accepted(fd: c_int, held: &Held) {
    let mut settings = held.settings();
    match start(fd, held, &mut settings, Role::Responder) {
        Ok(()) => {
            settings.saved.store(fd);
            held.state().into_iter().for_each(State::note_connected);
        }
        Err(errno) => settings.fail(errno),
    }
}

/// The program has asked for DDPMODE on a connection that is there already.
///
/// # Errors
/// The errno of what stands in the way.
pub fn establish(fd: c_int, held: &Held, settings: &mut Locked<'_>) -> Result<(), c_int> {
    start(fd, held, settings, Role::Initiator)?;
    settings.saved.store(fd);
    if let Some(state) = held.state()
        && settings.role == Some(Role::Initiator)
        && let Some(_at_work) = held.work_on(fd)
    {
        Stream::new(fd, state, &CALLS).step();
    }
    Ok(())
}

/// Tells the stream what the program has set on its socket.
pub fn keep(fd: c_int, held: &Held, saved: &SavedOptions) {
    let Some(state) = held.state() else { return };
    state.set_receive_timeout(saved.rcvtimeo.duration());
    state.set_send_timeout(saved.sndtimeo.duration());
    state.set_low_water(saved.rcvlowat.unsigned_abs());
    let _ = Stream::new(fd, state, &CALLS).cork(saved.cork);
}

fn start(fd: c_int, held: &Held, settings: &mut Locked<'_>, by_default: Role) -> Result<(), c_int> {
    let options = settings.options(by_default);
    let state = store::create(held.cookie(), &options).map_err(|error| error.0)?;
    held.set_state(state);
    held.set_threaded(settings.is_threaded());
    keep(fd, held, &settings.saved);
    settings.mode = Mode::Starting;
    unsettled::note(held, fd);
    Ok(())
}
