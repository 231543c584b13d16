//! Vectored socket calls that take octets from registered memory, or put them there, without a copy in between.
//!
//! They never block and raise no `SIGPIPE`. Each takes as many pieces as the kernel takes at once, so like any short
//! write it may do less than asked; empty pieces are skipped.

use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::Grant;

/// Octets to send.
pub enum Piece<'a> {
    /// Our own.
    Own(&'a [u8]),
    /// Part of what is granted.
    Granted(&'a Grant, Range<usize>),
}

/// Room for octets to receive.
pub enum PieceMut<'a> {
    /// Our own.
    Own(&'a mut [u8]),
    /// Part of what is granted for writing.
    Granted(&'a Grant, Range<usize>),
}

/// How to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendFlags {
    /// More follows at once: do not send a short TCP segment yet (`MSG_MORE`).
    pub more: bool,
    /// End the TCP segment here: what follows starts a new one (`MSG_EOR`).
    pub eor: bool,
}

impl SendFlags {
    fn bits(self) -> libc::c_int {
        let more = if self.more { libc::MSG_MORE } else { 0 };
        let eor = if self.eor { libc::MSG_EOR } else { 0 };
        libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | more | eor
    }
}

/// Sends what the socket takes of `pieces`; `WouldBlock` when that is nothing.
pub fn send_vectored(fd: BorrowedFd<'_>, pieces: &[Piece<'_>], flags: SendFlags) -> io::Result<usize> {
    let mut vector = Vector::new();
    for piece in pieces.iter().take(MAX_PIECES) {
        match piece {
            Piece::Own(octets) => vector.push(octets.as_ptr().cast_mut(), octets.len()),
            Piece::Granted(grant, range) => vector.push(grant.at(range).as_ptr(), range.len()),
        }
    }
    let message = vector.message();
    // Not all of the pieces are here: the segment must not end.
    let flags = if pieces.len() > MAX_PIECES { SendFlags { more: true, eor: false } } else { flags };
    // SAFETY: the vector's pieces are borrowed slices or ranges that grants found in live memory, all held until the
    // call returns, and it only reads them.
    retry(|| unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, flags.bits()) })
}

/// Receives what the socket has, up to what fits into `pieces`. 0 when the peer has finished sending, `WouldBlock` when
/// nothing is there now.
pub fn recv_vectored(fd: BorrowedFd<'_>, pieces: &mut [PieceMut<'_>]) -> io::Result<usize> {
    let mut vector = Vector::new();
    for piece in pieces.iter_mut().take(MAX_PIECES) {
        match piece {
            PieceMut::Own(room) => vector.push(room.as_mut_ptr(), room.len()),
            PieceMut::Granted(grant, range) => vector.push(grant.at_mut(range).as_ptr(), range.len()),
        }
    }
    let mut message = vector.message();
    // SAFETY: the vector's pieces are exclusively borrowed slices or ranges that grants found in live memory open to
    // writing, all held until the call returns.
    retry(|| unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) })
}

/// The kernel's limit (`UIO_MAXIOV`).
const MAX_PIECES: usize = 1024;

/// The pieces as the kernel wants them, without allocation.
struct Vector {
    pieces: [MaybeUninit<libc::iovec>; MAX_PIECES],
    len: usize,
}

impl Vector {
    #[inline]
    fn new() -> Self {
        Self { pieces: [const { MaybeUninit::uninit() }; MAX_PIECES], len: 0 }
    }

    #[inline]
    fn push(&mut self, base: *mut u8, len: usize) {
        if len != 0 {
            self.pieces[self.len].write(libc::iovec { iov_base: base.cast(), iov_len: len });
            self.len += 1;
        }
    }

    /// The vector must stay where it is as long as the message is used.
    fn message(&mut self) -> libc::msghdr {
        // SAFETY: a message header is integers and pointers, for which zero is a value: nothing.
        let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        message.msg_iov = self.pieces.as_mut_ptr().cast();
        message.msg_iovlen = self.len as _;
        message
    }
}

/// Repeats a call that a signal broke off.
fn retry(mut call: impl FnMut() -> libc::ssize_t) -> io::Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(octets) => return Ok(octets),
            Err(_) => match io::Error::last_os_error() {
                fault if fault.kind() == io::ErrorKind::Interrupted => {}
                fault => return Err(fault),
            },
        }
    }
}
