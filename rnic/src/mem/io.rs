//! Vectored socket calls that take octets from registered memory, or put them there,
//! without a copy in between.
//!
//! They never block and raise no `SIGPIPE`. Each takes as many pieces as the kernel takes at once,
//! so like any short write it may do less than asked; empty pieces are skipped.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{Grant, calls};
use crate::scratch::{Own, with_own};

/// Octets to send.
pub enum Piece<'a> {
    /// Octets of the sender's own.
    Own(&'a [u8]),
    /// A range of granted octets.
    Granted(&'a Grant, Range<usize>),
}

/// A place for octets to receive.
pub enum PieceMut<'a> {
    /// A buffer of the receiver's own.
    Own(&'a mut [u8]),
    /// A range of octets granted for writing.
    Granted(&'a Grant, Range<usize>),
}

/// Flags of a send that concern TCP segments.
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

/// Sends as much of the caller's own octets as the socket takes, and returns their number.
/// `WouldBlock` if it takes none.
#[inline]
pub fn send_octets(fd: BorrowedFd<'_>, octets: &[u8]) -> io::Result<usize> {
    let piece = libc::iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() };
    // SAFETY: the piece is a borrowed slice, and the call only reads it.
    retry(|| unsafe { calls::send(fd, piece, SendFlags::default().bits()) })
}

/// Sends as much of `pieces` as the socket takes, and returns the number of octets. `WouldBlock` if
/// it takes none.
pub fn send_vectored(fd: BorrowedFd<'_>, pieces: &[Piece<'_>], flags: SendFlags) -> io::Result<usize> {
    // Pieces beyond the kernel's limit go with the next call. What the caller ends a segment behind
    // is among them, so this call must not end it.
    let flags = if pieces.len() > MAX_PIECES { SendFlags { more: true, eor: false } } else { flags };
    with_vector(pieces.len(), |vector| send(fd, pieces, flags, vector))
}

#[inline(always)]
fn send(
    fd: BorrowedFd<'_>,
    pieces: &[Piece<'_>],
    flags: SendFlags,
    vector: &mut Vector<'_>,
) -> io::Result<usize> {
    fill(vector, pieces);
    let flags = flags.bits();
    retry(|| {
        // SAFETY: the vector's pieces are borrowed slices or ranges that grants found in live
        // memory, all held until the call returns, and it only reads them.
        unsafe {
            match vector.single() {
                Some(piece) => calls::send(fd, piece, flags),
                None => calls::sendmsg(fd, &vector.message(), flags),
            }
        }
    })
}

/// Adds pieces to send to a vector, as many as the kernel takes.
#[inline(always)]
pub(super) fn fill(vector: &mut Vector<'_>, pieces: &[Piece<'_>]) {
    for piece in pieces.iter().take(MAX_PIECES) {
        match piece {
            Piece::Own(octets) => vector.push(octets.as_ptr().cast_mut(), octets.len()),
            Piece::Granted(grant, range) => vector.push(grant.at(range).as_ptr(), range.len()),
        }
    }
}

/// Receives as much as the socket has and `pieces` can hold. Returns 0 when the peer has finished
/// sending, or when there is no place for a single octet; `WouldBlock` when nothing is there now.
pub fn recv_vectored(fd: BorrowedFd<'_>, pieces: &mut [PieceMut<'_>]) -> io::Result<usize> {
    with_vector(pieces.len(), |vector| receive(fd, pieces, vector))
}

#[inline(always)]
fn receive(fd: BorrowedFd<'_>, pieces: &mut [PieceMut<'_>], vector: &mut Vector<'_>) -> io::Result<usize> {
    for piece in pieces.iter_mut().take(MAX_PIECES) {
        match piece {
            PieceMut::Own(room) => vector.push(room.as_mut_ptr(), room.len()),
            PieceMut::Granted(grant, range) => vector.push(grant.at_mut(range).as_ptr(), range.len()),
        }
    }
    retry(|| {
        // SAFETY: the vector's pieces are exclusively borrowed slices or ranges that grants found
        // in live memory open to writing, all held until the call returns.
        unsafe {
            match vector.single() {
                Some(room) => calls::recv(fd, room, libc::MSG_DONTWAIT),
                None => calls::recvmsg(fd, &mut vector.message(), libc::MSG_DONTWAIT),
            }
        }
    })
}

/// Drops as many octets of the stream as the socket has, at most `len`, and copies none. Returns as
/// [`recv_vectored`] does.
pub fn discard(fd: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: len };
    // SAFETY: with `MSG_TRUNC` TCP writes nothing, wherever the piece is.
    retry(|| unsafe { calls::recv(fd, nothing, libc::MSG_DONTWAIT | libc::MSG_TRUNC) })
}

