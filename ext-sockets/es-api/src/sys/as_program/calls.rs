//! Calls that come back at once, whatever the socket's own state of blocking.

use std::ffi::c_int;
use std::mem::zeroed;
use std::time::Duration;

use libc::{
    MSG_DONTWAIT, MSG_NOSIGNAL, O_NONBLOCK, iovec, msghdr, nfds_t, off_t, pollfd, sockaddr, sockaddr_storage,
    socklen_t,
};
use rddp_real::Errno;

use super::accept::Places;
use super::calls;
use super::memory::Pieces;

/// Returns whether a call with this errno is to be made again later.
pub fn would_block(errno: Errno) -> bool {
    errno == Errno::WOULD_BLOCK || errno == Errno::INTERRUPTED
}

/// Sends of the pieces what there is room for.
///
/// # Errors
/// errno; [`would_block`] when there is none.
pub fn send(fd: c_int, pieces: &Pieces, flags: c_int) -> Result<usize, Errno> {
    let msg = header(pieces.rest());
    // SAFETY: the pieces are there as long as `Pieces` is.
    // EX9: what fails is told by an event, and not by a signal as well.
    moved(unsafe { (calls().sendmsg)(fd, &raw const msg, flags | MSG_DONTWAIT | MSG_NOSIGNAL) })
}

/// Sends of these octets what there is room for.
///
/// # Errors
/// As [`send`].
pub fn send_octets(fd: c_int, octets: &[u8], flags: c_int) -> Result<usize, Errno> {
    let piece = [iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() }];
    let msg = header(&piece);
    // SAFETY: the octets are there, and are read alone.
    moved(unsafe { (calls().sendmsg)(fd, &raw const msg, flags | MSG_DONTWAIT | MSG_NOSIGNAL) })
}

/// Receives into the pieces what there is: how many octets, and the flags that came with them.
///
/// # Errors
/// errno; [`would_block`] when there is nothing.
pub fn receive(fd: c_int, pieces: &Pieces, flags: c_int) -> Result<(usize, c_int), Errno> {
    let mut msg = header(pieces.rest());
    // SAFETY: the pieces are there as long as `Pieces` is.
    let count = moved(unsafe { (calls().recvmsg)(fd, &raw mut msg, flags | MSG_DONTWAIT) })?;
    Ok((count, msg.msg_flags))
}

/// Reads a file at an offset.
///
/// # Errors
/// errno.
pub fn read_at(file: c_int, octets: &mut [u8], offset: off_t) -> Result<usize, Errno> {
    // SAFETY: the octets are there to be written.
    moved(unsafe { libc::pread(file, octets.as_mut_ptr().cast(), octets.len(), offset) })
}

/// The octets of a file from an offset on.
///
/// # Errors
/// errno; `EINVAL` for what is no regular file.
pub fn file_length(file: c_int, offset: off_t) -> Result<usize, Errno> {
    // SAFETY: all zeros is a `stat`.
    let mut stat: libc::stat = unsafe { zeroed() };
    // SAFETY: it fills the structure.
    if unsafe { libc::fstat(file, &raw mut stat) } != 0 {
        return Err(Errno::last());
    }
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(Errno::INVALID);
    }
    Ok(usize::try_from(stat.st_size - offset).unwrap_or(0))
}

/// A socket address, copied from the program.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    octets: sockaddr_storage,
    len: socklen_t,
}

impl Address {
    /// A copy; `None` when it is longer than any address.
    ///
    /// # Safety
    /// `len` octets are there.
    pub unsafe fn copy(addr: *const sockaddr, len: socklen_t) -> Option<Self> {
        if len as usize > size_of::<sockaddr_storage>() {
            return None;
        }
        // SAFETY: all zeros is a `sockaddr_storage`.
        let mut octets: sockaddr_storage = unsafe { zeroed() };
        // SAFETY: it is long enough, and the caller's promise.
        unsafe { (&raw mut octets).cast::<u8>().copy_from_nonoverlapping(addr.cast(), len as usize) };
        Some(Address { octets, len })
    }
}

