//! What a call answers when it does not succeed.

use std::fmt;

/// A number of `errno`, or [`Errno::PLAIN`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// No error: the connection is, or has been agreed to stay, plain TCP, and the call is for the C library to make. No
    /// octet of it has been touched.
    pub const PLAIN: Self = Self(-1);
    /// It would have had to wait.
    pub const WOULD_BLOCK: Self = Self(libc::EAGAIN);
    /// A signal came first.
    pub const INTERRUPTED: Self = Self(libc::EINTR);
    /// The connection is broken, by the peer or by what it sent.
    pub const RESET: Self = Self(libc::ECONNRESET);
    /// This side gave the connection up.
    pub const ABORTED: Self = Self(libc::ECONNABORTED);
    /// The direction is closed.
    pub const BROKEN_PIPE: Self = Self(libc::EPIPE);
    /// The peer does not speak MPA.
    pub const PROTOCOL: Self = Self(libc::EPROTO);
    /// The peer does not want the connection.
    pub const REFUSED: Self = Self(libc::ECONNREFUSED);
    /// The peer did not answer.
    pub const TIMED_OUT: Self = Self(libc::ETIMEDOUT);
    /// What a framed stream does not have.
    pub const UNSUPPORTED: Self = Self(libc::EOPNOTSUPP);
    /// An argument makes no sense.
    pub const INVALID: Self = Self(libc::EINVAL);
    /// Memory of the program's is not there.
    pub const FAULT: Self = Self(libc::EFAULT);
    /// The descriptor is not the socket any more.
    pub const NO_DESCRIPTOR: Self = Self(libc::EBADF);
    /// The call is a signal handler's, in the middle of one that has the lock.
    pub(super) const DEADLOCK: Self = Self(libc::EDEADLK);
    pub(super) const NO_BUFFERS: Self = Self(libc::ENOBUFS);

    /// Of the system call that just failed.
    pub(super) fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {self})", self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::PLAIN => f.write_str("the connection is plain TCP"),
            Self(number) => std::io::Error::from_raw_os_error(number).fmt(f),
        }
    }
}

impl std::error::Error for Errno {}
