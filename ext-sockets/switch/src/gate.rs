//! What a call on a descriptor comes to: the kernel's own answer, ours, or a framed stream's.
//!
//! The first question of each is whether the descriptor is ours at all, and for nearly all calls that is where it ends.

use std::ffi::{c_int, c_uint};
use std::net::SocketAddr;

use libc::{EBUSY, EINVAL, ENOTCONN};
use rddp_policy::Side;
use rddp_real::{self as real, Value};
use rddp_stream::{self as stream, Errno, Phase, State};

use crate::kinds::framed::{self, Framed};
use crate::kinds::{self, raw};
use crate::socket::{self, Care, Held, Locked, Mode, SavedOptions, Settings};
use crate::{process, switch, table, wait};

/// Where a call goes. [`Framed`]: to the stream; its [`Errno::PLAIN`] leads back to the C library.
#[derive(Debug)]
#[must_use]
pub enum Route<T = Framed> {
    /// To the C library, as it came.
    Plain,
    /// Back to the program, with this errno.
    Refused(c_int),
    /// To the stream.
    Framed(T),
}

/// A call that moves octets or waits for them.
#[inline]
pub fn data(fd: c_int) -> Route {
    match framed::of(fd) {
        Ok(None) | Err(Errno::PLAIN) => Route::Plain,
        Ok(Some(framed)) => Route::Framed(framed),
        Err(errno) => Route::Refused(errno.0),
    }
}

/// A call that moves octets within the kernel: a caller that is told EINVAL moves them itself.
#[inline]
pub fn within_kernel(fd: c_int) -> Route {
    match data(fd) {
        Route::Plain => Route::Plain,
        Route::Refused(_) | Route::Framed(_) => Route::Refused(EINVAL),
    }
}

