//! Calls that set a socket up, ask about it, or end it.

use std::ffi::{c_int, c_void};

use libc::{sockaddr, socklen_t};
use rddp_es_api::exs;
use rddp_real as real;
use rddp_stream::{Errno, lent};
use rddp_switch::gate;
use rddp_switch::table;

use crate::hook::{answer, beside, returned};

/// Stands before the C library's `bind`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    let kernels = beside(|| gate::kernel_address(fd, addr, len));
    let (addr, len) = kernels.as_ref().map_or((addr, len), real::Address::as_c);
    // SAFETY: the program's own arguments, or an address of ours that is as long as it says.
    unsafe { real::bind(fd, addr, len) }
}

/// Stands before the C library's `listen`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    if let Some(result) = answer(|| gate::listen(fd, backlog).map(|()| 0)) {
        return result;
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::listen(fd, backlog) }
}

/// Stands before the C library's `getsockname`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    if table::entry(fd).is_some()
        // SAFETY: the program's pointers, as `getsockname` takes them.
        && let Some(result) = answer(|| unsafe { give_name(gate::name(fd, false)?, addr, len) })
    {
        return result;
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::getsockname(fd, addr, len) }
}

/// Stands before the C library's `getpeername`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    if table::entry(fd).is_some()
        // SAFETY: the program's pointers, as `getpeername` takes them.
        && let Some(result) = answer(|| unsafe { give_name(gate::name(fd, true)?, addr, len) })
    {
        return result;
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::getpeername(fd, addr, len) }
}

/// Writes as much of an address as the program has room for, and its length.
///
/// # Safety
///
/// `len` is null or points to the room at `addr`.
pub(crate) unsafe fn give_name(
    name: std::net::SocketAddr,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> Result<c_int, Errno> {
    let name = real::Address::of(name);
    // SAFETY: the program's room and its length; `give` fails where no memory is.
    unsafe {
        give(name.octets(), addr.cast(), len)?;
        lent::put(len, name.octets().len() as socklen_t)?;
    }
    Ok(0)
}

/// Stands before the C library's `shutdown`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    if let Some(result) = answer(|| gate::data(fd).ours()?.shutdown(how).map(|()| 0)) {
        return result;
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::shutdown(fd, how) }
}

/// Stands before the C library's `connect`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    let kernels = beside(|| gate::kernel_address(fd, addr, len));
    let (addr, len) = kernels.as_ref().map_or((addr, len), real::Address::as_c);
    // SAFETY: the program's own arguments, or an address of ours that is as long as it says.
    unsafe { connect_framed(fd, addr, len).unwrap_or_else(|| real::connect(fd, addr, len)) }
}

/// Connects a socket that is to be in DDPMODE, by option or by the policy; `None` for any other
/// socket.
///
/// # Safety
///
/// As for `connect`.
pub(crate) unsafe fn connect_framed(fd: c_int, addr: *const sockaddr, len: socklen_t) -> Option<c_int> {
    answer(|| {
        let connecting = gate::connect(fd, || real::address_of(addr, len)).ours()?;
        if let Some(result) = connecting.connects() {
            return result.map(|()| 0);
        }
        // SAFETY: the program's own arguments, passed on unchanged.
        let result = unsafe { real::connect(fd, addr, len) };
        connecting.connected(if result == 0 { Ok(()) } else { Err(Errno::last()) }).map(|()| 0)
    })
}

/// Stands before the C library's `setsockopt`; see rddp/ddp.h for the options of DDPMODE.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: the program's pointer and length, as `setsockopt` takes them.
    let octets = || unsafe { octets(value.cast(), len as usize) }.ok_or(Errno::FAULT);
    if exs::answers_option(level, name) {
        return returned(|| exs::set_option(fd, name, octets()?).map(|()| 0));
    }
    if gate::answers_options(fd, level) {
        let set = || gate::set_option(fd, level, name, octets()?).unwrap_or(Err(Errno::PLAIN)).map(|()| 0);
        if let Some(result) = answer(set) {
            return result;
        }
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::setsockopt(fd, level, name, value, len) }
}

