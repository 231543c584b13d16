//! The C library's functions that the stream calls: a preloaded library passes the originals, which
//! its own functions stand before.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::Errno;

use libc::{
    epoll_event, iovec, msghdr, nfds_t, off_t, pollfd, sigset_t, sockaddr, socklen_t, ssize_t, timespec,
};

/// The functions, each with the contract of the libc function of its name (those that sleep unwind
/// the stack when their thread is cancelled); a variadic one has the one more argument that is
/// used.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "each is the C function of its name")]
pub struct Table {
    pub recv: unsafe extern "C-unwind" fn(c_int, *mut c_void, usize, c_int) -> ssize_t,
    pub send: unsafe extern "C" fn(c_int, *const c_void, usize, c_int) -> ssize_t,
    pub recvmsg: unsafe extern "C" fn(c_int, *mut msghdr, c_int) -> ssize_t,
    pub sendmsg: unsafe extern "C" fn(c_int, *const msghdr, c_int) -> ssize_t,
    pub confined: ConfinedTable,
    pub file: FileTable,
    pub ppoll: unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int,
    pub getsockopt: unsafe extern "C" fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    pub setsockopt: unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    pub ioctl: unsafe extern "C" fn(c_int, libc::Ioctl, *mut c_void) -> c_int,
    pub fcntl: unsafe extern "C" fn(c_int, c_int, usize) -> c_int,
    pub shutdown: unsafe extern "C" fn(c_int, c_int) -> c_int,
    pub connect: unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int,
    pub epoll: EpollTable,
    pub own: OwnTable,
    /// Called before a sleep that depends on more than octets: this thread may have to make
    /// progress with the other end itself. Returns when to call again at the latest.
    pub others: fn() -> Option<Duration>,
}

/// The functions by which a confined process moves octets.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "each is the C function of its name")]
pub struct ConfinedTable {
    pub read: unsafe extern "C" fn(c_int, *mut c_void, usize) -> ssize_t,
    pub writev: unsafe extern "C" fn(c_int, *const iovec, c_int) -> ssize_t,
}

/// The functions for files that are sent.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "each is the C function of its name")]
pub struct FileTable {
    pub pread: unsafe extern "C" fn(c_int, *mut c_void, usize, off_t) -> ssize_t,
    pub lseek: unsafe extern "C" fn(c_int, off_t, c_int) -> off_t,
}

/// The functions for epoll sets.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "each is the C function `epoll_` and its name")]
pub struct EpollTable {
    pub create1: unsafe extern "C" fn(c_int) -> c_int,
    pub ctl: unsafe extern "C" fn(c_int, c_int, c_int, *mut epoll_event) -> c_int,
    pub wait: unsafe extern "C-unwind" fn(c_int, *mut epoll_event, c_int, c_int) -> c_int,
}

/// The functions for descriptors of ours.
#[derive(Clone, Copy)]
pub struct OwnTable {
    /// The C function.
    pub close: unsafe extern "C" fn(c_int) -> c_int,
    /// Hides a descriptor from the program, whose `close` of it then fails.
    pub hide: fn(RawFd),
    /// Ends that, just before the descriptor is closed.
    pub show: fn(RawFd),
}

impl Table {
    /// Returns the functions of the C library that this program is linked to.
    #[must_use]
    pub const fn libc() -> Self {
        Self {
            recv,
            send: libc::send,
            recvmsg: libc::recvmsg,
            sendmsg: libc::sendmsg,
            confined: ConfinedTable { read: libc::read, writev: libc::writev },
            file: FileTable { pread: libc::pread, lseek: libc::lseek },
            ppoll,
            getsockopt: libc::getsockopt,
            setsockopt: libc::setsockopt,
            ioctl,
            fcntl,
            shutdown: libc::shutdown,
            connect: libc::connect,
            epoll: EpollTable { create1: libc::epoll_create1, ctl: libc::epoll_ctl, wait: epoll_wait },
            own: OwnTable { close: libc::close, hide: |_| {}, show: |_| {} },
            others: || None,
        }
    }
}

