//! Calls that wait until a descriptor is ready.

use std::ffi::c_int;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use rddp_switch::{gate, next};

hooks! {
    plain fn select(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval
    ) -> c_int;
    plain fn pselect(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec,
        mask: *const sigset_t
    ) -> c_int;
    plain fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    plain fn ppoll(
        fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t
    ) -> c_int;
    plain fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int;
    plain fn __ppoll_chk(
        fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t
    ) -> c_int;
    new fn epoll_create(size: c_int) -> c_int;
    new fn epoll_create1(flags: c_int) -> c_int;
    plain fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    plain fn epoll_wait(epoll: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int;
    plain fn epoll_pwait(
        epoll: c_int, events: *mut epoll_event, room: c_int, timeout: c_int, mask: *const sigset_t
    ) -> c_int;
    plain fn epoll_pwait2(
        epoll: c_int, events: *mut epoll_event, room: c_int, timeout: *const timespec, mask: *const sigset_t
    ) -> c_int;
}
