//! Functions that are variadic in C: `fcntl`, `ioctl`, `open` and their like, `syscall`.
//!
//! Stable Rust can call variadic functions and cannot define them. But on Linux both `x86_64` (System V ABI §3.5.7) and aarch64
//! (AAPCS64 §6.4) pass a variadic argument that is an integer or a pointer just where a named one of that place would be, so
//! a function with the most arguments that the call can have receives whichever were passed. One that was not passed reads as whatever
//! its register or stack slot holds; the C library reads it in the same way and uses it only where the command says that there is one. As named
//! arguments they go on to the C library's function, which is called as what it is: variadic.

use std::ffi::{c_char, c_int, c_long, c_ulong};
use std::ptr::with_exposed_provenance;

use libc::mode_t;
use rddp_switch::gate::{self, Way};
use rddp_switch::{next, switch, table};

use crate::hook::fail;

hooks! {
    new fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    new fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    new fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    new fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
}

macro_rules! fcntls {
    ($($name:ident)*) => {
        $(
            #[doc = concat!("See `", stringify!($name), "` in the C library's manual.")]
            ///
            /// # Safety
            ///
            /// As in C.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(fd: c_int, command: c_int, argument: usize) -> c_int {
                if let Way::Refused(errno) = gate::descriptor_command(fd, command, argument) {
                    return fail(errno);
                }
                // SAFETY: our caller's promise.
                let result = unsafe { next::$name(fd, command, argument) };
                if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) && result >= 0 {
                    gate::duplicated(fd, result);
                }
                result
            }
        )*
    };
}

fcntls! { fcntl fcntl64 }

/// See `ioctl` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    if let Way::Refused(errno) = gate::device_command(fd, request) {
        return fail(errno);
    }
    // SAFETY: our caller's promise.
    unsafe { next::ioctl(fd, request, argument) }
}

/// See `syscall` in the C library's manual.
///
/// A call that concerns a socket of ours, or makes or closes descriptors, is treated as the function of its name.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    if (table::any() || switch::is_on())
        && let Some(errno) = before_syscall(number, a, b, c)
    {
        next::set_errno(errno);
        return -1;
    }
    // SAFETY: our caller's promise.
    let result = unsafe { next::syscall(number, a, b, c, d, e, f) };
    if table::any() && result >= 0 {
        after_syscall(number, a, b, result as c_int);
    }
    result
}

/// What the function of that name would have asked first; the errno if it is refused.
fn before_syscall(number: c_long, a: usize, b: usize, c: usize) -> Option<c_int> {
    let fd = a as c_int;
    let way = match number {
        libc::SYS_read
        | libc::SYS_readv
        | libc::SYS_preadv2
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg
        | libc::SYS_write
        | libc::SYS_writev
        | libc::SYS_pwritev2
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg
        | libc::SYS_sendfile
        | libc::SYS_shutdown => gate::data(fd),
        libc::SYS_splice => match gate::within_kernel(fd) {
            Way::Plain => gate::within_kernel(c as c_int),
            refused => refused,
        },
        libc::SYS_connect => gate::connect(fd, || next::address_of(with_exposed_provenance(b), c as u32)),
        libc::SYS_listen => gate::listen(fd),
        libc::SYS_fcntl => gate::descriptor_command(fd, b as c_int, c),
        libc::SYS_ioctl => gate::device_command(fd, b as c_ulong),
        libc::SYS_close => {
            gate::closing(fd);
            Way::Plain
        }
        libc::SYS_close_range if c & !(libc::CLOSE_RANGE_UNSHARE as usize) == 0 => {
            gate::closing_range(a as u32, b as u32);
            Way::Plain
        }
        _ => Way::Plain,
    };
    match way {
        Way::Plain => None,
        Way::Refused(errno) => Some(errno),
    }
}

/// What the function of that name would have noted of its result.
fn after_syscall(number: c_long, a: usize, b: usize, result: c_int) {
    let fd = a as c_int;
    match number {
        libc::SYS_accept4 => gate::accepted(fd, result),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_accept => gate::accepted(fd, result),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => gate::duplicated(fd, result),
        libc::SYS_dup | libc::SYS_dup3 => gate::duplicated(fd, result),
        libc::SYS_fcntl if matches!(b as c_int, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) => {
            gate::duplicated(fd, result);
        }
        libc::SYS_socket | libc::SYS_openat | libc::SYS_epoll_create1 => gate::fresh(result),
        _ => {}
    }
}
