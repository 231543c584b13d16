//! The route of a call on a descriptor: to the C library, back to the program with an error, or to
//! a socket of ours.
//!
//! Each function first asks whether the descriptor is ours; for nearly all calls it is not, and the
//! answer ends there.

mod options;

use std::ffi::{c_int, c_uint};
use std::net::SocketAddr;

use libc::{sockaddr, socklen_t};
use rddp_policy::Side;
use rddp_real::{self as real, Value};
use rddp_stream::{self as stream, Errno, SameErrno};

use crate::kinds::{self, Ours};
use crate::socket::{self, Held, KindId, Mode, Settings};
use crate::{exit, process, sdp, switch, table, wait};

pub use options::{answers_options, option, set_option};

/// The route of a call. A socket of ours that answers [`Errno::PLAIN`] sends the call to the C
/// library after all.
#[derive(Debug)]
#[must_use]
pub enum Route {
    /// To the C library, with the arguments it came with.
    Plain,
    /// Back to the program, with this errno.
    Refused(Errno),
    /// To a socket of ours.
    Ours(Ours),
}

impl Route {
    /// Returns the socket of ours that the call goes to.
    ///
    /// # Errors
    /// [`Errno::PLAIN`]: the call goes to the C library. Any other: back to the program.
    pub fn ours(self) -> Result<Ours, Errno> {
        match self {
            Route::Plain => Err(Errno::PLAIN),
            Route::Refused(errno) => Err(errno),
            Route::Ours(ours) => Ok(ours),
        }
    }
}

/// Routes a call that moves octets or waits for them.
#[inline]
pub fn data(fd: c_int) -> Route {
    match kinds::of(fd) {
        Ok(None) if exit::has_begun() => exit::route(fd),
        Ok(None) | Err(Errno::PLAIN) => Route::Plain,
        Ok(Some(ours)) => Route::Ours(ours),
        Err(errno) => Route::Refused(errno),
    }
}

/// Refuses a call that moves octets of a socket of ours within the kernel. A program that gets
/// EINVAL from such a call moves the octets itself.
///
/// # Errors
/// EINVAL.
#[inline]
pub fn within_kernel(fd: c_int) -> Result<(), Errno> {
    if matches!(data(fd), Route::Plain) { Ok(()) } else { Err(Errno::INVALID) }
}

/// Routes `connect` to the address that `to` returns, which is asked only if the address matters.
/// The result of the C library's `connect` on a socket of ours must be passed to
/// [`Begin::connected`](crate::kinds::Begin::connected).
#[inline]
pub fn connect(fd: c_int, to: impl Fn() -> Option<SocketAddr>) -> Route {
    if !switch::is_on() && table::entry(fd).is_none() {
        return Route::Plain;
    }
    exit::wait_out();
    let to = to();
    if let Some(held) = socket::hold_checked(fd).filter(|held| held.is_in_ddpmode()) {
        return connect_held(fd, held, to);
    }
    if switch::is_on()
        && let Some(addr) = to
        && let Err(errno) = switch::apply(fd, Side::Client, addr)
    {
        return Route::Refused(errno);
    }
    match socket::hold(fd) {
        Some(held) => connect_held(fd, held, to),
        None => Route::Plain,
    }
}

#[cold]
fn connect_held(fd: c_int, held: Held, to: Option<SocketAddr>) -> Route {
    let _no_signals = real::NoSignals::here();
    let mode = held.settings().mode;
    match mode {
        // An address of another family, or none, is for the kernel: it refuses the call, or
        // dissolves the connection.
        Mode::Asked | Mode::Starting if to.is_some() => {
            // With this option `connect` returns before there is a connection, and the first octets
            // open one. In DDPMODE the option cannot be set.
            if mode == Mode::Asked {
                real::set_option(fd, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, &Value::int(0));
            }
            let ours = Ours::new(held, fd);
            match ours.connecting(to) {
                Ok(()) => Route::Ours(ours),
                Err(errno) => Route::Refused(errno),
            }
        }
        Mode::Failed => Route::Refused(held.settings().failure),
        _ => Route::Plain,
    }
}

