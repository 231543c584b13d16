//! Options of sockets.

use std::ffi::{c_int, c_void};

use nix::errno::Errno;

use super::super::border::silent;
use super::connection::Sizes;
use super::socket::{Phase, socket};
use crate::errors::Outcome;
use crate::rsocket::announced;

/// Options that a program may set and ask for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    pub(super) nonblocking: bool,
    pub(super) v6_only: bool,
    /// Options without effect here: small writes are never held back, ports are always reused, and
    /// TCP's own keepalive is the device's.
    pub(super) no_delay: bool,
    pub(super) reuse: bool,
    pub(super) keepalive: bool,
    pub(super) linger: bool,
}

/// `SOL_RDMA` and its options.
const RDMA: c_int = 0x10000;
const SQSIZE: c_int = 0;
const RQSIZE: c_int = 1;
const INLINE: c_int = 2;
const IOMAPSIZE: c_int = 3;
const ROUTE: c_int = 4;

fn switch(options: &mut Options, level: c_int, name: c_int) -> Option<&mut bool> {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_REUSEPORT) => Some(&mut options.reuse),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => Some(&mut options.keepalive),
        (libc::SOL_SOCKET, libc::SO_LINGER | libc::SO_OOBINLINE) => Some(&mut options.linger),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => Some(&mut options.no_delay),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => Some(&mut options.v6_only),
        _ => None,
    }
}

fn narrow(value: c_int) -> Outcome<u16> {
    u16::try_from(value).map_err(|_| Errno::EINVAL)
}

fn set_size(sizes: &mut Sizes, level: c_int, name: c_int, value: c_int) -> Outcome<()> {
    let buffer = || u32::try_from(value).map(|size| size.clamp(2048, 1 << 28)).map_err(|_| Errno::EINVAL);
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => sizes.send_buffer = buffer()?,
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => sizes.receive_buffer = buffer()?,
        (RDMA, SQSIZE) => sizes.sends = narrow(value)?,
        (RDMA, RQSIZE) => sizes.receives = narrow(value)?,
        (RDMA, INLINE) => sizes.inline = narrow(value)?,
        (RDMA, IOMAPSIZE) => sizes.mappings = announced(narrow(value)?),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) | (RDMA, ROUTE) => {}
        _ => return Err(Errno::ENOTSUP),
    }
    Ok(())
}

fn set(number: c_int, level: c_int, name: c_int, value: c_int) -> Outcome<()> {
    let socket = socket(number)?;
    let mut state = socket.lock();
    if let Some(switch) = switch(&mut state.options, level, name) {
        *switch = value != 0;
        return Ok(());
    }
    // Sizes of a connection stay; programs set them late all the same.
    let is_made = matches!(state.phase, Phase::Connecting(_) | Phase::Connected(_));
    let mut sizes = state.sizes;
    set_size(&mut sizes, level, name, value)?;
    if !is_made {
        state.sizes = sizes;
    } else if level == RDMA && name != ROUTE {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

pub(in crate::c) unsafe extern "C" fn rsetsockopt(
    number: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: libc::socklen_t,
) -> c_int {
    let is_whole = !value.is_null() && len as usize >= size_of::<c_int>();
    // SAFETY: the function's contract: as many octets as `len` says.
    let value = is_whole.then(|| unsafe { value.cast::<c_int>().read_unaligned() });
    silent(value.ok_or(Errno::EINVAL).and_then(|value| set(number, level, name, value)))
}

fn get(number: c_int, level: c_int, name: c_int) -> Outcome<c_int> {
    let socket = socket(number)?;
    let mut state = socket.lock();
    if let Some(switch) = switch(&mut state.options, level, name) {
        return Ok((*switch).into());
    }
    Ok(match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => {
            let error = state.error.take();
            let later = || state.connection().and_then(|connection| connection.error.take());
            error.or_else(later).map_or(0, |error| error as c_int)
        }
        (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => state.sizes.send_buffer as c_int,
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => state.sizes.receive_buffer as c_int,
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => 1460,
        (RDMA, SQSIZE) => state.sizes.sends.into(),
        (RDMA, RQSIZE) => state.sizes.receives.into(),
        (RDMA, INLINE) => state.sizes.inline.into(),
        (RDMA, IOMAPSIZE) => state.sizes.mappings.into(),
        _ => return Err(Errno::ENOTSUP),
    })
}

pub(in crate::c) unsafe extern "C" fn rgetsockopt(
    number: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut libc::socklen_t,
) -> c_int {
    silent(get(number, level, name).and_then(|found| {
        // SAFETY: the function's contract: NULL, or a length and as many octets.
        unsafe {
            if value.is_null() || len.is_null() || (*len as usize) < size_of::<c_int>() {
                return Err(Errno::EINVAL);
            }
            value.cast::<c_int>().write_unaligned(found);
            *len = size_of::<c_int>() as libc::socklen_t;
        }
        Ok(())
    }))
}

/// Sets or returns whether the socket is non-blocking, which is all that there is. The argument is
/// of the length that programs pass for these commands.
pub(in crate::c) extern "C" fn rfcntl(number: c_int, command: c_int, flags: c_int) -> c_int {
    let done = socket(number).and_then(|socket| {
        let mut state = socket.lock();
        match command {
            libc::F_GETFL => Ok(libc::O_RDWR | if state.options.nonblocking { libc::O_NONBLOCK } else { 0 }),
            libc::F_SETFL => {
                state.options.nonblocking = flags & libc::O_NONBLOCK != 0;
                Ok(0)
            }
            _ => Err(Errno::ENOTSUP),
        }
    });
    done.unwrap_or_else(|error| silent(Err(error)))
}
