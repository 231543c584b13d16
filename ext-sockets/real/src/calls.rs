//! The C library's functions in the form that a stream calls them.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use libc::{epoll_event, nfds_t, pollfd, sigset_t, sockaddr, socklen_t, timespec};

use rddp_stream::{Calls, ConfinedTable, EpollTable, FileTable, OwnTable, Table};

use super::captured;

/// Returns the functions that this crate has found, with `others`, which is called before a sleep
/// (see [`Stream::new`](rddp_stream::Stream::new)).
pub const fn calls(others: fn() -> Option<Duration>) -> Calls {
    let table = Table {
        recv: captured::recv,
        send: captured::send,
        recvmsg: captured::recvmsg,
        sendmsg: captured::sendmsg,
        confined: ConfinedTable { read: captured::read, writev: captured::writev },
        file: FileTable { pread: libc::pread, lseek: libc::lseek },
        ppoll,
        getsockopt,
        setsockopt,
        ioctl,
        fcntl,
        shutdown: captured::shutdown,
        connect,
        epoll: EpollTable { create1: epoll_create1, ctl: epoll_ctl, wait: epoll_wait },
        own: OwnTable { close, hide: super::hidden::hide, show: super::hidden::show },
        others,
    };
    // SAFETY: each is the C library's function of its name, which keeps that function's contract.
    unsafe { Calls::from_table(table) }
}

macro_rules! on_to_real {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            unsafe extern "C" fn $name($($arg: $type),*) -> $result {
                // SAFETY: the arguments are passed on unchanged to the C library's function of the
                // same contract.
                unsafe { super::$name($($arg),*) }
            }
        )*
    };
}

on_to_real! {
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    fn close(fd: c_int) -> c_int;
}

unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the arguments are passed on unchanged to the C library's function of the same
    // contract.
    unsafe { super::ppoll(fds, count, timeout, mask) }
}

unsafe extern "C-unwind" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the arguments are passed on unchanged to the C library's function of the same
    // contract.
    unsafe { super::epoll_wait(set, events, room, timeout) }
}

unsafe extern "C" fn ioctl(fd: c_int, request: libc::Ioctl, argument: *mut c_void) -> c_int {
    // SAFETY: the arguments go on unchanged, the pointer as its address: this is how `ioctl` takes
    // it from C.
    unsafe { super::ioctl(fd, request as libc::c_ulong, argument.expose_provenance()) }
}