/// Begins to connect.
///
/// # Errors
/// errno; `EINPROGRESS` when it goes on by itself.
pub fn connect(fd: c_int, addr: &Address) -> Result<(), Errno> {
    without_blocking(fd, || {
        // SAFETY: the address is as long as `len` says.
        match unsafe { (calls().connect)(fd, (&raw const addr.octets).cast(), addr.len) } {
            0 => Ok(()),
            _ => Err(Errno::last()),
        }
    })?
}

/// Fills a place with a connection that waits to be accepted.
///
/// # Errors
/// errno; [`would_block`] when there is none.
pub fn accept(fd: c_int, places: &mut Places) -> Result<(), Errno> {
    // `accept` has no flag for not waiting, and the socket's own is every thread's: so that is seldom touched.
    if !is_ready(fd, libc::POLLIN)? {
        return Err(Errno::WOULD_BLOCK);
    }
    without_blocking(fd, || {
        // SAFETY: `places` has them from whoever made it.
        places.fill(|addr, len| unsafe { (calls().accept4)(fd, addr, len, 0) })
    })?
}

/// Makes a call while the socket does not block; what it was is set again.
fn without_blocking<R>(fd: c_int, call: impl FnOnce() -> R) -> Result<R, Errno> {
    if nonblocking(fd)? {
        return Ok(call());
    }
    set_nonblocking(fd, true)?;
    let result = call();
    let _ = set_nonblocking(fd, false);
    Ok(result)
}

/// Whether a descriptor does not block.
///
/// # Errors
/// `EBADF`.
pub fn nonblocking(fd: c_int) -> Result<bool, Errno> {
    flags(fd).map(|flags| flags & O_NONBLOCK != 0)
}

fn flags(fd: c_int) -> Result<c_int, Errno> {
    // SAFETY: F_GETFL takes no pointer.
    match unsafe { (calls().fcntl)(fd, libc::F_GETFL, 0) } {
        flags if flags < 0 => Err(Errno::last()),
        flags => Ok(flags),
    }
}

fn set_nonblocking(fd: c_int, on: bool) -> Result<(), Errno> {
    let flags = flags(fd)?;
    let wanted = if on { flags | O_NONBLOCK } else { flags & !O_NONBLOCK };
    // SAFETY: F_SETFL takes an int.
    match unsafe { (calls().fcntl)(fd, libc::F_SETFL, wanted as usize) } {
        0 => Ok(()),
        _ => Err(Errno::last()),
    }
}

/// Takes the socket's error: that of the connection that was begun.
///
/// # Errors
/// Why the connection could not be made.
pub fn socket_error(fd: c_int) -> Result<(), Errno> {
    let mut error: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: `error` is as long as `len` says.
    let got = unsafe {
        (calls().getsockopt)(fd, libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut error).cast(), &raw mut len)
    };
    match (got, error) {
        (0, 0) => Ok(()),
        (0, error) => Err(Errno(error)),
        _ => Err(Errno::last()),
    }
}

/// Whether one of these events, or an error, is there.
///
/// # Errors
/// errno.
pub fn is_ready(fd: c_int, events: i16) -> Result<bool, Errno> {
    let mut one = [pollfd { fd, events, revents: 0 }];
    poll(&mut one, Some(Duration::ZERO)).map(|count| count != 0)
}

/// `poll`; `None` waits for ever. Times are rounded up to milliseconds.
///
/// # Errors
/// errno.
pub fn poll(fds: &mut [pollfd], timeout: Option<Duration>) -> Result<usize, Errno> {
    let timeout = timeout
        .map_or(-1, |timeout| c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX));
    // SAFETY: they are as many as is said.
    match unsafe { (calls().poll)(fds.as_mut_ptr(), fds.len() as nfds_t, timeout) } {
        count if count < 0 => Err(Errno::last()),
        count => Ok(count as usize),
    }
}

fn header(pieces: &[iovec]) -> msghdr {
    // SAFETY: all zeros is a header without anything.
    let mut msg: msghdr = unsafe { zeroed() };
    msg.msg_iov = pieces.as_ptr().cast_mut();
    msg.msg_iovlen = pieces.len();
    msg
}

fn moved(count: isize) -> Result<usize, Errno> {
    usize::try_from(count).map_err(|_| Errno::last())
}
