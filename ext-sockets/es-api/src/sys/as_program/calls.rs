//! Socket calls that return at once, whether or not the socket is set to block.

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

/// Returns whether a call that failed with this errno is to be made again later.
pub fn would_block(errno: Errno) -> bool {
    errno == Errno::WOULD_BLOCK || errno == Errno::INTERRUPTED
}

/// Sends as much of the pieces as the socket takes.
///
/// # Errors
/// The errno of the call; one of [`would_block`] when the socket takes nothing.
pub fn send(fd: c_int, pieces: &Pieces, flags: c_int) -> Result<usize, Errno> {
    let msg = header(pieces.rest());
    // SAFETY: the pieces are memory that stays as long as `Pieces` does, which `msg` points to. A
    // failure is told by an event, and not by a signal as well (EX9).
    moved(unsafe { (calls().sendmsg)(fd, &raw const msg, flags | MSG_DONTWAIT | MSG_NOSIGNAL) })
}

/// Sends as many of these octets as the socket takes.
///
/// # Errors
/// Those of [`send`].
pub fn send_octets(fd: c_int, octets: &[u8], flags: c_int) -> Result<usize, Errno> {
    let piece = [iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() }];
    let msg = header(&piece);
    // SAFETY: `msg` points to the borrowed octets, which are only read.
    moved(unsafe { (calls().sendmsg)(fd, &raw const msg, flags | MSG_DONTWAIT | MSG_NOSIGNAL) })
}

/// Receives into the pieces what is there: returns the number of octets, and the flags that came
/// with
///
/// # Errors
/// The errno of the call; one of [`would_block`] when there is nothing.
pub fn receive(fd: c_int, pieces: &Pieces, flags: c_int) -> Result<(usize, c_int), Errno> {
    let mut msg = header(pieces.rest());
    // SAFETY: `msg` points to the pieces, memory that is left to us as long as `Pieces` lives.
    let count = moved(unsafe { (calls().recvmsg)(fd, &raw mut msg, flags | MSG_DONTWAIT) })?;
    Ok((count, msg.msg_flags))
}

/// Reads a file at an offset.
///
/// # Errors
/// The errno of the call.
pub fn read_at(file: c_int, octets: &mut [u8], offset: off_t) -> Result<usize, Errno> {
    // SAFETY: `octets` is borrowed for writing until the call returns.
    moved(unsafe { libc::pread(file, octets.as_mut_ptr().cast(), octets.len(), offset) })
}

/// Returns the number of octets of a file from an offset on.
///
/// # Errors
/// The errno of the call; `EINVAL` for a file that is not a regular one.
pub fn file_length(file: c_int, offset: off_t) -> Result<usize, Errno> {
    // SAFETY: all zeros is a valid `stat`.
    let mut stat: libc::stat = unsafe { zeroed() };
    // SAFETY: the call fills the structure, which lives until it returns.
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
    /// Copies an address; `None` when it is longer than any address.
    ///
    /// # Safety
    /// `len` octets are there.
    pub unsafe fn copy(addr: *const sockaddr, len: socklen_t) -> Option<Self> {
        if len as usize > size_of::<sockaddr_storage>() {
            return None;
        }
        // SAFETY: all zeros is a valid `sockaddr_storage`.
        let mut octets: sockaddr_storage = unsafe { zeroed() };
        // SAFETY: `addr` has `len` octets, and the copy is long enough for them, as checked.
        unsafe { (&raw mut octets).cast::<u8>().copy_from_nonoverlapping(addr.cast(), len as usize) };
        Some(Address { octets, len })
    }
}

/// Begins to connect.
///
/// # Errors
/// The errno of the call; `EINPROGRESS` when it goes on by itself.
pub fn connect(fd: c_int, addr: &Address) -> Result<(), Errno> {
    without_blocking(fd, || {
        // SAFETY: the address is as long as `len` says.
        match unsafe { (calls().connect)(fd, (&raw const addr.octets).cast(), addr.len) } {
            0 => Ok(()),
            _ => Err(Errno::last()),
        }
    })?
}

