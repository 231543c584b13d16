//! Calls that make descriptors, and those that take them away.

use std::ffi::{c_char, c_int, c_uint};

use libc::{mode_t, sockaddr, socklen_t};
use rddp_es_api::exs;
use rddp_real::{self as real, hidden};
use rddp_stream::Errno;
use rddp_switch::gate;

use crate::hook::{fail, with_room};

hooks! {
    new fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    new fn __open_2(path: *const c_char, flags: c_int) -> c_int;
    new fn __open64_2(path: *const c_char, flags: c_int) -> c_int;
    new fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    new fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    new fn creat(path: *const c_char, mode: mode_t) -> c_int;
    new fn creat64(path: *const c_char, mode: mode_t) -> c_int;
}

macro_rules! pairs {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            #[doc = concat!("See `", stringify!($name), "` in the C library's manual.")]
            ///
            /// # Safety
            ///
            /// As in C.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type,)* fds: *mut c_int) -> $result {
                // SAFETY: our caller's promise.
                let result = with_room(|| unsafe { real::$name($($arg,)* fds) });
                if result == 0 {
                    // SAFETY: the call has set two.
                    let (one, other) = unsafe { (*fds, *fds.add(1)) };
                    gate::fresh(one);
                    gate::fresh(other);
                }
                result
            }
        )*
    };
}

pairs! {
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn pipe() -> c_int;
}

/// See `pipe2` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pipe2(fds: *mut c_int, flags: c_int) -> c_int {
    // SAFETY: our caller's promise.
    let result = with_room(|| unsafe { real::pipe2(fds, flags) });
    if result == 0 {
        // SAFETY: the call has set two.
        let (one, other) = unsafe { (*fds, *fds.add(1)) };
        gate::fresh(one);
        gate::fresh(other);
    }
    result
}

/// See `accept` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    if let Err(errno) = gate::accepting(fd) {
        return fail(errno);
    }
    // SAFETY: our caller's promise.
    let accepted = with_room(|| unsafe { real::accept(fd, addr, len) });
    if accepted >= 0 {
        gate::accepted(fd, accepted);
    }
    accepted
}

/// See `accept4` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
    if let Err(errno) = gate::accepting(fd) {
        return fail(errno);
    }
    // SAFETY: our caller's promise.
    let accepted = with_room(|| unsafe { real::accept4(fd, addr, len, flags) });
    if accepted >= 0 {
        gate::accepted(fd, accepted);
    }
    accepted
}

/// See `dup` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    let duplicate = gate::duplicate(fd);
    // SAFETY: our caller's promise.
    let to = with_room(|| unsafe { real::dup(fd) });
    if to >= 0 {
        duplicate.is(to);
    }
    to
}

/// See `dup2` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    exs::replacing(fd, to);
    gate::duplicating(fd, to);
    let duplicate = gate::duplicate(fd);
    // SAFETY: our caller's promise.
    let result = unsafe { real::dup2(fd, to) };
    if result >= 0 {
        duplicate.is(to);
    }
    result
}

/// See `dup3` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    exs::replacing(fd, to);
    gate::duplicating(fd, to);
    let duplicate = gate::duplicate(fd);
    // SAFETY: our caller's promise.
    let result = unsafe { real::dup3(fd, to, flags) };
    if result >= 0 {
        duplicate.is(to);
    }
    result
}

/// See `close` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if hidden::is_hidden(fd) {
        return fail(Errno::NO_DESCRIPTOR);
    }
    // Before the number can be another's.
    exs::closing(fd);
    gate::closing(fd);
    // SAFETY: our caller's promise.
    unsafe { real::close(fd) }
}

/// See `close_range` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // With any other flag it closes nothing, or fails.
    if flags & !(libc::CLOSE_RANGE_UNSHARE as c_int) == 0 {
        exs::closing_range(first, last);
        gate::closing_range(first, last);
    }
    let mut result = 0;
    for (first, last) in hidden::around(first, last) {
        // SAFETY: our caller's promise.
        result = unsafe { real::close_range(first, last, flags) };
        if result != 0 {
            break;
        }
    }
    result
}

/// See `closefrom` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    exs::closing_range(first.max(0) as c_uint, c_uint::MAX);
    gate::closing_range(first.max(0) as c_uint, c_uint::MAX);
    if hidden::any() {
        for (first, last) in hidden::around(first.max(0) as c_uint, c_uint::MAX) {
            // SAFETY: our caller's promise.
            unsafe { real::close_range(first, last, 0) };
        }
        return;
    }
    // SAFETY: our caller's promise.
    unsafe { real::closefrom(first) }
}
