//! The functions for one socket.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;

use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use nix::errno::Errno;
use socket2::{Domain, SockAddr};

use super::super::border::silent;
use super::super::cm::load;
use super::connection::{Connection, Sizes};
use super::options::Options;
use super::socket::{Phase, Socket, remove, socket};
use crate::errors::Outcome;
use crate::refusal::{Cause, because, told};
use crate::rsocket::Stream;

fn count(outcome: Outcome<usize>) -> ssize_t {
    outcome.map_or_else(|error| silent(Err(error)) as ssize_t, |count| count as ssize_t)
}

fn number(outcome: Outcome<c_int>) -> c_int {
    outcome.unwrap_or_else(|error| silent(Err(error)))
}

fn make(domain: c_int, kind: c_int, protocol: c_int) -> Outcome<c_int> {
    let kind_alone = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    match (domain, kind_alone, protocol) {
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {}
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
            return Err(Cause::Datagrams.refuse(Errno::EOPNOTSUPP));
        }
        _ => return Err(because(Errno::EOPNOTSUPP, "rsockets are streams of IPv4 or IPv6")),
    }
    let options = Options { nonblocking: kind & libc::SOCK_NONBLOCK != 0, ..Options::default() };
    let socket = Socket::publish(Domain::from(domain), Phase::Idle(None), options, Sizes::default())?;
    Ok(socket.number())
}

pub(in crate::c) extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    number(make(domain, kind, protocol).map_err(|error| told("rsocket", error)))
}

pub(in crate::c) unsafe extern "C" fn rbind(fd: c_int, addr: *const sockaddr, _len: socklen_t) -> c_int {
    // SAFETY: the function's contract.
    let addr = unsafe { load(addr) };
    silent(socket(fd).and_then(|socket| socket.bind(addr?)))
}

pub(in crate::c) extern "C" fn rlisten(fd: c_int, backlog: c_int) -> c_int {
    silent(socket(fd).and_then(|socket| socket.listen(backlog)))
}

pub(in crate::c) unsafe extern "C-unwind" fn raccept(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    number(socket(fd).and_then(|socket| socket.accept()).map(|socket| {
        let peer = socket.lock().peer;
        // SAFETY: the function's contract.
        unsafe { tell(peer, addr, len) };
        socket.number()
    }))
}

pub(in crate::c) unsafe extern "C-unwind" fn rconnect(
    fd: c_int,
    addr: *const sockaddr,
    _len: socklen_t,
) -> c_int {
    // SAFETY: the function's contract.
    let addr = unsafe { load(addr) };
    silent(socket(fd).and_then(|socket| socket.connect(addr?)))
}

pub(in crate::c) extern "C" fn rshutdown(fd: c_int, how: c_int) -> c_int {
    silent(socket(fd).and_then(|socket| socket.shutdown(how)))
}

pub(in crate::c) extern "C" fn rclose(fd: c_int) -> c_int {
    silent(remove(fd).map(|socket| socket.close()))
}

/// Stores as much of an address as there is room for.
///
/// # Safety
/// NULL, or a length and as many octets.
unsafe fn tell(addr: Option<SocketAddr>, to: *mut sockaddr, len: *mut socklen_t) {
    if let Some(addr) = addr.map(SockAddr::from).filter(|_| !to.is_null() && !len.is_null()) {
        // SAFETY: promised by the caller.
        unsafe {
            let most = addr.len().min(*len) as usize;
            std::ptr::copy_nonoverlapping(addr.as_ptr().cast::<u8>(), to.cast::<u8>(), most);
            *len = addr.len();
        }
    }
}

pub(in crate::c) unsafe extern "C" fn rgetpeername(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    silent(socket(fd).and_then(|socket| {
        let peer = socket.lock().peer.ok_or(Errno::ENOTCONN)?;
        // SAFETY: the function's contract.
        unsafe { tell(Some(peer), addr, len) };
        Ok(())
    }))
}

pub(in crate::c) unsafe extern "C" fn rgetsockname(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    silent(socket(fd).map(|socket| {
        let state = socket.lock();
        let any = if state.domain == Domain::IPV6 { "[::]:0" } else { "0.0.0.0:0" };
        // SAFETY: the function's contract.
        unsafe { tell(state.local.or_else(|| any.parse().ok()), addr, len) };
    }))
}

fn receive(fd: c_int, out: &mut [u8], flags: c_int) -> Outcome<usize> {
    let (socket, mut done) = (socket(fd)?, 0);
    socket.connected(flags & libc::MSG_DONTWAIT != 0)?;
    let only_look = flags & libc::MSG_PEEK != 0;
    while done < out.len() {
        let rest = &mut out[done..];
        let got = socket.wait(flags & libc::MSG_DONTWAIT != 0, |state| {
            let Some(connection) = state.connection() else { return Some(Err(Errno::ENOTCONN)) };
            let stream = connection.stream.as_ref()?;
            if stream.has_data() {
                return Some(connection.receive(rest, only_look));
            }
            let over = connection.error.take().map_or(Ok(0), Err);
            (!stream.is_readable()).then_some(over)
        });
        match got {
            Err(_) if done > 0 => break,
            Ok(0) => break,
            got => done += got?,
        }
        if only_look || flags & libc::MSG_WAITALL == 0 {
            break;
        }
    }
    Ok(done)
}

fn send(fd: c_int, octets: &[u8], flags: c_int) -> Outcome<usize> {
    send_by(fd, octets, flags, |connection, rest| {
        connection.send(rest).map(|sent| Some(sent).filter(|sent| *sent > 0))
    })
}