/// A [`Table`] whose functions are known to keep the contracts of their names.
#[derive(Clone, Copy)]
pub struct Calls(pub(super) Table);

impl Calls {
    /// Returns the functions of the C library that this program is linked to.
    #[must_use]
    pub const fn libc() -> Self {
        Self(Table::libc())
    }

    /// Returns these functions, with another one that is called before sleeps.
    #[cfg(test)]
    pub(crate) fn with_others(self, others: fn() -> Option<Duration>) -> Self {
        Self(Table { others, ..self.0 })
    }

    /// Returns the state of a TCP socket, as [`tcp_state`](crate::tcp_state) numbers it; `None` for
    /// any other descriptor. Leaves errors that the program can fetch in place.
    #[must_use]
    pub fn tcp_state(&self, fd: RawFd) -> Option<u8> {
        let mut state = 0u8;
        let mut len = 1;
        let at = (&raw mut state).cast();
        // SAFETY: the kernel writes at most `len` octets of `tcp_info`; the state is the first.
        let got = unsafe { (self.0.getsockopt)(fd, libc::IPPROTO_TCP, libc::TCP_INFO, at, &raw mut len) };
        (got == 0).then_some(state)
    }

    /// Returns the number that no other socket of this system has (`SO_COOKIE`).
    ///
    /// # Errors
    /// The errno of `getsockopt`.
    pub fn cookie(&self, fd: RawFd) -> Result<u64, Errno> {
        let mut cookie: u64 = 0;
        let mut len = size_of::<u64>() as libc::socklen_t;
        let at = (&raw mut cookie).cast::<c_void>();
        // SAFETY: `SO_COOKIE` writes the eight octets of a u64.
        let done = unsafe { (self.0.getsockopt)(fd, libc::SOL_SOCKET, libc::SO_COOKIE, at, &raw mut len) };
        if done < 0 { Err(Errno::last()) } else { Ok(cookie) }
    }

    /// Dissolves a connection: the peer sees a reset, and the descriptor stays open and can be
    /// connected again.
    pub fn disconnect(&self, fd: RawFd) {
        let nobody = libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
        let len = size_of::<libc::sockaddr>() as libc::socklen_t;
        // SAFETY: the address has that length and is only read; with `AF_UNSPEC` `connect`
        // dissolves the association (connect(2)). If that fails, the connection is gone already.
        unsafe { (self.0.connect)(fd, &raw const nobody, len) };
    }

    /// Takes functions that were found otherwise, as by `dlsym`.
    ///
    /// # Safety
    /// Each keeps the contract of the libc function of its name, from any thread and in any process
    /// that this one forks.
    #[must_use]
    pub const unsafe fn from_table(table: Table) -> Self {
        Self(table)
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Calls")
    }
}

unsafe extern "C-unwind" fn recv(fd: c_int, out: *mut c_void, len: usize, flags: c_int) -> ssize_t {
    // SAFETY: the arguments are passed on unchanged to the C library's function of the same
    // contract.
    unsafe { libc::recv(fd, out, len, flags) }
}

unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the arguments are passed on unchanged to the C library's function of the same
    // contract.
    unsafe { libc::ppoll(fds, count, timeout, mask) }
}

unsafe extern "C-unwind" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the arguments are passed on unchanged to the C library's function of the same
    // contract.
    unsafe { libc::epoll_wait(set, events, room, timeout) }
}

unsafe extern "C" fn ioctl(fd: c_int, request: libc::Ioctl, argument: *mut c_void) -> c_int {
    // SAFETY: the arguments are passed on unchanged to the C library's function of the same
    // contract.
    unsafe { libc::ioctl(fd, request, argument) }
}

unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the arguments are passed on unchanged to the C library's function of the same
    // contract.
    unsafe { libc::fcntl(fd, command, argument) }
}
