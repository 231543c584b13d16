//! Calls that make descriptors, and those that close them.

use std::ffi::{c_char, c_int, c_uint};

use libc::{mode_t, sockaddr, socklen_t};
use rddp_es_api::exs;
use rddp_real::{self as real, hidden};
use rddp_stream::{Errno, SameErrno};
use rddp_switch::{gate, sdp, table};

use crate::control::give_name;
use crate::hook::{answer, beside, fail, refused, with_room};

hooks! {
    new fn __open_2(path: *const c_char, flags: c_int) -> c_int;
    new fn __open64_2(path: *const c_char, flags: c_int) -> c_int;
    new fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    new fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    new fn creat(path: *const c_char, mode: mode_t) -> c_int;
    new fn creat64(path: *const c_char, mode: mode_t) -> c_int;
}

/// Stands before the C library's `socket`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let errno = Errno::last();
    // SAFETY: the program's own arguments, passed on unchanged.
    let fd = with_room(|| unsafe { real::socket(domain, kind, protocol) });
    gate::fresh(fd);
    if fd < 0
        && Errno::last() == Errno(libc::EAFNOSUPPORT)
        && let Some(family) = sdp::kernel_family(domain, kind, protocol)
        // SAFETY: the program's own arguments but for the family.
        && let Some(fd) = unsafe { sdp_socket(family, kind, protocol) }
    {
        errno.set_last();
        return fd;
    }
    fd
}

/// Makes a socket that speaks SDP; `None`, with errno as the kernel's refusal has it, if it cannot
/// be ours.
///
/// # Safety
///
/// As for `socket`.
#[cold]
unsafe fn sdp_socket(family: c_int, kind: c_int, protocol: c_int) -> Option<c_int> {
    let same = SameErrno::here();
    // SAFETY: the program's own arguments, of which `socket` takes any; the family is ours.
    let fd = with_room(|| unsafe { real::socket(family, kind, protocol) });
    gate::fresh(fd);
    if fd >= 0 && gate::speaks_sdp(fd).is_err() {
        // SAFETY: the number has just been made, and nobody has it yet.
        unsafe { real::close(fd) };
        return None;
    }
    drop(same);
    (fd >= 0).then_some(fd)
}

macro_rules! pairs {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            #[doc = concat!("Stands before the C library's `", stringify!($name), "`.")]
            ///
            /// # Safety
            ///
            /// As in C.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type,)* fds: *mut c_int) -> $result {
                // SAFETY: the program's own arguments, passed on unchanged.
                let result = with_room(|| unsafe { real::$name($($arg,)* fds) });
                if result == 0 {
                    // SAFETY: the call succeeded, so it has set two ints.
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

/// Stands before the C library's `pipe2`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pipe2(fds: *mut c_int, flags: c_int) -> c_int {
    // SAFETY: the program's own arguments, passed on unchanged.
    let result = with_room(|| unsafe { real::pipe2(fds, flags) });
    if result == 0 {
        // SAFETY: the call succeeded, so it has set two ints.
        let (one, other) = unsafe { (*fds, *fds.add(1)) };
        gate::fresh(one);
        gate::fresh(other);
    }
    result
}

/// Accepts a connection to a listener of a device; `None` for any other descriptor.
///
/// # Safety
///
/// As for `accept`.
#[inline]
unsafe fn accept_on_device(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> Option<c_int> {
    table::entry(fd)?;
    answer(|| {
        let (accepted, peer) = gate::accept_on_device(fd, flags)?;
        if let Some(peer) = peer.filter(|_| !addr.is_null()) {
            // The kernel closes the connection in such a case, too.
            // SAFETY: the program's pointers, as `accept` takes them.
            unsafe { give_name(peer, addr, len) }.inspect_err(|_| {
                gate::closing(accepted);
                real::close_number(accepted);
            })?;
        }
        Ok(accepted)
    })
}

/// Stands before the C library's `accept`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the program's pointers, as C's function of this name takes them.
    if let Some(result) = unsafe { accept_on_device(fd, addr, len, 0) } {
        return result;
    }
    if let Some(refusal) = refused(|| gate::accepting(fd)) {
        return refusal;
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    let accepted = with_room(|| unsafe { real::accept(fd, addr, len) });
    if accepted >= 0 {
        beside(|| gate::accepted(fd, accepted));
    }
    accepted
}

/// Stands before the C library's `accept4`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
    // SAFETY: the program's pointers, as C's function of this name takes them.
    if let Some(result) = unsafe { accept_on_device(fd, addr, len, flags) } {
        return result;
    }
    if let Some(refusal) = refused(|| gate::accepting(fd)) {
        return refusal;
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    let accepted = with_room(|| unsafe { real::accept4(fd, addr, len, flags) });
    if accepted >= 0 {
        beside(|| gate::accepted(fd, accepted));
    }
    accepted
}

/// Stands before the C library's `dup`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    let duplicate = beside(|| gate::duplicate(fd));
    // SAFETY: the program's own arguments, passed on unchanged.
    let to = with_room(|| unsafe { real::dup(fd) });
    if to >= 0 {
        beside(|| duplicate.is(to));
    }
    to
}

/// Stands before the C library's `dup2`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    beside(|| {
        exs::replacing(fd, to);
        gate::duplicating(fd, to);
    });
    let duplicate = beside(|| gate::duplicate(fd));
    // SAFETY: the program's own arguments, passed on unchanged.
    let result = unsafe { real::dup2(fd, to) };
    if result >= 0 {
        beside(|| duplicate.is(to));
    }
    result
}

/// Stands before the C library's `dup3`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    beside(|| {
        exs::replacing(fd, to);
        gate::duplicating(fd, to);
    });
    let duplicate = beside(|| gate::duplicate(fd));
    // SAFETY: the program's own arguments, passed on unchanged.
    let result = unsafe { real::dup3(fd, to, flags) };
    if result >= 0 {
        beside(|| duplicate.is(to));
    }
    result
}

/// Stands before the C library's `close`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if hidden::is_hidden(fd) {
        return fail(Errno::NO_DESCRIPTOR);
    }
    // Told before the number can be reused.
    beside(|| {
        exs::closing(fd);
        gate::closing(fd);
    });
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::close(fd) }
}

/// Stands before the C library's `close_range`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // With any other flag the call closes nothing, or fails.
    if flags & !(libc::CLOSE_RANGE_UNSHARE as c_int) == 0 {
        beside(|| {
            exs::closing_range(first, last);
            gate::closing_range(first, last);
        });
    }
    let mut result = 0;
    for (first, last) in hidden::around(first, last) {
        // SAFETY: the program's own arguments, passed on unchanged.
        result = unsafe { real::close_range(first, last, flags) };
        if result != 0 {
            break;
        }
    }
    result
}

/// Stands before the C library's `closefrom`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    beside(|| {
        exs::closing_range(first.max(0) as c_uint, c_uint::MAX);
        gate::closing_range(first.max(0) as c_uint, c_uint::MAX);
    });
    if hidden::any() {
        for (first, last) in hidden::around(first.max(0) as c_uint, c_uint::MAX) {
            // SAFETY: the program's own arguments, passed on unchanged.
            unsafe { real::close_range(first, last, 0) };
        }
        return;
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::closefrom(first) }
}
