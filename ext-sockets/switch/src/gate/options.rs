//! `setsockopt` and `getsockopt`: our own options, and those of TCP that a socket of ours answers
//! itself.

use std::ffi::c_int;

use rddp_real::{self as real, Value};
use rddp_stream::{Errno, Linger, Role, State};

use crate::kinds::Ours;
use crate::socket::{self, Care, Held, KindId, Locked, Mode, SavedOptions, Settings};
use crate::{table, wait};

/// Returns whether [`set_option`] and [`option`] must be asked.
#[inline]
pub fn answers_options(fd: c_int, level: c_int) -> bool {
    level == socket::SOL_DDP || table::entry(fd).is_some()
}

/// Makes `setsockopt`; `None` when the kernel is to be asked.
pub fn set_option(fd: c_int, level: c_int, name: c_int, octets: &[u8]) -> Option<Result<(), Errno>> {
    if level == socket::SOL_DDP {
        return Some(set_our_option(fd, name, octets));
    }
    let held = socket::hold(fd)?;
    let ours = Ours::new(held, fd);
    let mut settings = ours.held().settings();
    if let Some(set) = socket::old_sdp::set(&mut settings, level, name, octets) {
        return Some(set.map(|()| ours.apply(&settings)));
    }
    if (level, name) == (libc::SOL_SOCKET, libc::SO_LINGER) && replaces_linger(&ours, octets) {
        return Some(Ok(()));
    }
    match care(&ours, &settings, level, name) {
        Care::Kernel => {
            drop(settings);
            Some(real::try_option(ours.kernels()?, level, name, octets))
        }
        Care::Ours => Some(settings.saved.set(level, name, octets).map(|()| ours.apply(&settings))),
        Care::KernelTells | Care::Nobody => Some(Err(Errno(libc::ENOPROTOOPT))),
    }
}

/// Makes `getsockopt`; `None` when the kernel is to be asked.
pub fn option(fd: c_int, level: c_int, name: c_int) -> Option<Result<Value, Errno>> {
    if level == socket::SOL_DDP {
        return Some(our_option(fd, name));
    }
    let ours = Ours::new(socket::hold(fd)?, fd);
    if (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) {
        return ours.take_error().map(|Errno(number)| Ok(Value::int(number)));
    }
    if (level, name) == (libc::SOL_SOCKET, libc::SO_LINGER)
        && let Some(Linger { on, seconds }) = ours.held().state().and_then(State::linger)
    {
        let octets = [on.to_ne_bytes(), seconds.to_ne_bytes()].concat();
        return Some(Ok(Value::octets(&octets)));
    }
    let settings = ours.held().settings();
    if let Some(value) = socket::old_sdp::get(&settings, level, name) {
        return Some(Ok(value));
    }
    match care(&ours, &settings, level, name) {
        Care::Kernel | Care::KernelTells => Some(real::option(ours.kernels()?, level, name)),
        Care::Ours => Some(settings.saved.get(level, name)),
        Care::Nobody => Some(Err(Errno(libc::ENOPROTOOPT))),
    }
}

/// Sets `SO_LINGER` of a stream that has put another value into the kernel. Returns whether it has,
/// and the value is one.
fn replaces_linger(ours: &Ours, octets: &[u8]) -> bool {
    let Some(state) = ours.held().state() else { return false };
    let Some((on, rest)) = octets.split_first_chunk() else { return false };
    let Some((seconds, _)) = rest.split_first_chunk() else { return false };
    state.set_linger(Linger { on: c_int::from_ne_bytes(*on), seconds: c_int::from_ne_bytes(*seconds) })
}

/// Returns the party that answers for an option of TCP sockets.
fn care(ours: &Ours, settings: &Settings, level: c_int, name: c_int) -> Care {
    match settings.mode {
        Mode::Off => Care::Kernel,
        _ => ours.care(level, name),
    }
}

fn set_our_option(fd: c_int, name: c_int, octets: &[u8]) -> Result<(), Errno> {
    let held = match socket::hold_checked(fd) {
        Some(held) => held,
        None => adopt(fd)?,
    };
    let mut settings = held.settings();
    if name != socket::DDPMODE {
        socket::set(&mut settings, name, octets)?;
        held.set_threaded(settings.is_threaded());
        let of_live_streams =
            [socket::DDP_SDP_SOURCE_THRESHOLD, socket::DDP_SDP_SINK_THRESHOLD, socket::DDP_SDP_MODE];
        if of_live_streams.contains(&name) {
            Ours::of_kind(settings.kind, held.clone(), fd).apply(&settings);
        }
        return Ok(());
    }
    set_mode(fd, &held, &mut settings, octets)?;
    drop(settings);
    wait::kind_changed(&held, fd);
    Ok(())
}

fn our_option(fd: c_int, name: c_int) -> Result<Value, Errno> {
    let Some(held) = socket::hold_checked(fd) else {
        real::is_tcp(fd)?;
        if name == socket::DDP_SDP_INFO {
            return Ok(socket::sdp_info(false, None));
        }
        if name == socket::DDP_PLACEMENT_INFO {
            return Ok(socket::placement_info(&Settings::DEFAULT, None));
        }
        return socket::get(&Settings::default(), name);
    };
    let ours = Ours::new(held, fd);
    if name == socket::DDP_PEER_PRIVATE_DATA {
        return Ok(ours.peer_private_data());
    }
    if name == socket::DDP_SDP_INFO {
        let is_sdp = held_speaks_sdp(&ours);
        return Ok(socket::sdp_info(is_sdp, ours.sdp_info()));
    }
    if name == socket::DDP_PLACEMENT_INFO {
        let counts = ours.kernel_counts();
        return Ok(socket::placement_info(&ours.held().settings(), counts));
    }
    let mut settings = ours.held().settings().clone();
    ours.describe(&mut settings);
    socket::get(&settings, name)
}