/// Copies the octets that the socket has to `octets`, and leaves them there, too. Returns as
/// [`recv_vectored`] does.
pub fn peek(fd: BorrowedFd<'_>, octets: &mut [u8]) -> io::Result<usize> {
    let piece = libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() };
    // SAFETY: the piece is borrowed for the call.
    retry(|| unsafe { calls::recv(fd, piece, libc::MSG_DONTWAIT | libc::MSG_PEEK) })
}

/// Returns how many octets the peer's TCP has not acknowledged, those among them that have not been
/// sent; a FIN is one.
pub fn unacknowledged(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the call (`SIOCOUTQ`) stores one number.
    let outcome = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    if outcome == 0 { Ok(count as usize) } else { Err(io::Error::last_os_error()) }
}

/// Returns how many octets the socket has.
pub fn unread(fd: BorrowedFd<'_>) -> io::Result<usize> {
    Ok(rustix::io::ioctl_fionread(fd)? as usize)
}

/// Returns whether a call failed because granted memory has gone bad. Such a call moved no octet;
/// one that reaches bad memory behind good pieces moves those and succeeds.
pub fn is_fault(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EFAULT)
}

/// The kernel's limit (`UIO_MAXIOV`).
pub const MAX_PIECES: usize = 1024;

/// Number of pieces for which the vector is on the stack. Only long trains have more; a vector for
/// all of [`MAX_PIECES`] is 16 KiB, too much for a small stack and slow to clear.
const FEW_PIECES: usize = 16;

/// A vector of [`FEW_PIECES`] on the stack.
type Few = [MaybeUninit<libc::iovec>; FEW_PIECES];

thread_local! {
    /// The vector of calls with more pieces, kept by the thread so that they allocate only once.
    static LONG: Own<Vec<MaybeUninit<libc::iovec>>> = const { Cell::new(None) };
}

/// Calls `f` with an empty vector that can hold `pieces` pieces.
#[inline(always)]
pub(super) fn with_vector<R>(pieces: usize, f: impl FnOnce(&mut Vector<'_>) -> R) -> R {
    if pieces > FEW_PIECES {
        return with_long(f);
    }
    let mut room: Few = [const { MaybeUninit::uninit() }; FEW_PIECES];
    f(&mut Vector { pieces: &mut room, len: 0 })
}

#[inline(never)]
fn with_long<R>(f: impl FnOnce(&mut Vector<'_>) -> R) -> R {
    with_own(&LONG, |room| {
        room.resize(MAX_PIECES, MaybeUninit::uninit());
        f(&mut Vector { pieces: room, len: 0 })
    })
}

/// An array of pieces in the kernel's form, built without allocation.
pub(super) struct Vector<'a> {
    pieces: &'a mut [MaybeUninit<libc::iovec>],
    len: usize,
}

impl Vector<'_> {
    #[inline]
    fn push(&mut self, base: *mut u8, len: usize) {
        if len != 0 {
            self.pieces[self.len].write(libc::iovec { iov_base: base.cast(), iov_len: len });
            self.len += 1;
        }
    }

    /// Returns the piece if it is the only one: `send` and `recv` are cheaper than `sendmsg` and
    /// `recvmsg`, which copy a header and a vector from user space.
    fn single(&self) -> Option<libc::iovec> {
        // SAFETY: the first `len` are written.
        (self.len == 1).then(|| unsafe { self.pieces[0].assume_init() })
    }

    /// Returns a message header that points to the vector, which must not move while the header is
    /// used.
    pub(super) fn message(&mut self) -> libc::msghdr {
        // SAFETY: a message header consists of integers and pointers, for all of which zero is
        // valid.
        let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        message.msg_iov = self.pieces.as_mut_ptr().cast();
        message.msg_iovlen = self.len as _;
        message
    }
}

