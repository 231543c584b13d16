//! Descriptors whose readiness is this library's to say: one end of a pair of UNIX sockets, which
//! the program has, and the other, which it does not know of.
//!
//! A message without octets is a token. One that waits at the program's end makes that readable; as
//! many as its send buffer takes, on their way from it, make it not writable. Programs that got the
//! descriptor without this library read the end of a stream from tokens, and never an octet.

use std::ffi::c_int;

use rddp_stream::{Errno, SameErrno};

use super::{
    close_number, dup3, duplicate_high, fcntl, hidden, poll, recv, send, set_option, shutdown, socketpair,
};
use crate::Value;

/// Makes a pair: the program's end, and the other, which is hidden and closed by `exec`. Neither
/// end ever sleeps, and the program's is closed by `exec`, too. Leaves errno as it was.
///
/// # Errors
/// The process has no numbers left, or the kernel no memory.
pub fn pair() -> Result<(c_int, c_int), Errno> {
    let mut ends = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let _same = SameErrno::here();
    // SAFETY: the call sets two ints, which live until it returns.
    if unsafe { socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
        return Err(Errno::last());
    }
    let [programs, low] = ends;
    // The kernel makes the smallest buffer of it, which takes few tokens.
    set_option(programs, libc::SOL_SOCKET, libc::SO_SNDBUF, &Value::int(1));
    let ours = duplicate_high(low).inspect(|_| close_number(low)).unwrap_or(low);
    hidden::hide(ours);
    Ok((programs, ours))
}

/// Sends a token from this end; returns whether there was room for it. Leaves errno as it was.
pub fn give_token(end: c_int) -> bool {
    let _same = SameErrno::here();
    // SAFETY: no octets are read.
    unsafe { send(end, std::ptr::null(), 0, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) == 0 }
}

/// Takes a token that has come to this end; returns whether there may have been one. Leaves errno
/// as it was.
pub fn take_token(end: c_int) -> bool {
    let _same = SameErrno::here();
    // SAFETY: no octets are written.
    unsafe { recv(end, std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) == 0 }
}

/// Ends directions of a connection as `shutdown` does. Leaves errno as it was.
pub fn shut(fd: c_int, how: c_int) {
    let _same = SameErrno::here();
    // SAFETY: takes two integers.
    unsafe { shutdown(fd, how) };
}

/// Puts the file of `from` under the number `to`, whose file is closed by that; the number keeps
/// whether `exec` closes it. Leaves errno as it was.
///
/// # Errors
/// The errno of `dup3`.
pub fn put_under(from: c_int, to: c_int) -> Result<(), Errno> {
    let _same = SameErrno::here();
    // SAFETY: `F_GETFD` takes no pointer.
    let flags = unsafe { fcntl(to, libc::F_GETFD, 0) };
    let cloexec = if flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
    // SAFETY: takes three integers.
    let put = unsafe { dup3(from, to, cloexec) };
    if put < 0 { Err(Errno::last()) } else { Ok(()) }
}

/// Has a number closed by `exec`, or not. Leaves errno as it was.
pub fn set_close_on_exec(fd: c_int, is_closed: bool) {
    let _same = SameErrno::here();
    let flags = if is_closed { libc::FD_CLOEXEC } else { 0 };
    // SAFETY: `F_SETFD` takes an int.
    unsafe { fcntl(fd, libc::F_SETFD, flags as usize) };
}

/// Sets or clears `O_NONBLOCK`. Leaves errno as it was.
pub fn set_nonblocking(fd: c_int, on: bool) {
    let _same = SameErrno::here();
    // SAFETY: `F_GETFL` takes no pointer, and `F_SETFL` an int.
    unsafe {
        let flags = fcntl(fd, libc::F_GETFL, 0) & !libc::O_NONBLOCK;
        fcntl(fd, libc::F_SETFL, (flags | if on { libc::O_NONBLOCK } else { 0 }) as usize);
    }
}