/// Accepts a connection that waits, and fills a place with it.
///
/// # Errors
/// The errno of the call; one of [`would_block`] when there is none.
pub fn accept(fd: c_int, places: &mut Places) -> Result<(), Errno> {
    // `accept` has no flag for not waiting, and the socket's own flag is shared by all threads: so
    // that is changed only if a connection is there.
    if !is_ready(fd, libc::POLLIN)? {
        return Err(Errno::WOULD_BLOCK);
    }
    without_blocking(fd, || {
        // SAFETY: `fill` passes the program's room for an address, or null, and its length.
        places.fill(|addr, len| unsafe { (calls().accept4)(fd, addr, len, 0) })
    })?
}

/// Makes a call while the socket does not block, and restores its flag.
fn without_blocking<R>(fd: c_int, call: impl FnOnce() -> R) -> Result<R, Errno> {
    if nonblocking(fd)? {
        return Ok(call());
    }
    set_nonblocking(fd, true)?;
    let result = call();
    let _ = set_nonblocking(fd, false);
    Ok(result)
}

/// Returns whether a descriptor does not block.
///
/// # Errors
/// `EBADF`.
pub fn nonblocking(fd: c_int) -> Result<bool, Errno> {
    flags(fd).map(|flags| flags & O_NONBLOCK != 0)
}

fn flags(fd: c_int) -> Result<c_int, Errno> {
    // SAFETY: `F_GETFL` takes no pointer.
    match unsafe { (calls().fcntl)(fd, libc::F_GETFL, 0) } {
        flags if flags < 0 => Err(Errno::last()),
        flags => Ok(flags),
    }
}

fn set_nonblocking(fd: c_int, on: bool) -> Result<(), Errno> {
    let flags = flags(fd)?;
    let wanted = if on { flags | O_NONBLOCK } else { flags & !O_NONBLOCK };
    // SAFETY: `F_SETFL` takes an int.
    match unsafe { (calls().fcntl)(fd, libc::F_SETFL, wanted as usize) } {
        0 => Ok(()),
        _ => Err(Errno::last()),
    }
}

/// Takes the socket's error: that of the connect that was begun.
///
/// # Errors
/// The reason why the connection could not be made.
pub fn socket_error(fd: c_int) -> Result<(), Errno> {
    let mut error: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: the kernel writes at most `len` octets to `error`, which is as long.
    let got = unsafe {
        (calls().getsockopt)(fd, libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut error).cast(), &raw mut len)
    };
    match (got, error) {
        (0, 0) => Ok(()),
        (0, error) => Err(Errno(error)),
        _ => Err(Errno::last()),
    }
}

/// Returns whether the descriptor has one of these events, or an error.
///
/// # Errors
/// The errno of the call.
pub fn is_ready(fd: c_int, events: i16) -> Result<bool, Errno> {
    let mut one = [pollfd { fd, events, revents: 0 }];
    poll(&mut one, Some(Duration::ZERO)).map(|count| count != 0)
}

/// Polls (`poll`); `None` waits for ever. Times are rounded up to milliseconds.
///
/// # Errors
/// The errno of the call.
pub fn poll(fds: &mut [pollfd], timeout: Option<Duration>) -> Result<usize, Errno> {
    let timeout = timeout
        .map_or(-1, |timeout| c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX));
    // SAFETY: the slice has as many entries as the call is told.
    match unsafe { (calls().poll)(fds.as_mut_ptr(), fds.len() as nfds_t, timeout) } {
        count if count < 0 => Err(Errno::last()),
        count => Ok(count as usize),
    }
}

fn header(pieces: &[iovec]) -> msghdr {
    // SAFETY: all zeros is a header without address, pieces and control messages.
    let mut msg: msghdr = unsafe { zeroed() };
    msg.msg_iov = pieces.as_ptr().cast_mut();
    msg.msg_iovlen = pieces.len();
    msg
}

fn moved(count: isize) -> Result<usize, Errno> {
    usize::try_from(count).map_err(|_| Errno::last())
}
