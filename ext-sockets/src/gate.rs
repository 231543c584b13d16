//! What a call on a descriptor comes to: the kernel's own answer, ours, or a framed stream's.
//!
//! The first question of each is whether the descriptor is ours at all, and for nearly all calls that is where it ends. A
//! framed stream plugs in at [`Way`]: as long as [`stream`](crate::stream) is not used here, a socket that asks for one is refused with
//! [`NO_STREAM`].

use std::ffi::{c_int, c_uint};
use std::net::SocketAddr;

use libc::{EBUSY, EINVAL, ENOTCONN, EOPNOTSUPP};

use crate::policy::Side;
use crate::socket::{self, Care, Held, Kept, Mode, Settings, Value};
use crate::{next, switch, table};

/// What a DDPMODE connection gets from a build that does not use the framed stream.
pub const NO_STREAM: c_int = libc::EPROTONOSUPPORT;

/// Where a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Way {
    /// To the C library, as it came.
    Plain,
    /// Back to the program, with this errno.
    Refused(c_int),
}

/// A call that moves octets or waits for them.
#[inline]
pub fn data(fd: c_int) -> Way {
    match socket::hold(fd) {
        // The kernel knows what a socket answers that was never connected.
        Some(held) if !held.is_still_tcp() => framed(fd, held),
        _ => Way::Plain,
    }
}

#[cold]
fn framed(fd: c_int, held: Held) -> Way {
    drop(held);
    let Some(held) = socket::hold_checked(fd) else { return Way::Plain };
    let mut settings = held.settings();
    match settings.mode {
        Mode::Off | Mode::Asked => Way::Plain,
        Mode::Failed => Way::Refused(settings.failure),
        Mode::Starting | Mode::On => {
            settings.fail(NO_STREAM);
            Way::Refused(NO_STREAM)
        }
    }
}

/// A call that moves octets within the kernel: a caller that is told EINVAL moves them itself.
#[inline]
pub fn within_kernel(fd: c_int) -> Way {
    match socket::hold(fd) {
        Some(held) if matches!(held.settings().mode, Mode::Starting | Mode::On | Mode::Failed) => {
            Way::Refused(EINVAL)
        }
        _ => Way::Plain,
    }
}

/// `connect` to what `to` finds out, if that has to be known.
#[inline]
pub fn connect(fd: c_int, to: impl FnOnce() -> Option<SocketAddr>) -> Way {
    if switch::is_on()
        && let Some(addr) = to()
        && let Way::Refused(errno) = switch::apply(fd, Side::Client, addr)
    {
        return Way::Refused(errno);
    }
    match socket::hold_checked(fd) {
        Some(held) if held.settings().mode == Mode::Asked => Way::Refused(NO_STREAM),
        _ => Way::Plain,
    }
}

/// `listen`.
#[inline]
pub fn listen(fd: c_int) -> Way {
    if switch::is_on()
        && let Some(addr) = next::local_address(fd)
    {
        return switch::apply(fd, Side::Server, addr);
    }
    Way::Plain
}

/// `accept` has made `fd` of a connection to `listener`.
pub fn accepted(listener: c_int, fd: c_int) {
    fresh(fd);
    let Some(held) = socket::hold(listener) else { return };
    let settings = held.settings().of_child();
    socket::adopt(fd, settings);
}

/// `fd` is new: whatever was known of this number is of something closed.
#[inline]
pub fn fresh(fd: c_int) {
    socket::forget(fd);
}

/// `fd` is about to be closed.
#[inline]
pub fn closing(fd: c_int) {
    socket::forget(fd);
}

/// All from `first` to `last` are about to be closed.
pub fn closing_range(first: c_uint, last: c_uint) {
    if !table::any() {
        return;
    }
    let clamp = |fd| c_int::try_from(fd).unwrap_or(c_int::MAX);
    table::within(clamp(first), clamp(last)).for_each(socket::forget);
}

/// `to` is now another number of what `from` is.
#[inline]
pub fn duplicated(from: c_int, to: c_int) {
    if from == to {
        return;
    }
    match socket::hold(from) {
        Some(held) => socket::share(&held, to),
        None => fresh(to),
    }
}

/// `fcntl(fd, command, argument)`.
#[inline]
pub fn descriptor_command(fd: c_int, command: c_int, argument: usize) -> Way {
    let asynchronous = match command {
        libc::F_SETOWN | F_SETSIG | F_SETOWN_EX => true,
        libc::F_SETFL => argument as c_int & libc::O_ASYNC != 0,
        _ => false,
    };
    if asynchronous { refused_in_ddpmode(fd) } else { Way::Plain }
}

