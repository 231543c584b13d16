//! `connect`: a thread connects by the device, and the program sleeps on its descriptor or goes on.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::POLLOUT;
use rddp_real as real;
use rddp_stream::{Errno, handlers_restart};

use super::adapter;
use super::gauge::Gauge;
use super::link::{self, Life, Link};
use super::moving::errno_of;
use super::socket::Device;
use crate::socket::{Mode, UNTIL_PLAIN};
use crate::{switch, wait};

impl Device {
    /// Connects to the address in the settings.
    pub(super) fn connect(&self) -> Result<(), Errno> {
        if let Some(link) = link::of(self.held.cookie()) {
            return link.connect_again();
        }
        let (to, plain_allowed) = {
            let settings = self.held.settings();
            if settings.mode != Mode::Asked {
                return Err(Errno::ABORTED);
            }
            (settings.to.ok_or(Errno::INVALID)?, settings.plain_allowed)
        };
        match self.connect_by_device(to, plain_allowed) {
            Err(error) if plain_allowed && error != Errno::INTERRUPTED => {
                switch::tell_device_plain(to, adapter::name());
                self.held.settings().mode = Mode::Off;
                Err(Errno::PLAIN)
            }
            result => result,
        }
    }

    /// Connects, and leaves the TCP socket under its number until the connection is there, or the
    /// program goes on without it: a call that fails changes nothing.
    fn connect_by_device(&self, to: SocketAddr, plain_allowed: bool) -> Result<(), Errno> {
        let (gauge, programs) = Gauge::new()?;
        let link = Link::new(Arc::new(gauge), Life::Connecting, link::hidden_number(self.fd));
        link.set_peer(Some(to));
        let awaited = begin(&link, to).and_then(|()| self.await_connection(programs, plain_allowed));
        let result = match awaited {
            Ok(()) => link.stream().map(|_| link.set_told()),
            Err(error) => Err(error),
        };
        match result {
            Ok(()) | Err(Errno(libc::EINPROGRESS) | Errno::INTERRUPTED) => {
                self.install(programs, link)?;
            }
            Err(_) => {
                link.close(None);
                real::close_number(programs);
            }
        }
        result
    }

    /// Sleeps until the connection is there or has failed.
    ///
    /// # Errors
    /// EINPROGRESS: the program does not wait for it; EINTR.
    fn await_connection(&self, programs: c_int, plain_allowed: bool) -> Result<(), Errno> {
        // What becomes of a socket that may be plain is known before the program goes on.
        let limit =
            if plain_allowed { Some(UNTIL_PLAIN) } else { self.held.settings().saved.sndtimeo.duration() };
        if !plain_allowed && real::is_nonblocking(self.fd) {
            return Err(Errno(libc::EINPROGRESS));
        }
        let until = limit.map(|limit| Instant::now() + limit);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let nap = left.map_or(-1, |left| c_int::try_from(left.as_millis()).unwrap_or(c_int::MAX));
            match real::sleep_for(programs, POLLOUT, nap) {
                Ok(true) => return Ok(()),
                Ok(false) if plain_allowed => return Err(Errno::TIMED_OUT),
                Ok(false) => return Err(Errno(libc::EINPROGRESS)),
                Err(Errno::INTERRUPTED) if plain_allowed || limit.is_none() && handlers_restart() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Puts the program's end of a pair under each number of the socket, in place of TCP's.
    pub(super) fn install(&self, programs: c_int, link: Arc<Link>) -> Result<(), Errno> {
        let _no_signals = real::NoSignals::here();
        real::set_nonblocking(programs, real::is_nonblocking(self.fd));
        let cookie = real::cookie(programs).ok_or(Errno(libc::ENOSYS))?;
        link::add(cookie, link);
        let put = wait::replace(&self.held, programs, cookie);
        real::close_number(programs);
        self.held.settings().mode = Mode::Starting;
        put
    }
}

/// Starts the thread that connects.
fn begin(link: &Arc<Link>, to: SocketAddr) -> Result<(), Errno> {
    let mut device = adapter::device()?;
    device.options.timeout = Duration::from_secs(30);
    let link = link.clone();
    let _no_signals = real::NoSignals::here();
    let connect = move || {
        let connected = device.connect(to).map_err(|error| {
            switch::tell_not_made(format_args!("connect {to}"), adapter::name(), &error);
            errno_of(&error)
        });
        link.connected(connected);
    };
    let begun = std::thread::Builder::new().name("rddp-connect".into()).spawn(connect);
    begun.map(drop).map_err(|_| Errno::WOULD_BLOCK)
}
