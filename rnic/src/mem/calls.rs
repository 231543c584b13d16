//! The system calls that move octets, which a capture sees (`RDDP_CAPTURE`).
//!
//! They are functions of their own, so that what calls them stays as short as without.

use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, iovec, msghdr, ssize_t};
use rddp_capture::Direction;

/// Calls `send` on one piece.
///
/// # Safety
/// As of `send`.
#[inline(never)]
pub(super) unsafe fn send(fd: BorrowedFd<'_>, piece: iovec, flags: c_int) -> ssize_t {
    // SAFETY: what the caller promises of the piece or the message.
    let sent = unsafe { libc::send(fd.as_raw_fd(), piece.iov_base, piece.iov_len, flags) };
    if rddp_capture::is_on() {
        // SAFETY: the octets are as they were during the call.
        unsafe { record(fd, Direction::Sent, &raw const piece, 1, sent) };
    }
    sent
}

/// Calls `sendmsg`.
///
/// # Safety
/// As of `sendmsg`.
#[inline(never)]
pub(super) unsafe fn sendmsg(fd: BorrowedFd<'_>, message: &msghdr, flags: c_int) -> ssize_t {
    // SAFETY: what the caller promises of the piece or the message.
    let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), message, flags) };
    if rddp_capture::is_on() {
        // SAFETY: the octets are as they were during the call.
        unsafe { record(fd, Direction::Sent, message.msg_iov, message.msg_iovlen, sent) };
    }
    sent
}

/// Calls `recv` into one piece.
///
/// # Safety
/// As of `recv`.
#[inline(never)]
pub(super) unsafe fn recv(fd: BorrowedFd<'_>, piece: iovec, flags: c_int) -> ssize_t {
    // SAFETY: what the caller promises of the piece or the message.
    let got = unsafe { libc::recv(fd.as_raw_fd(), piece.iov_base, piece.iov_len, flags) };
    if rddp_capture::is_on() {
        // SAFETY: the octets are as they were during the call.
        unsafe { record(fd, Direction::Received, &raw const piece, 1, got) };
    }
    got
}

/// Calls `recvmsg`.
///
/// # Safety
/// As of `recvmsg`.
#[inline(never)]
pub(super) unsafe fn recvmsg(fd: BorrowedFd<'_>, message: &mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: what the caller promises of the piece or the message.
    let got = unsafe { libc::recvmsg(fd.as_raw_fd(), message, flags) };
    if rddp_capture::is_on() {
        // SAFETY: the octets are as they were during the call.
        unsafe { record(fd, Direction::Received, message.msg_iov, message.msg_iovlen, got) };
    }
    got
}

/// Records what a call has moved, if it has moved something.
///
/// # Safety
/// The pieces, of which there are `count`, can be read by the kernel.
#[cold]
unsafe fn record(
    fd: BorrowedFd<'_>,
    direction: Direction,
    pieces: *const iovec,
    count: usize,
    moved: ssize_t,
) {
    if let Ok(moved) = usize::try_from(moved) {
        // SAFETY: an `IoSlice` is an `iovec` in its form; the caller's promise.
        let pieces = unsafe { std::slice::from_raw_parts(pieces.cast(), count) };
        rddp_capture::record(fd, direction, pieces, moved);
    }
}
