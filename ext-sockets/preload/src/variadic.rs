//! Functions that are variadic in C: `fcntl`, `ioctl`, `open` and their like, `syscall`.
//!
//! Stable Rust can call variadic functions and cannot define them. But on Linux both `x86_64`
//! (System V ABI §3.5.7) and aarch64 (AAPCS64 §6.4) pass a variadic argument that is an integer or
//! a pointer just where a named one of that place would be, so a function with the most arguments
//! that the call can have receives whichever were passed. One that was not passed reads as whatever
//! its register or stack slot holds; the C library reads it in the same way and uses it only where
//! the command says that there is one. As named arguments they go on to the C library's function,
//! which is called as variadic.

use std::ffi::{c_char, c_int, c_long, c_ulong};
use std::ptr::with_exposed_provenance_mut;

use libc::mode_t;
use rddp_es_api::exs;
use rddp_fault_guard::is_installed;
use rddp_real as real;
use rddp_stream::{Errno, lent};
use rddp_switch::gate::{self, Route};
use rddp_switch::{kinds, switch, table};

use crate::hook::{answer, beside, fail};
use crate::{control, create, data, raw_signals, signals, start, wait};

hooks! {
    new fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    new fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    new fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    new fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
}

macro_rules! fcntls {
    ($($name:ident)*) => {
        $(
            #[doc = concat!("Stands before the C library's `", stringify!($name), "`.")]
            ///
            /// # Safety
            ///
            /// As in C.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(fd: c_int, command: c_int, argument: usize) -> c_int {
                if let Route::Refused(errno) = gate::descriptor_command(fd, command, argument) {
                    return fail(errno);
                }
                if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
                    let duplicate = beside(|| gate::duplicate(fd));
                    // SAFETY: the program's own arguments, passed on unchanged.
                    let to = unsafe { real::$name(fd, command, argument) };
                    if to >= 0 {
                        beside(|| duplicate.is(to));
                    }
                    return to;
                }
                // SAFETY: the program's own arguments, passed on unchanged.
                unsafe { real::$name(fd, command, argument) }
            }
        )*
    };
}

fcntls! { fcntl fcntl64 }

/// Stands before the C library's `ioctl`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    if let Route::Refused(errno) = gate::device_command(fd, request) {
        return fail(errno);
    }
    if matches!(request, libc::FIONREAD | SIOCATMARK) {
        let given = answer(|| {
            let Route::Ours(ours) = gate::data(fd) else { return Err(Errno::PLAIN) };
            let count = if request == SIOCATMARK { ours.is_at_mark()?.into() } else { ours.available()? };
            let place: *mut c_int = with_exposed_provenance_mut(argument);
            // SAFETY: the program's place for an int; `lent` fails where no memory is.
            unsafe { lent::put(place, c_int::try_from(count).unwrap_or(c_int::MAX)) }?;
            Ok(0)
        });
        if let Some(result) = given {
            return result;
        }
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    let result = unsafe { real::ioctl(fd, request, argument) };
    if result == 0 && matches!(request, libc::TIOCOUTQ | SIOCOUTQNSD) && table::entry(fd).is_some() {
        let place: *mut c_int = with_exposed_provenance_mut(argument);
        // SAFETY: the kernel has just written an int there.
        beside(|| unsafe { *place = (*place).saturating_add(gate::unsent(fd) as c_int) });
    }
    result
}

/// Stands before the C library's `prctl`.
///
/// A process that is about to confine itself to a few system calls (seccomp) makes no others on its
/// framed sockets from then on.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    if option == libc::PR_SET_SECCOMP && table::any() {
        beside(kinds::confine);
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::prctl(option, a, b, c, d) }
}

/// Stands before the C library's `syscall`.
///
/// A call on a socket of ours, or one that makes or closes descriptors, is treated as the function
/// of its name.
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
    if table::any() || switch::is_on() || exs::is_used() || is_installed() {
        // SAFETY: the program's own arguments, of this system call.
        if let Some(result) = unsafe { by_name(number, [a, b, c, d, e, f]) } {
            return result;
        }
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::syscall(number, a, b, c, d, e, f) }
}