/// Sends all of `octets`, or what can be sent at once if the call is not to block. `step` sends the
/// first of them: as many as it returns; of none, the rest has nowhere to go, and where it returns
/// nothing, it is to be tried again.
pub(super) fn send_by(
    fd: c_int,
    octets: &[u8],
    flags: c_int,
    mut step: impl FnMut(&mut Connection, &[u8]) -> Outcome<Option<usize>>,
) -> Outcome<usize> {
    let (socket, mut done) = (socket(fd)?, 0);
    socket.connected(flags & libc::MSG_DONTWAIT != 0)?;
    while done < octets.len() {
        let rest = &octets[done..];
        let sent = socket.wait(flags & libc::MSG_DONTWAIT != 0, |state| {
            let Some(connection) = state.connection() else { return Some(Err(Errno::ENOTCONN)) };
            if !connection.stream.as_ref().is_some_and(Stream::is_writable) {
                return Some(Err(connection.error.take().unwrap_or(Errno::ECONNRESET)));
            }
            step(connection, rest).transpose()
        });
        match sent {
            Err(_) if done > 0 => break,
            Ok(0) => break,
            sent => done += sent?,
        }
    }
    Ok(done)
}

/// # Safety
/// As many octets as `len` says.
pub(super) unsafe fn room<'a>(buf: *mut c_void, len: size_t) -> &'a mut [u8] {
    if len == 0 || buf.is_null() {
        return &mut [];
    }
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts_mut(buf.cast(), len) }
}

pub(in crate::c) unsafe extern "C-unwind" fn rrecv(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the function's contract.
    count(receive(fd, unsafe { room(buf, len) }, flags))
}

pub(in crate::c) unsafe extern "C-unwind" fn rsend(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the function's contract; nothing is written.
    count(send(fd, unsafe { room(buf.cast_mut(), len) }, flags))
}

pub(in crate::c) unsafe extern "C-unwind" fn rread(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the function's contract.
    unsafe { rrecv(fd, buf, len, 0) }
}

pub(in crate::c) unsafe extern "C-unwind" fn rwrite(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the function's contract.
    unsafe { rsend(fd, buf, len, 0) }
}

pub(in crate::c) unsafe extern "C-unwind" fn rrecvfrom(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the function's contract.
    unsafe {
        let got = rrecv(fd, buf, len, flags);
        if got > 0 && !addr.is_null() {
            rgetpeername(fd, addr, addr_len);
        }
        got
    }
}

/// An address is of no use to a stream, and is not looked at.
pub(in crate::c) unsafe extern "C-unwind" fn rsendto(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    _addr: *const sockaddr,
    _addr_len: socklen_t,
) -> ssize_t {
    // SAFETY: the function's contract.
    unsafe { rsend(fd, buf, len, flags) }
}

/// Refuses what is no socket, and a list that is none.
fn check(fd: c_int, list: *const iovec, len: c_int) -> Outcome<()> {
    socket(fd)?;
    match len {
        ..=-1 => Err(Errno::EINVAL),
        1.. if list.is_null() => Err(Errno::EFAULT),
        _ => Ok(()),
    }
}

/// Calls `each` for the parts of a list until one of them is not done whole.
///
/// # Safety
/// As many parts as `parts` says, each with its octets.
unsafe fn parts(list: *const iovec, parts: usize, each: impl Fn(&mut [u8]) -> Outcome<usize>) -> ssize_t {
    let mut done = 0;
    for at in 0..parts {
        // SAFETY: promised by the caller.
        let part = unsafe { room((*list.add(at)).iov_base, (*list.add(at)).iov_len) };
        if part.is_empty() {
            continue;
        }
        match each(part) {
            Ok(count) => {
                done += count;
                if count < part.len() {
                    break;
                }
            }
            Err(error) if done == 0 => return count(Err(error)),
            Err(_) => break,
        }
    }
    count(Ok(done))
}

pub(in crate::c) unsafe extern "C-unwind" fn rreadv(fd: c_int, list: *const iovec, len: c_int) -> ssize_t {
    if let Err(error) = check(fd, list, len) {
        return count(Err(error));
    }
    // SAFETY: the function's contract. Only the first part is waited for.
    unsafe { if len > 0 { rread(fd, (*list).iov_base, (*list).iov_len) } else { 0 } }
}

pub(in crate::c) unsafe extern "C-unwind" fn rwritev(fd: c_int, list: *const iovec, len: c_int) -> ssize_t {
    if let Err(error) = check(fd, list, len) {
        return count(Err(error));
    }
    // SAFETY: the function's contract.
    unsafe { parts(list, len as usize, |part| send(fd, part, 0)) }
}

pub(in crate::c) unsafe extern "C-unwind" fn rrecvmsg(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the function's contract. Only the first part is waited for.
    unsafe {
        let message = &*message;
        if message.msg_controllen > 0 || message.msg_iovlen == 0 {
            return count(Err(Errno::ENOTSUP));
        }
        rrecv(fd, (*message.msg_iov).iov_base, (*message.msg_iov).iov_len, flags)
    }
}

pub(in crate::c) unsafe extern "C-unwind" fn rsendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the function's contract.
    unsafe {
        let message = &*message;
        if message.msg_controllen > 0 {
            return count(Err(Errno::ENOTSUP));
        }
        parts(message.msg_iov, message.msg_iovlen, |part| send(fd, part, flags))
    }
}
