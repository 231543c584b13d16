//! The beginning of a framed socket: how `connect`, `accept` and `setsockopt` make a stream.

use std::net::SocketAddr;

use rddp_real as real;
use rddp_stream::{Errno, Role, State};

use super::{Framed, Protocol, fall_back};
use crate::kinds::kind::{Begin, SocketKind};
use crate::kinds::{store, unsettled};
use crate::socket::{Locked, Mode, UNTIL_PLAIN};
use crate::wait;

impl<P: Protocol> Begin for Framed<P> {
    fn connecting(&self, to: Option<SocketAddr>) -> Result<(), Errno> {
        let mut settings = self.held.settings();
        settings.to = to;
        match self.held.state() {
            // This is a second attempt: the first has failed, or goes on and the kernel will report
            // it.
            Some(state)
                if settings.mode == Mode::Asked || real::tcp_state(self.fd) == Some(real::TCP_CLOSE) =>
            {
                self.stream_of(state)?;
                state.begin_again();
                settings.mode = Mode::Starting;
            }
            Some(_) => {}
            None => self.start(&mut settings, Role::Initiator)?,
        }
        drop(settings);
        wait::kind_changed(&self.held, self.fd);
        Ok(())
    }

    fn connected(&self, result: Result<(), Errno>) -> Result<(), Errno> {
        let no_signals = real::NoSignals::here();
        match result {
            Ok(()) => self.up(no_signals),
            Err(Errno(libc::EINPROGRESS | libc::EINTR | libc::EALREADY | libc::EISCONN)) => {
                let mut settings = self.held.settings();
                settings.saved.store(self.fd);
                settings.connects |= result == Err(Errno(libc::EINPROGRESS));
                result
            }
            Err(_) => {
                self.held.settings().mode = Mode::Asked;
                wait::kind_changed(&self.held, self.fd);
                result
            }
        }
    }

    /// Makes the stream; the first call on the socket does the startup.
    fn accepted(&self) {
        let mut settings = self.held.settings();
        match self.start(&mut settings, Role::Responder) {
            Ok(()) => {
                settings.saved.store(self.fd);
                self.held.state().into_iter().for_each(State::note_connected);
            }
            Err(errno) => settings.fail(errno),
        }
    }

    fn established(&self, settings: &mut Locked<'_>) -> Result<(), Errno> {
        self.start(settings, Role::Initiator)?;
        settings.saved.store(self.fd);
        if settings.role == Some(Role::Initiator)
            && let Some(_at_work) = self.held.work_on(self.fd)
        {
            self.stream().into_iter().for_each(|stream| stream.step());
        }
        Ok(())
    }
}

impl<P: Protocol> Framed<P> {
    /// Goes on after TCP is connected.
    fn up(&self, no_signals: real::NoSignals) -> Result<(), Errno> {
        // Until now the kernel's time-outs limited its `connect`.
        self.held.settings().saved.store(self.fd);
        self.held.state().into_iter().for_each(State::note_connected);
        let waits = self.held.settings().plain_allowed && !real::is_nonblocking(self.fd);
        let until_plain = self.held.state().map_or(UNTIL_PLAIN, |state| state.options().startup_timeout);
        if !waits {
            let _ = self.call(|stream| {
                stream.step();
                Ok(())
            });
            return Ok(());
        }
        drop(no_signals);
        match self.call(|stream| stream.start(Some(until_plain))) {
            Ok(()) | Err(Errno::PLAIN) => Ok(()),
            Err(Errno::WOULD_BLOCK) => fall_back::connect_again(self),
            Err(error) => Err(error),
        }
    }

    fn start(&self, settings: &mut Locked<'_>, by_default: Role) -> Result<(), Errno> {
        let options = settings.options(by_default);
        let state = store::create(self.held.cookie(), &options)?;
        self.held.set_state(state);
        self.held.set_threaded(settings.is_threaded());
        self.apply(settings);
        settings.mode = Mode::Starting;
        unsettled::add(&self.held, self.fd);
        Ok(())
    }
}
