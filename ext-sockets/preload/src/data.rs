//! Calls that move octets.

use std::ffi::{c_int, c_uint, c_void};

use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};
use rddp_switch::gate::{self, Way};
use rddp_switch::next;

use crate::hook::fail;

hooks! {
    through[data(fd)] fn read(fd: c_int, buf: *mut c_void, count: size_t) -> ssize_t;
    through[data(fd)] fn readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    through[data(fd)] fn preadv2(
        fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> ssize_t;
    through[data(fd)] fn preadv64v2(
        fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> ssize_t;
    through[data(fd)] fn recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    through[data(fd)] fn recvfrom(
        fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t
    ) -> ssize_t;
    through[data(fd)] fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t;
    through[data(fd)] fn recvmmsg(
        fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec
    ) -> c_int;

    through[data(fd)] fn write(fd: c_int, buf: *const c_void, count: size_t) -> ssize_t;
    through[data(fd)] fn writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    through[data(fd)] fn pwritev2(
        fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> ssize_t;
    through[data(fd)] fn pwritev64v2(
        fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> ssize_t;
    through[data(fd)] fn send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    through[data(fd)] fn sendto(
        fd: c_int, buf: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr, addr_len: socklen_t
    ) -> ssize_t;
    through[data(fd)] fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t;
    through[data(fd)] fn sendmmsg(fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    through[data(out)] fn sendfile(out: c_int, fd: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    through[data(out)] fn sendfile64(out: c_int, fd: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
}

// What programs call that are built with _FORTIFY_SOURCE and know how large the buffer is.
hooks! {
    through[data(fd)] fn __read_chk(fd: c_int, buf: *mut c_void, count: size_t, room: size_t) -> ssize_t;
    through[data(fd)] fn __recv_chk(
        fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int
    ) -> ssize_t;
    through[data(fd)] fn __recvfrom_chk(
        fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int, addr: *mut sockaddr,
        addr_len: *mut socklen_t
    ) -> ssize_t;
}

hooks! {
    through[within_kernel(fd, out)] fn splice(
        fd: c_int, in_offset: *mut off_t, out: c_int, out_offset: *mut off_t, len: size_t, flags: c_uint
    ) -> ssize_t;
    through[within_kernel(fd, out)] fn tee(fd: c_int, out: c_int, len: size_t, flags: c_uint) -> ssize_t;
    through[within_kernel(fd)] fn vmsplice(
        fd: c_int, pieces: *const iovec, count: size_t, flags: c_uint
    ) -> ssize_t;
    through[within_kernel(fd, out)] fn copy_file_range(
        fd: c_int, in_offset: *mut off_t, out: c_int, out_offset: *mut off_t, len: size_t, flags: c_uint
    ) -> ssize_t;
}
