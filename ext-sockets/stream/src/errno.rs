//! Error numbers: the one type for the errors of calls.

use std::fmt;

/// A number of `errno`, or [`Errno::PLAIN`]. `Display` writes its name: `ECONNRESET`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Errno(pub i32);

impl Errno {
    /// No error: what `SO_ERROR` answers where there is none.
    pub const NONE: Self = Self(0);
    /// No error: the connection is plain TCP, and the C library is to make the call. No octet has
    /// been touched.
    pub const PLAIN: Self = Self(-1);
    /// The call would have had to wait.
    pub const WOULD_BLOCK: Self = Self(libc::EAGAIN);
    /// A signal came first.
    pub const INTERRUPTED: Self = Self(libc::EINTR);
    /// The connection is broken, by the peer or by what it sent.
    pub const RESET: Self = Self(libc::ECONNRESET);
    /// This end gave the connection up.
    pub const ABORTED: Self = Self(libc::ECONNABORTED);
    /// The direction is closed.
    pub const BROKEN_PIPE: Self = Self(libc::EPIPE);
    /// The socket is not connected.
    pub const NOT_CONNECTED: Self = Self(libc::ENOTCONN);
    /// The peer does not speak MPA.
    pub const PROTOCOL: Self = Self(libc::EPROTO);
    /// The peer rejected the connection.
    pub const REFUSED: Self = Self(libc::ECONNREFUSED);
    /// The peer did not answer.
    pub const TIMED_OUT: Self = Self(libc::ETIMEDOUT);
    /// A framed stream does not have this.
    pub const UNSUPPORTED: Self = Self(libc::EOPNOTSUPP);
    /// An argument is invalid.
    pub const INVALID: Self = Self(libc::EINVAL);
    /// Memory of the program is not mapped.
    pub const FAULT: Self = Self(libc::EFAULT);
    /// The descriptor is no longer the stream's socket.
    pub const NO_DESCRIPTOR: Self = Self(libc::EBADF);
    /// The call comes from a signal handler that interrupted a call with the lock.
    pub(super) const DEADLOCK: Self = Self(libc::EDEADLK);
    pub(super) const NO_BUFFERS: Self = Self(libc::ENOBUFS);

    /// Returns the name that `errno.h` has for the number; `None` for a number without name.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(number, _)| *number == self.0).map(|(_, name)| *name)
    }
}

impl From<i32> for Errno {
    fn from(number: i32) -> Self {
        Self(number)
    }
}

impl From<Errno> for i32 {
    fn from(errno: Errno) -> Self {
        errno.0
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {self})", self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (*self, self.name()) {
            (Self::PLAIN, _) => f.write_str("the connection is plain TCP"),
            (_, Some(name)) => f.write_str(name),
            (Self(number), None) => write!(f, "errno {number}"),
        }
    }
}

impl std::error::Error for Errno {}

macro_rules! names {
    ($($name:ident)*) => { &[$((libc::$name, stringify!($name))),*] };
}

/// The names of `errno.h`. Where a number has two names, the one that `errno(1)` writes.
#[rustfmt::skip]
const NAMES: &[(i32, &str)] = names![
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT
    ENOTBLK EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG
    ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY
    ELOOP ENOMSG EIDRM ECHRNG EL2NSYNC EL3HLT EL3RST ELNRNG EUNATCH ENOCSI EL2HLT EBADE EBADR
    EXFULL ENOANO EBADRQC EBADSLT EBFONT ENOSTR ENODATA ETIME ENOSR ENONET ENOPKG EREMOTE ENOLINK
    EADV ESRMNT ECOMM EPROTO EMULTIHOP EDOTDOT EBADMSG EOVERFLOW ENOTUNIQ EBADFD EREMCHG ELIBACC
    ELIBBAD ELIBSCN ELIBMAX ELIBEXEC EILSEQ ERESTART ESTRPIPE EUSERS ENOTSOCK EDESTADDRREQ
    EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT
    EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET
    ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETOOMANYREFS ETIMEDOUT ECONNREFUSED EHOSTDOWN EHOSTUNREACH
    EALREADY EINPROGRESS ESTALE EUCLEAN ENOTNAM ENAVAIL EISNAM EREMOTEIO EDQUOT ENOMEDIUM
    EMEDIUMTYPE ECANCELED ENOKEY EKEYEXPIRED EKEYREVOKED EKEYREJECTED EOWNERDEAD ENOTRECOVERABLE
    ERFKILL EHWPOISON
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_is_written_by_its_name() {
        assert_eq!(Errno::RESET.to_string(), "ECONNRESET");
        assert_eq!(format!("{:?}", Errno::WOULD_BLOCK), format!("Errno({}: EAGAIN)", libc::EAGAIN));
        assert_eq!(Errno(4000).to_string(), "errno 4000");
        assert_eq!(Errno::PLAIN.to_string(), "the connection is plain TCP");
    }

    #[test]
    fn each_number_has_one_name() {
        for (at, (number, name)) in NAMES.iter().enumerate() {
            assert_eq!(NAMES.iter().position(|(other, _)| other == number), Some(at), "{name}");
        }
    }
}
