//! System calls of the library itself, which no preload may take for the program's, and in which no
//! thread is cancelled (`pthread_cancel`).
//!
//! A preload that makes rsockets of sockets (`librspreload.so`) would make one of the TCP socket
//! beneath an rsocket, too, and so on without end. And the C library's functions end a thread that
//! was cancelled, in the midst of what the library does for it: with locks held, below functions
//! that may not unwind. So the names by which the crates beneath call the C library lead, inside
//! this library alone, to functions that ask the kernel. The socket switch of `rddp run` is passed
//! as well: it never sees the device's connections.
//!
//! Where a thread sleeps for the program it may be cancelled: see [`cancel`](super::cancel).

use std::ffi::{c_int, c_long, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::cancel;

type Read = unsafe extern "C" fn(usize, usize, usize) -> isize;

/// Returns the C library's `read`, whatever stands before it in the dynamic linker's search order.
/// It is looked up once; threads that do so at the same time find the same.
fn real_read() -> Option<Read> {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let mut found = FOUND.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: names that end with nul. The C library is there already, is only asked for, and
        // is never unloaded.
        found = unsafe {
            let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            libc::dlsym(if library.is_null() { libc::RTLD_NEXT } else { library }, c"read".as_ptr())
        };
        FOUND.store(found, Ordering::Relaxed);
    }
    // SAFETY: NULL, or the function of this name: three integers and pointers, and a count.
    unsafe { std::mem::transmute::<*mut c_void, Option<Read>>(found) }
}

/// Asks the kernel. Fails as functions of the C library do: -1, with errno set.
///
/// # Safety
/// As for the system call of this number.
unsafe fn kernel(number: c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: promised by the caller.
    unsafe { libc::syscall(number, a, b, c, d, e, f) as isize }
}

/// Defines the function that a name leads to inside this library. It is not visible outside: the
/// program's calls are none of ours.
macro_rules! label {
    ($name:ident) => {
        #[cfg(target_arch = "x86_64")]
        label!($name, "jmp");
        #[cfg(not(target_arch = "x86_64"))]
        label!($name, "b");
    };
    ($name:ident, $jump:literal) => {
        core::arch::global_asm!(
            concat!(".text\n.globl ", stringify!($name), "\n.hidden ", stringify!($name), "\n.type ",
                    stringify!($name), ", %function\n", stringify!($name), ": ", $jump, " {f}"),
            f = sym $name);
    };
}

/// Functions whose system call has their arguments: six integers and pointers at most, which are
/// passed on as they are, as is what comes back.
macro_rules! alike {
    ($($name:ident $number:ident)*) => { $(
        unsafe extern "C" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
            // SAFETY: the function's contract is that of the system call.
            unsafe { kernel(libc::$number, [a, b, c, d, e, f]) }
        }
        label!($name);
    )* };
}

alike! {
    accept4 SYS_accept4
    bind SYS_bind
    close SYS_close
    connect SYS_connect
    epoll_create1 SYS_epoll_create1
    epoll_ctl SYS_epoll_ctl
    fcntl SYS_fcntl
    getpeername SYS_getpeername
    getsockname SYS_getsockname
    getsockopt SYS_getsockopt
    ioctl SYS_ioctl
    listen SYS_listen
    readv SYS_readv
    recvfrom SYS_recvfrom
    recvmsg SYS_recvmsg
    sendmsg SYS_sendmsg
    sendto SYS_sendto
    setsockopt SYS_setsockopt
    shutdown SYS_shutdown
    socket SYS_socket
    write SYS_write
    writev SYS_writev
}

/// Functions whose system call has other arguments.
macro_rules! unlike {
    ($($name:ident)*) => { $( label!($name); )* };
}

unlike! { clock_nanosleep epoll_wait open open64 poll ppoll read recv send }

unsafe extern "C" fn read(fd: usize, to: usize, len: usize) -> isize {
    match real_read().filter(|_| cancel::may_be()) {
        // SAFETY: the function's contract.
        Some(read) => unsafe { read(fd, to, len) },
        // SAFETY: as above.
        None => unsafe { kernel(libc::SYS_read, [fd, to, len, 0, 0, 0]) },
    }
}

unsafe extern "C" fn recv(fd: usize, to: usize, len: usize, flags: usize) -> isize {
    // SAFETY: the function's contract.
    unsafe { kernel(libc::SYS_recvfrom, [fd, to, len, flags, 0, 0]) }
}

unsafe extern "C" fn send(fd: usize, from: usize, len: usize, flags: usize) -> isize {
    // SAFETY: the function's contract.
    unsafe { kernel(libc::SYS_sendto, [fd, from, len, flags, 0, 0]) }
}

unsafe extern "C" fn open(path: usize, flags: usize, mode: usize) -> isize {
    // SAFETY: the function's contract.
    unsafe { kernel(libc::SYS_openat, [libc::AT_FDCWD as usize, path, flags, mode, 0, 0]) }
}

unsafe extern "C" fn open64(path: usize, flags: usize, mode: usize) -> isize {
    // SAFETY: the function's contract; offsets have 64 bits in either.
    unsafe { open(path, flags, mode) }
}

unsafe extern "C" fn epoll_wait(fd: usize, events: usize, most: usize, timeout: usize) -> isize {
    // SAFETY: the function's contract; no mask of signals is set.
    unsafe { kernel(libc::SYS_epoll_pwait, [fd, events, most, timeout, 0, SIGNALS]) }
}

unsafe extern "C" fn poll(fds: usize, count: usize, timeout: c_int) -> isize {
    let millis = i64::from(timeout);
    let time = libc::timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 };
    let time = if timeout < 0 { null() } else { &raw const time };
    // SAFETY: the function's contract; no mask of signals is set.
    unsafe { ppoll(fds, count, time, 0) }
}

unsafe extern "C" fn ppoll(fds: usize, count: usize, time: *const libc::timespec, mask: usize) -> isize {
    // SAFETY: the function's contract. The kernel stores the time that was left, into a copy.
    unsafe {
        let mut time = time.as_ref().copied();
        let time = time.as_mut().map_or(null_mut(), std::ptr::from_mut).expose_provenance();
        kernel(libc::SYS_ppoll, [fds, count, time, mask, SIGNALS, 0])
    }
}

/// Returns the number of the error, and leaves errno alone.
unsafe extern "C" fn clock_nanosleep(clock: usize, flags: usize, time: usize, left: usize) -> c_int {
    let before = nix::errno::Errno::last();
    // SAFETY: the function's contract.
    let slept = unsafe { kernel(libc::SYS_clock_nanosleep, [clock, flags, time, left, 0, 0]) };
    let error = nix::errno::Errno::last();
    before.set();
    if slept == 0 { 0 } else { error as c_int }
}

/// Octets of the kernel's set of signals.
const SIGNALS: usize = 8;