/// Stands before the C library's `getsockopt`; see rddp/ddp.h for the options of DDPMODE.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    if exs::answers_option(level, name) {
        // SAFETY: the program's pointers, as `getsockopt` takes them.
        return returned(|| unsafe { give(&exs::option(fd, name)?, value.cast(), len) });
    }
    if gate::answers_options(fd, level) {
        let ours = answer(|| {
            let octets = gate::option(fd, level, name).unwrap_or(Err(Errno::PLAIN))?;
            // SAFETY: the program's pointers, as `getsockopt` takes them.
            unsafe { give(&octets, value.cast(), len) }
        });
        if let Some(result) = ours {
            return result;
        }
    }
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_INFO) && table::entry(fd).is_some() {
        // SAFETY: the program's pointers, as `getsockopt` takes them.
        return unsafe { info_of_ours(fd, value, len) };
    }
    // SAFETY: the program's own arguments, passed on unchanged. The call comes last so that it
    // needs no frame (see `data::moving`).
    unsafe { real::getsockopt(fd, level, name, value, len) }
}

/// Answers `TCP_INFO` for a socket of ours.
///
/// # Safety
///
/// As in C.
#[cold]
#[inline(never)]
unsafe fn info_of_ours(fd: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int {
    // SAFETY: the program's own arguments, passed on unchanged.
    let result = unsafe { real::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, value, len) };
    if result == 0 {
        // SAFETY: the kernel has just written as many octets as `len` says.
        beside(|| unsafe { count_unsent(fd, value.cast(), *len) });
    }
    result
}

/// Adds octets that wait in this library, which TCP has not got yet, to the unsent octets of a
/// `tcp_info`.
///
/// # Safety
///
/// `len` octets are at `info`.
unsafe fn count_unsent(fd: c_int, info: *mut u8, len: socklen_t) {
    if len as usize >= NOTSENT + size_of::<u32>() {
        // SAFETY: the field lies within the `len` octets at `info`, as was checked; it need not be
        // aligned.
        unsafe {
            let place = info.add(NOTSENT).cast::<u32>();
            place.write_unaligned(place.read_unaligned().saturating_add(gate::unsent(fd) as u32));
        }
    }
}

/// Offset of `tcpi_notsent_bytes` in `TCP_INFO` (linux/tcp.h).
const NOTSENT: usize = 144;

/// Returns the option's octets that the program gives; `None` for a null pointer to some.
///
/// # Safety
///
/// `value` is null or `len` octets are there.
unsafe fn octets<'a>(value: *const u8, len: usize) -> Option<&'a [u8]> {
    match (value.is_null(), len) {
        (_, 0) => Some(&[]),
        (true, _) => None,
        _ if lent::check(value, len).is_err() => None,
        // SAFETY: not null, so the program has put `len` octets there, which stay for the call.
        _ => Some(unsafe { std::slice::from_raw_parts(value, len) }),
    }
}

/// Writes as many of these octets as the program has room for.
///
/// # Safety
///
/// `len` is null or points to the room at `value`.
unsafe fn give(octets: &[u8], value: *mut u8, len: *mut socklen_t) -> Result<c_int, Errno> {
    if len.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: null or the program's; `lent` fails where no memory is.
    let room = unsafe { lent::get(len) }.map_err(|_| Errno::FAULT)?;
    if (room as c_int) < 0 {
        return Err(Errno::INVALID);
    }
    let count = octets.len().min(room as usize);
    if value.is_null() && count != 0 {
        return Err(Errno::FAULT);
    }
    // SAFETY: the program has room for `count` octets at `value`, and a length at `len`; `lent`
    // fails where no memory is.
    unsafe {
        lent::check_room(value, count)?;
        value.copy_from_nonoverlapping(octets.as_ptr(), count);
        lent::put(len, count as socklen_t)?;
    }
    Ok(0)
}