/// Returns whether the socket speaks SDP, or will when it is connected.
fn held_speaks_sdp(ours: &Ours) -> bool {
    matches!(ours.held().kind(), KindId::Sdp | KindId::Device) && ours.held().is_in_ddpmode()
}

fn adopt(fd: c_int) -> Result<Held, Errno> {
    real::is_tcp(fd)?;
    socket::adopt(fd, Settings::default())
}

fn set_mode(fd: c_int, held: &Held, settings: &mut Locked<'_>, octets: &[u8]) -> Result<(), Errno> {
    let on = octets.first_chunk().map(|octets| c_int::from_ne_bytes(*octets)).ok_or(Errno::INVALID)?;
    let kind = KindId::of_ddpmode(on);
    // The startup frames of SDP hold its own private data: Hello and HelloAck.
    if kind == Some(KindId::Sdp) && settings.private_data.is_some() {
        return Err(Errno::INVALID);
    }
    match (kind, settings.mode) {
        (None, Mode::Off | Mode::Asked) if on == 0 && !settings.attached => {
            settings.mode = Mode::Off;
            settings.stays_plain = true;
        }
        (Some(kind), Mode::Off) if may_be(held, kind) => {
            may_begin(fd, settings)?;
            settings.stays_plain = false;
            settings.kind = kind;
            settings.saved = SavedOptions::of(fd);
            match real::tcp_state(fd) {
                Some(real::TCP_ESTABLISHED) => {
                    Ours::of_kind(kind, held.clone(), fd).established(settings)?;
                }
                _ => settings.mode = Mode::Asked,
            }
        }
        (Some(kind), Mode::Asked) if !settings.attached && may_be(held, kind) => settings.kind = kind,
        (Some(kind), Mode::Asked | Mode::Starting | Mode::On) if settings.kind == kind => {}
        _ => return Err(Errno::INVALID),
    }
    Ok(())
}

/// Returns whether the socket has no stream yet, or one of this kind: the stream of a connect that
/// has failed is kept for the next.
fn may_be(held: &Held, kind: KindId) -> bool {
    held.state().is_none_or(|state| KindId::of_stream(&state.options()) == kind)
}

/// Checks that DDPMODE can begin in the socket's present state.
fn may_begin(fd: c_int, settings: &Settings) -> Result<(), Errno> {
    match real::tcp_state(fd).ok_or(Errno::INVALID)? {
        // RFC 5044 §7.1: on a connection that exists already, the program chooses the initiator.
        real::TCP_ESTABLISHED if settings.role.is_none() => Err(Errno::INVALID),
        // Octets that the peer has sent before DDPMODE are for the program.
        real::TCP_ESTABLISHED if has_octets_for_program(fd, settings) => Err(Errno(libc::EBUSY)),
        real::TCP_CLOSE | real::TCP_LISTEN | real::TCP_ESTABLISHED => Ok(()),
        real::TCP_SYN_SENT | real::TCP_SYN_RECV => Err(Errno(libc::EALREADY)),
        _ => Err(Errno(libc::ENOTCONN)),
    }
}

/// Returns whether octets have come that are not MPA's. A responder may find the initiator's
/// Request there already.
fn has_octets_for_program(fd: c_int, settings: &Settings) -> bool {
    let mut front = [0; REQUEST_KEY.len()];
    let seen = real::peek(fd, &mut front);
    match settings.role {
        Some(Role::Responder) => !REQUEST_KEY.starts_with(&front[..seen]),
        _ => seen > 0,
    }
}

/// The first octets of a Request (RFC 5044 §7.1.1).
const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    use rddp_stream::{Options, SharedState};

    use super::*;

    #[test]
    fn a_socket_whose_stream_is_kept_for_another_connect_keeps_its_kind() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let fd = tcp.as_raw_fd();
        let settings = Settings { mode: Mode::Asked, kind: KindId::Framed, ..Settings::default() };
        let held = socket::adopt(fd, settings).unwrap();
        let set = |value: c_int| set_mode(fd, &held, &mut held.settings(), &value.to_ne_bytes());
        assert_eq!((set(3), set(1)), (Ok(()), Ok(())), "there is no stream yet");
        held.set_state(SharedState::anonymous(&Options::new(Role::Initiator)).unwrap());
        assert_eq!((set(3), held.kind()), (Err(Errno::INVALID), KindId::Framed));
        assert_eq!((set(0), set(3), held.kind()), (Ok(()), Err(Errno::INVALID), KindId::Framed));
        assert_eq!(set(1), Ok(()));
        held.settings().kind = KindId::Sdp;
        let connecting = Ours::new(held.clone(), fd).connecting(None);
        assert_eq!(connecting, Err(Errno::INVALID), "as a policy would have it");
        socket::forget(fd);
    }
}