/// Makes the call by our function of its name; `None` if there is none.
///
/// # Safety
///
/// The arguments are those of that system call.
unsafe fn by_name(number: c_long, arguments: [usize; 6]) -> Option<c_long> {
    let [a, b, c, d, e, f] = arguments;
    let (fd, len) = (a as c_int, c as libc::socklen_t);
    // SAFETY: the arguments are those of the system call; C's functions take what the kernel's
    // calls take, but for signal masks, whose length is fixed.
    let result = unsafe {
        match number {
            libc::SYS_read => return Some(data::read(fd, at(b), c) as c_long),
            libc::SYS_readv => return Some(data::readv(fd, at(b), c as c_int) as c_long),
            libc::SYS_recvfrom => {
                return Some(data::recvfrom(fd, at(b), c, d as c_int, at(e), at(f)) as c_long);
            }
            libc::SYS_recvmsg => return Some(data::recvmsg(fd, at(b), c as c_int) as c_long),
            libc::SYS_write => return Some(data::write(fd, at(b), c) as c_long),
            libc::SYS_writev => return Some(data::writev(fd, at(b), c as c_int) as c_long),
            libc::SYS_sendto => {
                return Some(data::sendto(fd, at(b), c, d as c_int, at(e), f as libc::socklen_t) as c_long);
            }
            libc::SYS_sendmsg => return Some(data::sendmsg(fd, at(b), c as c_int) as c_long),
            libc::SYS_sendfile => return Some(data::sendfile(fd, b as c_int, at(c), d) as c_long),
            libc::SYS_splice => {
                return Some(data::splice(fd, at(b), c as c_int, at(d), e, f as u32) as c_long);
            }
            libc::SYS_recvmmsg => data::recvmmsg(fd, at(b), c as u32, d as c_int, at(e)),
            libc::SYS_sendmmsg => data::sendmmsg(fd, at(b), c as u32, d as c_int),
            libc::SYS_shutdown => control::shutdown(fd, b as c_int),
            libc::SYS_connect => control::connect(fd, at(b), len),
            libc::SYS_listen => control::listen(fd, b as c_int),
            libc::SYS_setsockopt => {
                control::setsockopt(fd, b as c_int, c as c_int, at(d), e as libc::socklen_t)
            }
            libc::SYS_getsockopt => control::getsockopt(fd, b as c_int, c as c_int, at(d), at(e)),
            libc::SYS_accept4 => create::accept4(fd, at(b), at(c), d as c_int),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_accept => create::accept(fd, at(b), at(c)),
            libc::SYS_dup => create::dup(fd),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => create::dup2(fd, b as c_int),
            libc::SYS_dup3 => create::dup3(fd, b as c_int, c as c_int),
            libc::SYS_close => create::close(fd),
            libc::SYS_close_range => create::close_range(a as u32, b as u32, c as c_int),
            libc::SYS_socket => create::socket(fd, b as c_int, c as c_int),
            libc::SYS_fcntl => fcntl(fd, b as c_int, c),
            libc::SYS_ioctl => ioctl(fd, b as c_ulong, c),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => wait::poll(at(a), b as libc::nfds_t, c as c_int),
            libc::SYS_ppoll => wait::ppoll(at(a), b as libc::nfds_t, at(c), at(d)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => wait::select(fd, at(b), at(c), at(d), at(e)),
            // The mask comes in a structure with its length.
            libc::SYS_pselect6 => wait::pselect(fd, at(b), at(c), at(d), at(e), mask_at(f)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_create => wait::epoll_create(fd),
            libc::SYS_epoll_create1 => wait::epoll_create1(fd),
            libc::SYS_epoll_ctl => wait::epoll_ctl(fd, b as c_int, c as c_int, at(d)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => wait::epoll_wait(fd, at(b), c as c_int, d as c_int),
            libc::SYS_epoll_pwait => wait::epoll_pwait(fd, at(b), c as c_int, d as c_int, at(e)),
            libc::SYS_epoll_pwait2 => wait::epoll_pwait2(fd, at(b), c as c_int, at(d), at(e)),
            libc::SYS_rt_sigaction => return Some(raw_signals::sigaction(fd, at(b), at(c), d)?.into()),
            libc::SYS_rt_sigprocmask => {
                return Some(raw_signals::sigprocmask(fd, at(b), at(c), d)?.into());
            }
            libc::SYS_rt_sigpending if b == SET_LEN => signals::sigpending(at(a)),
            libc::SYS_rt_sigsuspend if b == SET_LEN => signals::sigsuspend(at(a)),
            libc::SYS_rt_sigtimedwait if d == SET_LEN => signals::sigtimedwait(at(a), at(b), at(c)),
            libc::SYS_execve => start::execve(at(a), at(b), at(c)),
            libc::SYS_seccomp if table::any() => {
                beside(kinds::confine);
                return None;
            }
            _ => return None,
        }
    };
    Some(c_long::from(result))
}

/// Returns the address of the signal mask of `pselect6`.
///
/// # Safety
///
/// `address` is 0 or that of a pointer.
unsafe fn mask_at(address: usize) -> *const libc::sigset_t {
    // SAFETY: 0, or the address of the program's pointer to a mask.
    unsafe { at::<*const libc::sigset_t>(address).as_ref() }.map_or(std::ptr::null(), |mask| *mask)
}

fn at<T>(address: usize) -> *mut T {
    with_exposed_provenance_mut(address)
}

/// Octets of a signal set in the kernel.
const SET_LEN: usize = 8;

// linux/sockios.h; not in `libc`.
const SIOCATMARK: c_ulong = 0x8905;
const SIOCOUTQNSD: c_ulong = 0x894b;
