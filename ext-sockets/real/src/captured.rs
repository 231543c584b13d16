//! The C library's functions that move octets of a stream, which a capture sees (`RDDP_CAPTURE`).

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;

use libc::{iovec, msghdr, ssize_t};
use rddp_capture::Direction;

pub(super) unsafe extern "C" fn send(fd: c_int, buf: *const c_void, len: usize, flags: c_int) -> ssize_t {
    // SAFETY: the arguments are passed on unchanged to the C library's function of the same
    // contract.
    let sent = unsafe { super::send(fd, buf, len, flags) };
    if rddp_capture::is_on() {
        let piece = iovec { iov_base: buf.cast_mut(), iov_len: len };
        // SAFETY: the octets are as they were during the call.
        unsafe { record(fd, Direction::Sent, &raw const piece, 1, sent) };
    }
    sent
}

pub(super) unsafe extern "C" fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: as in `send`.
    let sent = unsafe { super::sendmsg(fd, msg, flags) };
    if rddp_capture::is_on() {
        // SAFETY: the message and its octets are as they were during the call.
        unsafe { record(fd, Direction::Sent, (*msg).msg_iov, (*msg).msg_iovlen, sent) };
    }
    sent
}

pub(super) unsafe extern "C" fn writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: as in `send`.
    let sent = unsafe { super::writev(fd, pieces, count) };
    if rddp_capture::is_on() {
        // SAFETY: the octets are as they were during the call.
        unsafe { record(fd, Direction::Sent, pieces, count.cast_unsigned() as usize, sent) };
    }
    sent
}

pub(super) unsafe extern "C-unwind" fn recv(
    fd: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
) -> ssize_t {
    let looks = flags & libc::MSG_PEEK != 0;
    if rddp_capture::is_on() && !looks && flags & libc::MSG_TRUNC != 0 {
        return take_dropped(fd, len, flags & !libc::MSG_TRUNC);
    }
    // SAFETY: as in `send`.
    let got = unsafe { super::recv(fd, buf, len, flags) };
    if rddp_capture::is_on() && !looks {
        let piece = iovec { iov_base: buf, iov_len: len };
        // SAFETY: the octets are as they were during the call.
        unsafe { record(fd, Direction::Received, &raw const piece, 1, got) };
    }
    got
}

pub(super) unsafe extern "C" fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: as in `send`.
    let got = unsafe { super::recvmsg(fd, msg, flags) };
    if rddp_capture::is_on() && flags & libc::MSG_PEEK == 0 {
        // SAFETY: the message and its octets are as they were during the call.
        unsafe { record(fd, Direction::Received, (*msg).msg_iov, (*msg).msg_iovlen, got) };
    }
    got
}

pub(super) unsafe extern "C" fn read(fd: c_int, buf: *mut c_void, count: usize) -> ssize_t {
    // SAFETY: as in `send`.
    let got = unsafe { super::read(fd, buf, count) };
    if rddp_capture::is_on() {
        let piece = iovec { iov_base: buf, iov_len: count };
        // SAFETY: the octets are as they were during the call.
        unsafe { record(fd, Direction::Received, &raw const piece, 1, got) };
    }
    got
}

pub(super) unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    // SAFETY: as in `send`.
    let done = unsafe { super::shutdown(fd, how) };
    if rddp_capture::is_on() && done == 0 && how != libc::SHUT_RD {
        // SAFETY: the number was a descriptor just now; see `record`.
        rddp_capture::ended(unsafe { BorrowedFd::borrow_raw(fd) }, Direction::Sent);
    }
    done
}

/// Takes octets off the receive queue that TCP was to drop: the capture wants them.
#[cold]
fn take_dropped(fd: c_int, len: usize, flags: c_int) -> ssize_t {
    let mut room = [0u8; 4096];
    let mut done = 0;
    while done < len {
        let part = room.len().min(len - done);
        // SAFETY: the room is as long as is said, and lives until the call returns.
        let got = unsafe { recv(fd, room.as_mut_ptr().cast(), part, flags) };
        match usize::try_from(got) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(_) if done == 0 => return got,
            Err(_) => break,
        }
    }
    done.cast_signed()
}

/// Records what a call has moved, if it has moved something, or found the end.
///
/// # Safety
/// The pieces, of which there are `count`, can be read by the kernel.
#[cold]
unsafe fn record(fd: c_int, direction: Direction, pieces: *const iovec, count: usize, moved: ssize_t) {
    let Ok(moved) = usize::try_from(moved) else { return };
    // SAFETY: the call on the number has succeeded. If the program has closed it since, the calls
    // on it fail, or name the addresses of another socket.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    // SAFETY: an `IoSlice` is an `iovec` in its form; the caller's promise.
    let pieces = unsafe { std::slice::from_raw_parts(pieces.cast(), count) };
    rddp_capture::record(fd, direction, pieces, moved);
}