/// Makes `fd`, a new TCP socket, one that speaks SDP: the program has asked for that family.
///
/// # Errors
/// ENOSYS, ENOBUFS: it cannot be ours.
pub fn speaks_sdp(fd: c_int) -> Result<(), Errno> {
    switch::ask(fd, KindId::Sdp, false)
}

/// Returns the address that the kernel is to have for `bind` and `connect` of a socket that speaks
/// SDP, if the program's is one of SDP's families.
#[inline]
pub fn kernel_address(fd: c_int, addr: *const sockaddr, len: socklen_t) -> Option<real::Address> {
    table::entry(fd)?;
    let held = socket::hold(fd)?;
    let is_sdp = held.kind() == KindId::Sdp && held.is_in_ddpmode();
    if is_sdp { real::address_in_kernels_family(addr, len, sdp::kernels) } else { None }
}

/// Prepares for `listen`, or makes it.
///
/// # Errors
/// [`Errno::PLAIN`]: the call goes to the C library. Else the policy refuses it, or the socket's
/// kind.
#[inline]
pub fn listen(fd: c_int, backlog: c_int) -> Result<(), Errno> {
    if switch::is_on()
        && let Some(addr) = real::local_address(fd)
    {
        switch::apply(fd, Side::Server, addr)?;
    }
    of_device(fd)?.listens(backlog)
}

/// Makes `accept4` on a listener of a device; returns the number of the connection, and the peer's
/// address.
///
/// # Errors
/// [`Errno::PLAIN`]: the call goes to the C library. Else as of that.
#[inline]
pub fn accept_on_device(listener: c_int, flags: c_int) -> Result<(c_int, Option<SocketAddr>), Errno> {
    of_device(listener)?.accepts(flags)
}

/// Returns the address of this end of a socket, or the peer's.
///
/// # Errors
/// [`Errno::PLAIN`]: the kernel knows it. ENOTCONN: there is no peer.
#[inline]
pub fn name(fd: c_int, of_peer: bool) -> Result<SocketAddr, Errno> {
    let (local, peer) = of_device(fd)?.names().ok_or(Errno::PLAIN)?;
    if of_peer { peer.ok_or(Errno(libc::ENOTCONN)) } else { local.ok_or(Errno::PLAIN) }
}

/// Returns the socket under `fd`, if its descriptor is not the kernel's TCP socket.
#[inline]
fn of_device(fd: c_int) -> Result<Ours, Errno> {
    if table::entry(fd).is_none() {
        return Err(Errno::PLAIN);
    }
    let held = socket::hold(fd).filter(|held| held.kind() == KindId::Device).ok_or(Errno::PLAIN)?;
    Ok(Ours::new(held, fd))
}

/// Prepares for `accept` on `listener`, which may sleep; returns its error if a signal came first.
#[inline]
pub fn accepting(listener: c_int) -> Result<(), Errno> {
    if table::entry(listener).is_some() {
        exit::wait_out();
    }
    if kinds::any_unsettled() && !real::is_nonblocking(listener) {
        return kinds::sleep_beside(listener);
    }
    Ok(())
}

/// Takes in `fd`, which `accept` has made of a connection to `listener`.
pub fn accepted(listener: c_int, fd: c_int) {
    fresh(fd);
    if table::entry(listener).is_some() {
        exit::wait_out();
    }
    if switch::has_rules_for_servers()
        && !is_in_ddpmode(listener)
        && switch::apply_to_listener(listener).is_err()
    {
        // The policy allows no plain connection.
        return real::disconnect(fd);
    }
    let Some(of_listener) = socket::hold(listener) else { return };
    let _no_signals = real::NoSignals::here();
    let settings = of_listener.settings().of_child();
    let plain = settings.mode == Mode::Off;
    if settings == Settings::DEFAULT {
        return;
    }
    match socket::adopt(fd, settings) {
        Ok(held) if !plain => Ours::new(held, fd).accepted(),
        // Too many sockets are ours, or the number is too large. As a plain socket it would give
        // the program octets of the framing.
        Err(_) if !plain => real::disconnect(fd),
        Ok(_) | Err(_) => {}
    }
}