/// Repeats a call that a signal interrupted.
#[inline(always)]
pub(super) fn retry(mut call: impl FnMut() -> libc::ssize_t) -> io::Result<usize> {
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

#[cfg(test)]
#[cfg(not(miri))] // which has no sendmsg
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use super::*;
    use crate::mem::{Access, MemTable, PdId, Region, RegionOptions};

    const PD: PdId = PdId(1);

    fn region(len: usize) -> (MemTable, Arc<Region>) {
        let table = MemTable::new(Default::default());
        let region = table.allocate(PD, len, Access::LOCAL_WRITE, &RegionOptions::default()).unwrap();
        (table, region)
    }

    fn grant(table: &MemTable, region: &Region, write: bool) -> Grant {
        table.check_local(region.stag(), region.base_to(), region.len() as u64, write, PD).unwrap()
    }

    fn send(socket: &UnixStream, pieces: &[Piece<'_>]) -> io::Result<usize> {
        send_vectored(socket.as_fd(), pieces, SendFlags::default())
    }

    fn receive(socket: &UnixStream, len: usize) -> Vec<u8> {
        let mut octets = vec![0; len];
        (&*socket).read_exact(&mut octets).unwrap();
        octets
    }

    #[test]
    fn pieces_leave_in_order_and_empty_ones_not_at_all() {
        let (here, there) = UnixStream::pair().unwrap();
        let (table, region) = region(16);
        region.write_at(0, b"0123456789abcdef").unwrap();
        let grant = grant(&table, &region, false);
        let pieces = [
            Piece::Own(b"head"),
            Piece::Granted(&grant, 4..8),
            Piece::Own(b""),
            Piece::Granted(&grant, 16..16),
            Piece::Own(b"tail"),
            Piece::Granted(&grant, 0..2),
        ];
        assert_eq!(send(&here, &pieces).unwrap(), 14);
        assert_eq!(receive(&there, 14), b"head4567tail01");
    }

    #[test]
    fn what_arrives_fills_the_pieces_in_order() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let (table, region) = region(8);
        let grant = grant(&table, &region, true);
        there.write_all(b"abcdefgh").unwrap();
        let (mut head, mut tail) = ([0; 2], [0; 4]);
        let mut pieces = [
            PieceMut::Own(&mut head),
            PieceMut::Granted(&grant, 3..6),
            PieceMut::Granted(&grant, 8..8),
            PieceMut::Own(&mut tail),
        ];
        assert_eq!(recv_vectored(here.as_fd(), &mut pieces).unwrap(), 8);
        assert_eq!((&head, &tail), (b"ab", b"fgh\0"));
        let mut octets = [0; 8];
        region.read_at(0, &mut octets).unwrap();
        assert_eq!(&octets, b"\0\0\0cde\0\0");
    }

    #[test]
    fn neither_direction_blocks() {
        let (here, there) = UnixStream::pair().unwrap();
        let mut room = [0; 8];
        let nothing = recv_vectored(here.as_fd(), &mut [PieceMut::Own(&mut room)]);
        assert_eq!(nothing.unwrap_err().kind(), ErrorKind::WouldBlock);
        let data = vec![1; 1 << 16];
        let full = loop {
            if let Err(fault) = send(&here, &[Piece::Own(&data)]) {
                break fault;
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        drop(there);
    }

    #[test]
    fn the_end_of_the_stream_is_zero_octets_and_a_broken_pipe_no_signal() {
        let (here, there) = UnixStream::pair().unwrap();
        drop(there);
        let mut room = [0; 8];
        assert_eq!(recv_vectored(here.as_fd(), &mut [PieceMut::Own(&mut room)]).unwrap(), 0);
        assert_eq!(send(&here, &[Piece::Own(b"x")]).unwrap_err().kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn more_pieces_than_the_kernel_takes_leave_in_part() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let octets: Vec<[u8; 1]> = (0..MAX_PIECES + 10).map(|at| [at as u8]).collect();
        let pieces: Vec<_> = octets.iter().map(|octet| Piece::Own(octet)).collect();
        assert_eq!(send(&here, &pieces).unwrap(), MAX_PIECES);
        assert_eq!(receive(&there, MAX_PIECES), octets[..MAX_PIECES].concat());
        there.write_all(&octets.concat()).unwrap();
        let mut rooms = vec![[0; 1]; MAX_PIECES + 10];
        let mut pieces: Vec<_> = rooms.iter_mut().map(|room| PieceMut::Own(room)).collect();
        assert_eq!(recv_vectored(here.as_fd(), &mut pieces).unwrap(), MAX_PIECES);
        assert_eq!(rooms.concat()[..MAX_PIECES], octets.concat()[..MAX_PIECES]);
    }

    /// The stack of a program's thread may be small, or deep in use.
    #[test]
    fn a_call_takes_little_of_the_stack() {
        assert!(size_of::<Few>() <= 512);
    }

    #[test]
    #[should_panic(expected = "a grant for reading only")]
    fn nothing_is_received_into_a_grant_for_reading() {
        let (here, _there) = UnixStream::pair().unwrap();
        let (table, region) = region(8);
        let grant = grant(&table, &region, false);
        let _ = recv_vectored(here.as_fd(), &mut [PieceMut::Granted(&grant, 0..8)]);
    }

    #[test]
    #[should_panic(expected = "octets 4..9 of a grant of 8")]
    fn nothing_outside_a_grant_is_sent() {
        let (here, _there) = UnixStream::pair().unwrap();
        let (table, region) = region(8);
        let grant = grant(&table, &region, false);
        let _ = send(&here, &[Piece::Granted(&grant, 4..9)]);
    }

    #[test]
    fn flags_become_those_of_the_kernel() {
        let always = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        assert_eq!(SendFlags::default().bits(), always);
        assert_eq!(SendFlags { more: true, eor: false }.bits(), always | libc::MSG_MORE);
        assert_eq!(SendFlags { more: false, eor: true }.bits(), always | libc::MSG_EOR);
    }
}
