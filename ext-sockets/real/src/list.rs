//! The C library's functions that ours stand before, each with its C signature.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

use libc::{
    epoll_event, fd_set, iovec, mmsghdr, mode_t, msghdr, nfds_t, off_t, pollfd, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec, timeval,
};

use super::{Absent, Found};

/// Returns the address of the C library's `dprintf`; null when there is none.
#[inline]
pub fn dprintf_address() -> *const c_void {
    static DPRINTF: Found = Found::not_yet();
    DPRINTF.address(c"dprintf")
}

/// Returns the address of the C library's `__dprintf_chk`; null when there is none.
#[inline]
pub fn dprintf_chk_address() -> *const c_void {
    static DPRINTF_CHK: Found = Found::not_yet();
    DPRINTF_CHK.address(c"__dprintf_chk")
}

macro_rules! real {
    ($(
        $(extern $abi:literal)? fn $name:ident(
            $($arg:ident: $type:ty),* $(; $($extra:ident: $more:ty),+)?
        ) $(-> $result:ty)?;
    )*) => {
        #[allow(non_snake_case)]
        struct Next { $($name: Found),* }

        static REAL: Next = Next { $($name: Found::not_yet()),* };

        /// Looks all of the functions up, so that no later call has to.
        pub fn resolve() {
            $(REAL.$name.address(real!(@name $name));)*
            dprintf_address();
            dprintf_chk_address();
        }

        $(
            #[doc = concat!("The C library's `", stringify!($name), "`.")]
            ///
            /// # Safety
            ///
            /// As of the function in C: pointers lead to what it takes them for.
            #[inline]
            pub unsafe fn $name($($arg: $type),* $(, $($extra: $more),+)?) -> real!(@result $($result)?) {
                let found = REAL.$name.address(real!(@name $name));
                if found.is_null() {
                    return Absent::absent();
                }
                // SAFETY: `dlsym` found it by this name, and this is the C signature of that name.
                let function = unsafe {
                    std::mem::transmute::<
                        *mut c_void,
                        real!(@type $($abi)? ($($type),*) $(; $($more),+)? => real!(@result $($result)?)),
                    >(found)
                };
                // SAFETY: the arguments are passed on unchanged to the C library's function of this
                // name, whose contract is this function's own.
                unsafe { function($($arg),* $(, $($extra),+)?) }
            }
        )*
    };
    (@name $name:ident) => {
        const { match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("no nul in a name"),
        } }
    };
    (@result) => { () };
    (@result $result:ty) => { $result };
    (@type ($($type:ty),*) => $result:ty) => { unsafe extern "C" fn($($type),*) -> $result };
    (@type $abi:literal ($($type:ty),*) => $result:ty) => { unsafe extern $abi fn($($type),*) -> $result };
    // Types behind the semicolon are those of variadic arguments.
    (@type ($($type:ty),*); $($more:ty),+ => $result:ty) => { unsafe extern "C" fn($($type),*, ...) -> $result };
}

real! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, fds: *mut c_int) -> c_int;
    fn pipe(fds: *mut c_int) -> c_int;
    fn pipe2(fds: *mut c_int, flags: c_int) -> c_int;
    fn open(path: *const c_char, flags: c_int; mode: mode_t) -> c_int;
    fn open64(path: *const c_char, flags: c_int; mode: mode_t) -> c_int;
    fn openat(dir: c_int, path: *const c_char, flags: c_int; mode: mode_t) -> c_int;
    fn openat64(dir: c_int, path: *const c_char, flags: c_int; mode: mode_t) -> c_int;
    fn __open_2(path: *const c_char, flags: c_int) -> c_int;
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int;
    fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn creat(path: *const c_char, mode: mode_t) -> c_int;
    fn creat64(path: *const c_char, mode: mode_t) -> c_int;

    fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    fn listen(fd: c_int, backlog: c_int) -> c_int;
    fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fn accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    fn shutdown(fd: c_int, how: c_int) -> c_int;
    fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;

    fn read(fd: c_int, buf: *mut c_void, count: size_t) -> ssize_t;
    fn readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    fn preadv2(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn preadv64v2(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    fn recvfrom(
        fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t
    ) -> ssize_t;
    fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t;
    fn recvmmsg(fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    fn __read_chk(fd: c_int, buf: *mut c_void, count: size_t, room: size_t) -> ssize_t;
    fn __recv_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t;
    fn __recvfrom_chk(
        fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int, addr: *mut sockaddr,
        addr_len: *mut socklen_t
    ) -> ssize_t;

    fn write(fd: c_int, buf: *const c_void, count: size_t) -> ssize_t;
    fn writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    fn pwritev2(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn pwritev64v2(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    fn sendto(
        fd: c_int, buf: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr, addr_len: socklen_t
    ) -> ssize_t;
    fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t;
    fn sendmmsg(fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    fn sendfile(out: c_int, fd: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    fn sendfile64(out: c_int, fd: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    fn splice(
        fd: c_int, in_offset: *mut off_t, out: c_int, out_offset: *mut off_t, len: size_t, flags: c_uint
    ) -> ssize_t;
    fn tee(fd: c_int, out: c_int, len: size_t, flags: c_uint) -> ssize_t;
    fn vmsplice(fd: c_int, pieces: *const iovec, count: size_t, flags: c_uint) -> ssize_t;
    fn copy_file_range(
        fd: c_int, in_offset: *mut off_t, out: c_int, out_offset: *mut off_t, len: size_t, flags: c_uint
    ) -> ssize_t;
    fn vdprintf(fd: c_int, format: *const c_char, args: *mut c_void) -> c_int;
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, args: *mut c_void) -> c_int;

    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn closefrom(first: c_int);
    fn dup(fd: c_int) -> c_int;
    fn dup2(fd: c_int, to: c_int) -> c_int;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int; argument: usize) -> c_int;
    fn fcntl64(fd: c_int, command: c_int; argument: usize) -> c_int;
    fn ioctl(fd: c_int, request: c_ulong; argument: usize) -> c_int;
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE;
    fn fileno(file: *mut libc::FILE) -> c_int;
    fn fileno_unlocked(file: *mut libc::FILE) -> c_int;
    fn prctl(option: c_int; a: usize, b: usize, c: usize, d: usize) -> c_int;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;

    // A thread that is cancelled unwinds its stack out of these, which drops what the callers'
    // frames hold.
    extern "C-unwind" fn select(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval
    ) -> c_int;
    extern "C-unwind" fn pselect(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec,
        mask: *const sigset_t
    ) -> c_int;
    extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    extern "C-unwind" fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    extern "C-unwind" fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int;
    extern "C-unwind" fn __ppoll_chk(
        fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t
    ) -> c_int;
    fn epoll_create(size: c_int) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    extern "C-unwind" fn epoll_wait(epoll: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int;
    extern "C-unwind" fn epoll_pwait(
        epoll: c_int, events: *mut epoll_event, room: c_int, timeout: c_int, mask: *const sigset_t
    ) -> c_int;
    extern "C-unwind" fn epoll_pwait2(
        epoll: c_int, events: *mut epoll_event, room: c_int, timeout: *const timespec, mask: *const sigset_t
    ) -> c_int;

    fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    fn signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
    fn __sysv_signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
    fn sigset(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
    fn sighold(signal: c_int) -> c_int;
    fn sigrelse(signal: c_int) -> c_int;
    fn sigignore(signal: c_int) -> c_int;
    fn siginterrupt(signal: c_int, flag: c_int) -> c_int;
    fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int;
    fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int;
    fn sigsuspend(mask: *const sigset_t) -> c_int;
    fn sigpending(set: *mut sigset_t) -> c_int;
    fn sigtimedwait(set: *const sigset_t, info: *mut libc::siginfo_t, timeout: *const timespec) -> c_int;
    fn sigwait(set: *const sigset_t, signal: *mut c_int) -> c_int;
    fn pthread_create(
        thread: *mut libc::pthread_t, attributes: *const libc::pthread_attr_t, start: *const c_void,
        argument: *mut c_void
    ) -> c_int;
    fn execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int;
    fn execvp(file: *const c_char, arguments: *const *const c_char) -> c_int;
    fn execvpe(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn fexecve(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn execveat(
        dir: c_int, path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char,
        flags: c_int
    ) -> c_int;
    fn posix_spawn(
        pid: *mut libc::pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *const c_char, environment: *const *const c_char
    ) -> c_int;
    fn posix_spawnp(
        pid: *mut libc::pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *const c_char, environment: *const *const c_char
    ) -> c_int;

    fn syscall(number: c_long; a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long;
}