fn is_in_ddpmode(fd: c_int) -> bool {
    socket::hold(fd).is_some_and(|held| held.is_in_ddpmode())
}

/// Forgets all that is known of the number `fd`, which is new: what it was before has been closed.
#[inline]
pub fn fresh(fd: c_int) {
    socket::forget(fd);
}

/// Returns whether a call that failed because no number was free is worth another attempt: a closed
/// socket that was not finished has given its number up. Leaves errno as it was.
#[cold]
pub fn makes_room() -> bool {
    let _same = SameErrno::here();
    Errno::last() == Errno(libc::EMFILE)
        && socket::were_any()
        && !stream::is_confined()
        && kinds::makes_room()
}

/// Closes the library's side of `fd`, which is about to be closed.
#[inline]
pub fn closing(fd: c_int) {
    if table::entry(fd).is_some() {
        exit::wait_out();
        kinds::closing(fd);
    }
}

/// Closes the library's side of all numbers from `first` to `last`, which are about to be closed.
pub fn closing_range(first: c_uint, last: c_uint) {
    if !table::any() {
        return;
    }
    exit::wait_out();
    let clamp = |fd| c_int::try_from(fd).unwrap_or(c_int::MAX);
    table::within(clamp(first), clamp(last)).for_each(kinds::closing);
}

/// Prepares for `to` becoming another number of what `from` is: the file that `to` is now will be
/// closed.
#[inline]
pub fn duplicating(from: c_int, to: c_int) {
    if from != to && table::entry(to).is_some() && real::is_open(from) {
        exit::wait_out();
        kinds::closing(to);
    }
}

/// Prepares for `from` getting another number. [`Duplicate::is`] follows, if it does.
#[inline]
pub fn duplicate(from: c_int) -> Duplicate {
    Duplicate { from, expected: kinds::expect_number(from) }
}

/// A number to come. Before the kernel gives it, `from` may be closed and be another file's.
#[derive(Debug)]
#[must_use]
pub struct Duplicate {
    from: c_int,
    expected: Option<kinds::Expected>,
}

impl Duplicate {
    /// Enters the new number, `to`.
    pub fn is(self, to: c_int) {
        if self.from == to {
            return;
        }
        wait::duplicated(self.from);
        match self.expected {
            Some(expected) => expected.is(to),
            None if table::entry(self.from).is_some() && process::owns_table() => kinds::received(to),
            None => fresh(to),
        }
    }
}

/// Routes `fcntl(fd, command, argument)`.
#[inline]
pub fn descriptor_command(fd: c_int, command: c_int, argument: usize) -> Route {
    let asynchronous = match command {
        libc::F_SETOWN | F_SETSIG | F_SETOWN_EX => true,
        libc::F_SETFL => argument as c_int & libc::O_ASYNC != 0,
        _ => false,
    };
    if asynchronous { refused_in_ddpmode(fd) } else { Route::Plain }
}

/// Routes `ioctl(fd, request, ...)`.
#[inline]
pub fn device_command(fd: c_int, request: u64) -> Route {
    if [libc::FIOASYNC, FIOSETOWN, SIOCSPGRP].contains(&request) {
        refused_in_ddpmode(fd)
    } else {
        Route::Plain
    }
}

/// Refuses signals for input in DDPMODE: there would be one for each FPDU, with nothing to read for
/// most.
fn refused_in_ddpmode(fd: c_int) -> Route {
    if is_in_ddpmode(fd) { Route::Refused(Errno::INVALID) } else { Route::Plain }
}

/// Returns how many octets of the program's TCP does not have yet, for queries of unsent octets.
pub fn unsent(fd: c_int) -> usize {
    match data(fd) {
        Route::Ours(ours) => ours.unsent(),
        Route::Plain | Route::Refused(_) => 0,
    }
}

// These are in linux/fcntl.h and linux/sockios.h, and not in `libc`.
const F_SETSIG: c_int = 10;
const F_SETOWN_EX: c_int = 15;
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;