/// Sleeps until `fd` has one of `events`, an error or an end, at most so many milliseconds; -1: for
/// any time. Returns whether it has. Leaves errno as it was.
///
/// # Errors
/// The errno of a sleep that failed.
pub fn sleep_for(fd: c_int, events: i16, milliseconds: c_int) -> Result<bool, Errno> {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    let _same = SameErrno::here();
    // SAFETY: one entry, which lives until the call returns.
    let ready = unsafe { poll(&raw mut entry, 1, milliseconds) };
    if ready < 0 { Err(Errno::last()) } else { Ok(ready > 0) }
}

/// Reads octets of a file from a place in it. Leaves errno as it was.
///
/// # Errors
/// The errno of `pread`.
pub fn read_at(fd: c_int, octets: &mut [u8], at: i64) -> Result<usize, Errno> {
    let _same = SameErrno::here();
    // SAFETY: `octets` is borrowed for writing until the call returns.
    let got = unsafe { libc::pread(fd, octets.as_mut_ptr().cast(), octets.len(), at) };
    usize::try_from(got).map_err(|_| Errno::last())
}

/// Moves a file's place; returns the new one. Leaves errno as it was.
///
/// # Errors
/// The errno of `lseek`.
pub fn seek(fd: c_int, by: i64, whence: c_int) -> Result<i64, Errno> {
    let _same = SameErrno::here();
    // SAFETY: takes integers.
    let at = unsafe { libc::lseek(fd, by, whence) };
    if at < 0 { Err(Errno::last()) } else { Ok(at) }
}

/// Returns an option of a socket. Leaves errno as it was.
///
/// # Errors
/// The errno of `getsockopt`.
pub fn option(fd: c_int, level: c_int, name: c_int) -> Result<Value, Errno> {
    let mut octets = [0u8; 512];
    let mut len = octets.len() as libc::socklen_t;
    let _same = SameErrno::here();
    // SAFETY: the kernel writes at most `len` octets, which is the length of the array.
    let got = unsafe { super::getsockopt(fd, level, name, octets.as_mut_ptr().cast(), &raw mut len) };
    if got == 0 { Ok(Value::octets(&octets[..len as usize])) } else { Err(Errno::last()) }
}

/// Sets an option of a socket. Leaves errno as it was.
///
/// # Errors
/// The errno of `setsockopt`.
pub fn try_option(fd: c_int, level: c_int, name: c_int, octets: &[u8]) -> Result<(), Errno> {
    let _same = SameErrno::here();
    let len = octets.len() as libc::socklen_t;
    // SAFETY: the kernel reads as many octets as the slice has.
    let got = unsafe { super::setsockopt(fd, level, name, octets.as_ptr().cast(), len) };
    if got == 0 { Ok(()) } else { Err(Errno::last()) }
}

#[cfg(test)]
mod tests {
    use libc::{POLLHUP, POLLIN, POLLOUT, POLLRDHUP};

    use super::*;
    use crate::{events_now, resolve};

    const ALL: i16 = POLLIN | POLLOUT | POLLRDHUP;

    #[test]
    fn tokens_make_the_programs_end_readable_and_full() {
        resolve();
        let (programs, ours) = pair().unwrap();
        assert_eq!(events_now(programs, ALL), POLLOUT);
        assert!(give_token(ours));
        assert_eq!(events_now(programs, ALL), POLLIN | POLLOUT);
        assert!(take_token(programs) && !take_token(programs));
        let taken = (0..1000).take_while(|_| give_token(programs)).count();
        assert!((1..100).contains(&taken), "{taken}");
        assert_eq!(events_now(programs, ALL), 0);
        while take_token(ours) {}
        assert_eq!(events_now(programs, ALL), POLLOUT);
        shut(ours, libc::SHUT_WR);
        assert_eq!(events_now(programs, ALL), POLLIN | POLLOUT | POLLRDHUP);
        shut(ours, libc::SHUT_RDWR);
        assert_eq!(events_now(programs, ALL), ALL | POLLHUP);
        hidden::close(ours);
        close_number(programs);
    }
}