/// `ioctl(fd, request, ...)`.
#[inline]
pub fn device_command(fd: c_int, request: u64) -> Way {
    if [libc::FIOASYNC, FIOSETOWN, SIOCSPGRP].contains(&request) {
        refused_in_ddpmode(fd)
    } else {
        Way::Plain
    }
}

/// A signal for each FPDU that arrives would be one for nothing.
fn refused_in_ddpmode(fd: c_int) -> Way {
    match socket::hold(fd) {
        Some(held) if held.is_in_ddpmode() => Way::Refused(EINVAL),
        _ => Way::Plain,
    }
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
        Care::Ours => Some(settings.kept.set(level, name, octets)),
        Care::Nobody => Some(Err(libc::ENOPROTOOPT)),
    }
}

/// `getsockopt`: `None` when the kernel is to be asked.
pub fn option(fd: c_int, level: c_int, name: c_int) -> Option<Result<Value, c_int>> {
    if level == socket::SOL_DDP {
        return Some(our_option(fd, name));
    }
    let held = socket::hold(fd)?;
    let settings = held.settings();
    match of_mode(&settings, level, name) {
        Care::Kernel => None,
        Care::Ours => Some(settings.kept.get(level, name)),
        Care::Nobody => Some(Err(libc::ENOPROTOOPT)),
    }
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
    match name {
        socket::DDPMODE => set_mode(fd, &mut settings, octets),
        _ => socket::set(&mut settings, name, octets),
    }
}

fn our_option(fd: c_int, name: c_int) -> Result<Value, c_int> {
    match socket::hold_checked(fd) {
        Some(held) => socket::get(&held.settings(), name),
        None => {
            is_tcp(fd)?;
            socket::get(&Settings::default(), name)
        }
    }
}

fn adopt(fd: c_int) -> Result<Held, c_int> {
    is_tcp(fd)?;
    socket::adopt(fd, Settings::default()).ok_or(libc::ENOBUFS)
}

/// Whether DDPMODE makes any sense here; the errno otherwise.
pub(crate) fn is_tcp(fd: c_int) -> Result<(), c_int> {
    let of_socket = |name| next::int_option(fd, libc::SOL_SOCKET, name);
    // The kernel's own errno for no descriptor, or one that is no socket.
    let kind = of_socket(libc::SO_TYPE).ok_or_else(|| next::why_no_socket(fd))?;
    let protocol = of_socket(libc::SO_PROTOCOL);
    let inet = matches!(of_socket(libc::SO_DOMAIN), Some(libc::AF_INET | libc::AF_INET6));
    let tcp = kind == libc::SOCK_STREAM && protocol == Some(libc::IPPROTO_TCP);
    if inet && tcp { Ok(()) } else { Err(EOPNOTSUPP) }
}

fn set_mode(fd: c_int, settings: &mut Settings, octets: &[u8]) -> Result<(), c_int> {
    let on = octets.first_chunk().map(|octets| c_int::from_ne_bytes(*octets)).ok_or(EINVAL)?;
    match (on, settings.mode) {
        (0, Mode::Off | Mode::Asked) => settings.mode = Mode::Off,
        (1, Mode::Off) => {
            settings.mode = begin(fd, settings)?;
            settings.kept = Kept::of(fd);
        }
        (1, Mode::Asked | Mode::Starting | Mode::On) => {}
        _ => return Err(EINVAL),
    }
    Ok(())
}

/// What DDPMODE means to a socket in the state that it is in.
fn begin(fd: c_int, settings: &Settings) -> Result<Mode, c_int> {
    match next::tcp_state(fd).ok_or(EINVAL)? {
        next::TCP_CLOSE | TCP_LISTEN => Ok(Mode::Asked),
        // RFC 5044 §7.1: who is initiator on a connection that is there already is the program's to say.
        TCP_ESTABLISHED if settings.role.is_none() => Err(EINVAL),
        // What the peer has sent so far is no startup frame.
        TCP_ESTABLISHED if next::unread(fd) != Some(0) => Err(EBUSY),
        TCP_ESTABLISHED => Ok(Mode::Starting),
        TCP_SYN_SENT | TCP_SYN_RECV => Err(libc::EALREADY),
        _ => Err(ENOTCONN),
    }
}

const TCP_ESTABLISHED: u8 = 1;
const TCP_SYN_SENT: u8 = 2;
const TCP_SYN_RECV: u8 = 3;
const TCP_LISTEN: u8 = 10;

// linux/fcntl.h and linux/sockios.h; not in `libc`.
const F_SETSIG: c_int = 10;
const F_SETOWN_EX: c_int = 15;
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;