/// `connect` to what `to` finds out, if that has to be known.
#[inline]
pub fn connect(fd: c_int, to: impl Fn() -> Option<SocketAddr>) -> Route<Connecting> {
    if !switch::is_on() && table::entry(fd).is_none() {
        return Route::Plain;
    }
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
fn connect_held(fd: c_int, held: Held, to: Option<SocketAddr>) -> Route<Connecting> {
    let _no_signals = real::NoSignals::here();
    let mode = held.settings().mode;
    match mode {
        // Another family's address, or none: the kernel refuses it, or dissolves the connection.
        Mode::Asked | Mode::Starting if to.is_some() => {
            // With it `connect` returns before there is a connection, and waits for octets to open
            // one. In DDPMODE it is not set.
            if mode == Mode::Asked {
                real::set_option(fd, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, &Value::int(0));
            }
            Connecting::begin(held, fd, to).map_or_else(Route::Refused, Route::Framed)
        }
        Mode::Failed => Route::Refused(held.settings().failure),
        _ => Route::Plain,
    }
}

/// A `connect` of a socket in DDPMODE that is under way.
#[derive(Debug)]
pub enum Connecting {
    /// To be framed.
    Framed(framed::Connecting),
    /// For RDMA itself: the socket, and its number.
    Raw(Held, c_int),
}

impl Connecting {
    fn begin(held: Held, fd: c_int, to: Option<SocketAddr>) -> Result<Self, c_int> {
        if !held.settings().raw {
            return framed::connecting(held, fd, to).map(Connecting::Framed);
        }
        held.settings().to = to;
        Ok(Connecting::Raw(held, fd))
    }

    /// The C library's `connect` has come back, with an errno if it failed.
    ///
    /// # Errors
    /// What the program is told.
    pub fn connected(self, result: Result<(), c_int>) -> Result<(), c_int> {
        match self {
            Connecting::Framed(connecting) => connecting.connected(result),
            Connecting::Raw(held, fd) => raw::connected(&held, fd, result),
        }
    }
}

/// `listen`. The errno if it is refused.
#[inline]
pub fn listen(fd: c_int) -> Result<(), c_int> {
    if switch::is_on()
        && let Some(addr) = real::local_address(fd)
    {
        return switch::apply(fd, Side::Server, addr);
    }
    Ok(())
}

/// `accept` on `listener` is about to be made, and may sleep. The errno that it answers if a signal
/// ended that.
#[inline]
pub fn accepting(listener: c_int) -> Result<(), c_int> {
    if kinds::any_unsettled() && !real::is_nonblocking(listener) {
        return kinds::sleep_beside(listener);
    }
    Ok(())
}

/// `accept` has made `fd` of a connection to `listener`.
pub fn accepted(listener: c_int, fd: c_int) {
    fresh(fd);
    if switch::has_rules_for_servers()
        && !is_in_ddpmode(listener)
        && switch::apply_to_listener(listener).is_err()
    {
        // A plain connection is what the policy refuses.
        return real::disconnect(fd);
    }
    let Some(of_listener) = socket::hold(listener) else { return };
    let _no_signals = real::NoSignals::here();
    let settings = of_listener.settings().of_child();
    let (plain, raw) = (settings.mode == Mode::Off, settings.raw);
    if settings == Settings::DEFAULT {
        return;
    }
    match socket::adopt(fd, settings) {
        Ok(held) if !plain && !raw => framed::accepted(fd, &held),
        // Too many are ours, or the number is too large: as a plain one it would give the program octets of framing.
        Err(_) if !plain => real::disconnect(fd),
        Ok(_) | Err(_) => {}
    }
}

fn is_in_ddpmode(fd: c_int) -> bool {
    socket::hold(fd).is_some_and(|held| held.is_in_ddpmode())
}

/// `fd` is new: whatever was known of this number is of something closed.
#[inline]
pub fn fresh(fd: c_int) {
    socket::forget(fd);
}

/// Returns whether a call that has failed for want of a number is worth another attempt: what
/// lingers has given one up. Leaves errno as it was.
#[cold]
pub fn makes_room() -> bool {
    let errno = real::errno();
    let makes = errno == libc::EMFILE && socket::were_any() && !stream::is_confined() && kinds::makes_room();
    real::set_errno(errno);
    makes
}

/// `fd` is about to be closed.
#[inline]
pub fn closing(fd: c_int) {
    if table::entry(fd).is_some() {
        close(fd);
    }
}

#[cold]
fn close(fd: c_int) {
    raw::queue_closing(fd);
    framed::closing(fd, raw::closed);
}

/// The process is about to exit, which closes all that is open.
pub fn exiting() {
    framed::exiting(raw::closed);
}

/// All from `first` to `last` are about to be closed.
pub fn closing_range(first: c_uint, last: c_uint) {
    if !table::any() {
        return;
    }
    let clamp = |fd| c_int::try_from(fd).unwrap_or(c_int::MAX);
    table::within(clamp(first), clamp(last)).for_each(close);
}

/// `to` is about to become another number of what `from` is, and what it is now will be closed.
#[inline]
pub fn duplicating(from: c_int, to: c_int) {
    if from != to && table::entry(to).is_some() && real::is_open(from) {
        close(to);
    }
}

/// `from` is about to get another number. To be finished by [`Duplicate::is`], if it does.
#[inline]
pub fn duplicate(from: c_int) -> Duplicate {
    Duplicate { from, expected: framed::expect_number(from) }
}

/// A number to come: `from` may be closed, and be another file's, before the kernel has given it.
#[derive(Debug)]
#[must_use]
pub struct Duplicate {
    from: c_int,
    expected: Option<framed::Expected>,
}

impl Duplicate {
    /// It is `to`.
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

/// `fcntl(fd, command, argument)`.
#[inline]
pub fn descriptor_command(fd: c_int, command: c_int, argument: usize) -> Route {
    let asynchronous = match command {
        libc::F_SETOWN | F_SETSIG | F_SETOWN_EX => true,
        libc::F_SETFL => argument as c_int & libc::O_ASYNC != 0,
        _ => false,
    };
    if asynchronous { refused_in_ddpmode(fd) } else { Route::Plain }
}

/// `ioctl(fd, request, ...)`.
#[inline]
pub fn device_command(fd: c_int, request: u64) -> Route {
    if [libc::FIOASYNC, FIOSETOWN, SIOCSPGRP].contains(&request) {
        refused_in_ddpmode(fd)
    } else {
        Route::Plain
    }
}

/// A signal for each FPDU that arrives would be one for nothing.
fn refused_in_ddpmode(fd: c_int) -> Route {
    if is_in_ddpmode(fd) { Route::Refused(EINVAL) } else { Route::Plain }
}

/// Whether [`set_option`] and [`option`] have anything to say.
#[inline]
pub fn answers_options(fd: c_int, level: c_int) -> bool {
    level == socket::SOL_DDP || table::entry(fd).is_some()
}

/// `setsockopt`: `None` when the kernel is to be asked.
pub fn set_option(fd: c_int, level: c_int, name: c_int, octets: &[u8]) -> Option<Result<(), c_int>> {
    if level == socket::SOL_DDP {
        return Some(set_our_option(fd, name, octets));
    }
    let held = socket::hold(fd)?;
    let mut settings = held.settings();
    match of_mode(&settings, level, name) {
        Care::Kernel => None,
        Care::Ours => Some(settings.saved.set(level, name, octets).map(|()| {
            framed::keep(fd, &held, &settings.saved);
        })),
        Care::KernelTells | Care::Nobody => Some(Err(libc::ENOPROTOOPT)),
    }
}

/// `getsockopt`: `None` when the kernel is to be asked.
pub fn option(fd: c_int, level: c_int, name: c_int) -> Option<Result<Value, c_int>> {
    if level == socket::SOL_DDP {
        return Some(our_option(fd, name));
    }
    let held = socket::hold(fd)?;
    if (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) {
        return connection_error(fd, &held).map(|errno| Ok(Value::int(errno)));
    }
    let settings = held.settings();
    match of_mode(&settings, level, name) {
        Care::Kernel | Care::KernelTells => None,
        Care::Ours => Some(settings.saved.get(level, name)),
        Care::Nobody => Some(Err(libc::ENOPROTOOPT)),
    }
}

/// Octets of the program's that TCP does not know of yet, for those who ask how many are not sent.
pub fn unsent(fd: c_int) -> usize {
    match data(fd) {
        Route::Framed(framed) => framed.unsent(),
        Route::Plain | Route::Refused(_) => 0,
    }
}

/// `SO_ERROR` of a stream that has ended: why, once. What the kernel says of the connection is a
/// consequence. Of one that goes on: what a call of ours came upon, if any did.
fn connection_error(fd: c_int, held: &Held) -> Option<c_int> {
    let state = held.state()?;
    let Some(end) = state.ended() else { return state.take_pending() };
    if let Some(errno) = state.take_startup_error() {
        return Some(errno);
    }
    let kernels = real::int_option(fd, libc::SOL_SOCKET, libc::SO_ERROR).unwrap_or(0);
    let told = std::mem::replace(&mut held.settings().error_told, true);
    Some(if told { kernels } else { end.errno.0 })
}

fn of_mode(settings: &Settings, level: c_int, name: c_int) -> Care {
    match settings.mode {
        Mode::Off => Care::Kernel,
        _ => socket::care(level, name),
    }
}

fn set_our_option(fd: c_int, name: c_int, octets: &[u8]) -> Result<(), c_int> {
    let held = match socket::hold_checked(fd) {
        Some(held) => held,
        None => adopt(fd)?,
    };
    let mut settings = held.settings();
    if name != socket::DDPMODE {
        socket::set(&mut settings, name, octets)?;
        held.set_threaded(held.state().is_some() && settings.is_threaded());
        return Ok(());
    }
    set_mode(fd, &held, &mut settings, octets)?;
    drop(settings);
    wait::framed_now(&held, fd);
    Ok(())
}

fn our_option(fd: c_int, name: c_int) -> Result<Value, c_int> {
    match socket::hold_checked(fd) {
        Some(held) if name == socket::DDP_PEER_PRIVATE_DATA && held.settings().raw => {
            Ok(Value::octets(&raw::peer_private_data(held.cookie())))
        }
        Some(held) if name == socket::DDP_PEER_PRIVATE_DATA => {
            let data = held.state().and_then(State::peer_private_data);
            Ok(data.map_or(Value::octets(&[]), |data| Value::octets(data.as_ref())))
        }
        Some(held) => socket::get(&as_it_is(&held), name),
        None => {
            real::is_tcp(fd)?;
            socket::get(&Settings::default(), name)
        }
    }
}

/// The settings, with what the stream knows better.
fn as_it_is(held: &Held) -> Settings {
    let mut settings = held.settings().clone();
    if settings.raw {
        raw::describe(held.cookie(), &mut settings);
    }
    if let Some(state) = held.state()
        && settings.mode == Mode::Starting
    {
        settings.role.get_or_insert(match state.options().role {
            stream::Role::Initiator => socket::Role::Initiator,
            stream::Role::Responder => socket::Role::Responder,
        });
        match state.phase() {
            Phase::Starting => {}
            Phase::Framed => settings.mode = Mode::On,
            Phase::Plain => settings.mode = Mode::Off,
            Phase::Ended => {
                let end = state.ended();
                settings.fail(end.map_or(libc::ECONNABORTED, |end| end.errno.0));
                settings.terminate = end.map_or(0, |end| end.code.0);
            }
        }
    }
    settings
}

fn adopt(fd: c_int) -> Result<Held, c_int> {
    real::is_tcp(fd)?;
    socket::adopt(fd, Settings::default())
}

fn set_mode(fd: c_int, held: &Held, settings: &mut Locked<'_>, octets: &[u8]) -> Result<(), c_int> {
    let on = octets.first_chunk().map(|octets| c_int::from_ne_bytes(*octets)).ok_or(EINVAL)?;
    match (on, settings.mode) {
        (0, Mode::Off | Mode::Asked) if !settings.attached => {
            settings.mode = Mode::Off;
            settings.stays_plain = true;
        }
        (1 | 2, Mode::Off) => {
            may_begin(fd, settings)?;
            settings.stays_plain = false;
            settings.raw = on == 2;
            settings.saved = SavedOptions::of(fd);
            match real::tcp_state(fd) {
                // The startup begins with `ddp_begin`.
                Some(real::TCP_ESTABLISHED) if settings.raw => settings.mode = Mode::Starting,
                Some(real::TCP_ESTABLISHED) => framed::establish(fd, held, settings)?,
                _ => settings.mode = Mode::Asked,
            }
        }
        (1 | 2, Mode::Asked) if !settings.attached => settings.raw = on == 2,
        (1 | 2, Mode::Asked | Mode::Starting | Mode::On) if settings.raw == (on == 2) => {}
        _ => return Err(EINVAL),
    }
    Ok(())
}

/// Whether DDPMODE can begin in the state that a socket is in.
fn may_begin(fd: c_int, settings: &Settings) -> Result<(), c_int> {
    match real::tcp_state(fd).ok_or(EINVAL)? {
        // RFC 5044 §7.1: who is initiator on a connection that is there already is the program's to say.
        real::TCP_ESTABLISHED if settings.role.is_none() => Err(EINVAL),
        // What the peer has sent so far is for the program.
        real::TCP_ESTABLISHED if has_octets_for_program(fd, settings) => Err(EBUSY),
        real::TCP_CLOSE | real::TCP_LISTEN | real::TCP_ESTABLISHED => Ok(()),
        real::TCP_SYN_SENT | real::TCP_SYN_RECV => Err(libc::EALREADY),
        _ => Err(ENOTCONN),
    }
}

/// A responder may find the initiator's Request there already.
fn has_octets_for_program(fd: c_int, settings: &Settings) -> bool {
    let mut front = [0; REQUEST_KEY.len()];
    let seen = real::glance(fd, &mut front);
    match settings.role {
        Some(socket::Role::Responder) => !REQUEST_KEY.starts_with(&front[..seen]),
        _ => seen > 0,
    }
}

/// RFC 5044 §7.1.1.
const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";

// linux/fcntl.h and linux/sockios.h; not in `libc`.
const F_SETSIG: c_int = 10;
const F_SETOWN_EX: c_int = 15;
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;
