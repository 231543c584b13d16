//! The C library's own functions, which stand behind ours in the dynamic linker's search order.
//!
//! `resolve` looks all of them up when the library is loaded. A call that comes earlier, from a
//! constructor of another library, looks its own function up: `dlsym` takes no lock of ours and
//! allocates nothing when it finds something. After that a call costs one load and an indirect
//! jump, leaves errno alone and is as safe in a signal handler as the C library's function.
//!
//! Other modules: numbers of descriptors that the program does not know of ([`hidden`]), and time
//! limits ([`deadline`]).
#![allow(unsafe_code)] // function pointers by name are what this crate is for

mod address;
mod calls;
mod captured;
pub mod deadline;
mod epoll;
mod forks;
pub mod hidden;
mod list;
mod pair;
mod process;
mod signals;
mod tcp;
mod value;

use std::ffi::{CStr, c_int, c_short, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

pub use address::{Address, address_in_kernels_family, address_of, connect_to, local_address, peer_address};
pub use calls::calls;
pub use epoll::{Wanted, control, new_set, wait_for_set};
pub use forks::{Forking, Lockable, is_only_thread};
pub use list::*;
pub use pair::{
    give_token, option, pair, put_under, read_at, seek, set_close_on_exec, set_nonblocking, shut, sleep_for,
    take_token, try_option,
};
pub use process::{
    after_fork, around_fork, at_exit, claim_memory, is_copied_memory, program_name, secure_variable,
    to_syslog, user_id,
};
pub use rddp_stream::tcp_state::{TCP_CLOSE, TCP_ESTABLISHED, TCP_LISTEN, TCP_SYN_RECV, TCP_SYN_SENT};
pub use rddp_stream::{Errno, Recall, Sends, source_pieces};
pub use signals::{
    Locked, NoSignals, block_faults, forget_process, guard_by_these, lock, process_id, take_faults,
};
pub use tcp::{disconnect, has_peers_fin, is_mptcp, is_tcp, state_of_tcp, tcp_state};
pub use value::Value;

use rddp_stream::SameErrno;

/// Address of a function: null before it was looked up, [`ABSENT`] when there is none.
struct Found(AtomicPtr<c_void>);

/// An address at which no function can be.
const ABSENT: *mut c_void = std::ptr::without_provenance_mut(1);

impl Found {
    const fn not_yet() -> Self {
        Found(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Returns the address, or null when this C library has no such function.
    #[inline]
    fn address(&self, name: &CStr) -> *mut c_void {
        let found = self.0.load(Ordering::Relaxed);
        if found.is_null() || found == ABSENT { self.look_up(name) } else { found }
    }

    #[cold]
    fn look_up(&self, name: &CStr) -> *mut c_void {
        if self.0.load(Ordering::Relaxed) == ABSENT {
            return std::ptr::null_mut();
        }
        // SAFETY: `name` ends with a nul.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        // Two threads that look it up at once find the same address.
        self.0.store(if found.is_null() { ABSENT } else { found }, Ordering::Relaxed);
        found
    }
}

/// The result of calling a function that this C library does not have.
trait Absent {
    fn absent() -> Self;
}

impl Absent for c_int {
    fn absent() -> Self {
        Errno(libc::ENOSYS).set_last();
        -1
    }
}

impl Absent for isize {
    fn absent() -> Self {
        Errno(libc::ENOSYS).set_last();
        -1
    }
}

impl Absent for usize {
    fn absent() -> Self {
        Errno(libc::ENOSYS).set_last();
        libc::SIG_ERR
    }
}

impl Absent for i64 {
    fn absent() -> Self {
        Errno(libc::ENOSYS).set_last();
        -1
    }
}

impl Absent for *mut libc::FILE {
    fn absent() -> Self {
        Errno(libc::ENOSYS).set_last();
        std::ptr::null_mut()
    }
}

impl Absent for () {
    fn absent() -> Self {}
}

/// Returns the cookie that the kernel gave this socket: the same across `dup` and `fork`, different
/// for every other socket.
///
/// `None` when the descriptor is no socket. Leaves errno as it was.
pub fn cookie(fd: c_int) -> Option<u64> {
    let mut cookie = 0u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    let _same = SameErrno::here();
    // SAFETY: the kernel writes at most `len` octets to `cookie`, which is as long.
    let got =
        unsafe { getsockopt(fd, libc::SOL_SOCKET, libc::SO_COOKIE, (&raw mut cookie).cast(), &raw mut len) };
    (got == 0).then_some(cookie)
}

/// Returns an option of a socket whose value is an int; `None` when there is none. Leaves errno as
/// it was.
pub fn int_option(fd: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    let _same = SameErrno::here();
    // SAFETY: the kernel writes at most `len` octets to `value`, which is as long.
    let got = unsafe { getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    (got == 0).then_some(value)
}

/// Returns an option of a socket whose value is a `struct timeval`, as seconds and microseconds.
/// Leaves errno as it was.
pub fn time_option(fd: c_int, level: c_int, name: c_int) -> Option<(i64, i64)> {
    let mut value = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut len = size_of::<libc::timeval>() as libc::socklen_t;
    let _same = SameErrno::here();
    // SAFETY: the kernel writes at most `len` octets to `value`, which is as long.
    let got = unsafe { getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    (got == 0).then_some((value.tv_sec, value.tv_usec))
}

/// Sets an option of a socket; nothing happens if the socket has no such option. Leaves errno as it
/// was.
pub fn set_option(fd: c_int, level: c_int, name: c_int, octets: &[u8]) {
    let _same = SameErrno::here();
    // SAFETY: the kernel reads as many octets as the slice has.
    unsafe { setsockopt(fd, level, name, octets.as_ptr().cast(), octets.len() as libc::socklen_t) };
}

/// Copies octets that the kernel has received and nobody has read yet, and leaves them there.
/// Returns how many fitted. Leaves errno as it was.
pub fn peek(fd: c_int, front: &mut [u8]) -> usize {
    let _same = SameErrno::here();
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: `front` is borrowed for writing until the call returns.
    let seen = unsafe { recv(fd, front.as_mut_ptr().cast(), front.len(), flags) };
    usize::try_from(seen).unwrap_or(0)
}

/// Returns whether `O_NONBLOCK` is set. Leaves errno as it was.
pub fn is_nonblocking(fd: c_int) -> bool {
    let _same = SameErrno::here();
    // SAFETY: `F_GETFL` takes no pointer.
    let flags = unsafe { fcntl(fd, libc::F_GETFL, 0) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

/// Sleeps until `fd` has one of `events`, or `time` is over; returns whether it has. Leaves errno
/// as it was.
///
/// # Errors
/// The errno of a sleep that failed.
pub fn sleep_on(fd: c_int, events: c_short, time: Duration) -> Result<bool, Errno> {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    let milliseconds = c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX);
    let _same = SameErrno::here();
    // SAFETY: one entry, which lives until the call returns.
    let ready = unsafe { poll(&raw mut entry, 1, milliseconds) };
    if ready < 0 { Err(Errno::last()) } else { Ok(ready > 0) }
}

/// Returns which of `events` the descriptor has now. Leaves errno as it was.
pub fn events_now(fd: c_int, events: c_short) -> c_short {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    let _same = SameErrno::here();
    // SAFETY: one entry, which lives until the call returns.
    unsafe { poll(&raw mut entry, 1, 0) };
    entry.revents
}

/// Returns how many octets TCP has been given that the peer has not acknowledged (`SIOCOUTQ`); none
/// once the connection is gone. Leaves errno as it was.
pub fn unacknowledged(fd: c_int) -> usize {
    let mut count: c_int = 0;
    let _same = SameErrno::here();
    // SAFETY: the call writes one int, which lives until it returns.
    unsafe { ioctl(fd, libc::TIOCOUTQ as libc::c_ulong, (&raw mut count).expose_provenance()) };
    // The number stays where the connection was reset.
    let is_none = count > 0 && tcp_state(fd) == Some(TCP_CLOSE);
    if is_none { 0 } else { usize::try_from(count).unwrap_or(0) }
}

/// Returns whether a descriptor of this number is open. Leaves errno as it was.
pub fn is_open(fd: c_int) -> bool {
    let _same = SameErrno::here();
    // SAFETY: F_GETFD takes no pointer.
    let flags = unsafe { fcntl(fd, libc::F_GETFD, 0) };
    flags >= 0
}

/// Ends both directions of a connection, which wakes threads that sleep in a call on it. Leaves
/// errno as it was.
pub fn shut_both(fd: c_int) {
    let _same = SameErrno::here();
    // SAFETY: takes two integers.
    unsafe { shutdown(fd, libc::SHUT_RDWR) };
}

/// Makes another number for the open file of `fd`, closed by `exec`. The number lies above those of
/// `select` if possible, as programs count on low ones, and not far above, as each fork copies the
/// table. Leaves errno as it was.
pub fn duplicate_high(fd: c_int) -> Option<c_int> {
    let _same = SameErrno::here();
    // SAFETY: `F_DUPFD_CLOEXEC` takes an int.
    let duplicate = |from: &usize| unsafe { fcntl(fd, libc::F_DUPFD_CLOEXEC, *from) };
    let few = descriptor_limit() / 2;
    [libc::FD_SETSIZE, 900, 200, few].iter().map(duplicate).find(|number| *number >= 0)
}

/// Returns the lowest free number: at least so many descriptors are in use. `None`: no number is
/// free. Leaves errno as it was.
pub fn lowest_free(fd: c_int) -> Option<usize> {
    let _same = SameErrno::here();
    // SAFETY: `F_DUPFD_CLOEXEC` takes an int.
    let number = unsafe { fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    if number >= 0 {
        close_number(number);
    }
    usize::try_from(number).ok()
}

/// Returns how many descriptors this process may have. Leaves errno as it was.
pub fn descriptor_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills `limit`, which lives until the call returns; the call cannot fail.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

/// Returns the time of `SO_LINGER`, if it is on. Leaves errno as it was.
pub fn linger(fd: c_int) -> Option<std::time::Duration> {
    let mut linger = libc::linger { l_onoff: 0, l_linger: 0 };
    let mut len = size_of::<libc::linger>() as libc::socklen_t;
    let _same = SameErrno::here();
    let at = (&raw mut linger).cast();
    // SAFETY: the kernel writes at most `len` octets to `linger`, which is as long.
    unsafe { getsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, at, &raw mut len) };
    (linger.l_onoff != 0).then(|| std::time::Duration::from_secs(u64::from(linger.l_linger.unsigned_abs())))
}

/// Closes a number that nothing else refers to.
pub fn close_number(fd: c_int) {
    // SAFETY: takes an integer.
    unsafe { close(fd) };
}

/// Makes a descriptor that nothing ever comes from, and that takes octets until a buffer is full.
/// It is closed by `exec`. Leaves errno as it was.
pub fn silent_number() -> Option<c_int> {
    let mut pair = [-1; 2];
    let _same = SameErrno::here();
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: the call sets two ints, which live until it returns.
    let made = unsafe { socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) };
    // The other end stays open too: its close would be an end of the stream.
    (made == 0).then_some(pair[0])
}

/// Puts the file of `instead` under the number `fd`, whose file is closed by that. Leaves errno as
/// it was.
pub fn replace_number(fd: c_int, instead: c_int) {
    let _same = SameErrno::here();
    // SAFETY: takes three integers.
    unsafe { dup3(instead, fd, libc::O_CLOEXEC) };
}

/// Returns the time of the monotonic clock, some milliseconds late; far cheaper than a system call.
pub fn roughly_now() -> std::time::Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills `now`, which lives until it returns.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    std::time::Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// Returns whether this process has, or has had, more than one thread, as far as the C library
/// tells (glibc 2.32).
pub fn has_threads() -> bool {
    static SINGLE: Found = Found::not_yet();
    let single = SINGLE.address(c"__libc_single_threaded").cast::<u8>();
    // SAFETY: null was ruled out; else a byte of the C library's that lives as long as the process,
    // and is changed only while no other thread could read it.
    single.is_null() || unsafe { single.read_volatile() } == 0
}

/// Returns the errno that explains why an option could not be read: `EBADF` when nothing is open
/// under `fd`, `ENOTSOCK` when it is not a socket.
pub fn why_no_socket(fd: c_int) -> Errno {
    // SAFETY: F_GETFD takes no pointer.
    let flags = unsafe { fcntl(fd, libc::F_GETFD, 0) };
    if flags < 0 { Errno::NO_DESCRIPTOR } else { Errno(libc::ENOTSOCK) }
}
