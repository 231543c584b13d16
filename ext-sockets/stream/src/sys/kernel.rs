//! The TCP socket: every system call on it. Only [`Kernel::poll`], [`Kernel::await_octet`] and
//! [`Kernel::sleep_by_edges`](super::edges) sleep.

use std::ffi::{c_int, c_short, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Calls, Cancellable, held};
use crate::tcp_state::{TCP_CLOSE, TCP_SYN_RECV, TCP_SYN_SENT, has_peers_fin};
use crate::{Caller, Errno, Linger};

/// A direction of the connection, or both, as `shutdown` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Receive,
    Send,
    Both,
}

/// State of a TCP connection, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tcp {
    /// The connection is being made.
    Connecting,
    /// Octets can flow, or could until an end closed.
    Connected,
    /// The connection could not be made, or is gone.
    Closed,
}

/// A descriptor and the functions to use on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel<'a> {
    pub(crate) fd: RawFd,
    pub(crate) calls: &'a Calls,
    pub(crate) caller: &'a dyn Caller,
}

impl Kernel<'_> {
    /// Takes octets off the receive queue. 0: the peer has closed, and all is read.
    pub(crate) fn take(&self, pieces: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        if is_confined() {
            return self.read_pieces(pieces);
        }
        self.receive(pieces, libc::MSG_DONTWAIT)
    }

    /// Looks at octets and leaves them there.
    pub(crate) fn peek(&self, pieces: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        if is_confined() {
            return Err(Errno::UNSUPPORTED);
        }
        self.receive(pieces, libc::MSG_DONTWAIT | libc::MSG_PEEK)
    }

    /// Looks whether an octet is there: 0 at the end.
    pub(crate) fn glance(&self) -> Result<usize, Errno> {
        self.peek(&mut [IoSliceMut::new(&mut [0])])
    }

    /// Drops `count` octets that are known to be there. Returns how many there were.
    #[inline] // a receive of short FPDUs ends in it
    pub(crate) fn discard(&self, count: usize) -> Result<usize, Errno> {
        if is_confined() {
            return self.read_nowhere(count);
        }
        // SAFETY: with MSG_TRUNC TCP drops octets and writes to no memory (tcp(7)).
        unsafe { self.recv(ptr::null_mut(), count, libc::MSG_DONTWAIT | libc::MSG_TRUNC) }
    }

    /// Sleeps until an octet, the peer's FIN or an error is there. The kernel restarts the call
    /// after a signal whose handler was installed with `SA_RESTART`. `EAGAIN` at once on a
    /// descriptor that does not block.
    pub(crate) fn await_octet(&self) -> Result<(), Errno> {
        self.asleep(|| {
            // SAFETY: with MSG_TRUNC TCP writes to no memory; MSG_PEEK leaves the octet where it
            // is.
            unsafe { self.recv(ptr::null_mut(), 1, libc::MSG_PEEK | libc::MSG_TRUNC) }.map(drop)
        })
    }

    fn read_pieces(&self, pieces: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        let mut done = 0;
        for piece in pieces.iter_mut().filter(|piece| !piece.is_empty()) {
            let count = match self.read(piece) {
                Err(error) if done == 0 => return Err(error),
                count => count.unwrap_or(0),
            };
            done += count;
            if count < piece.len() {
                break;
            }
        }
        Ok(done)
    }

    fn read_nowhere(&self, count: usize) -> Result<usize, Errno> {
        let mut nowhere = [0; 512];
        let mut done = 0;
        while done < count {
            let room = nowhere.len().min(count - done);
            match self.read(&mut nowhere[..room]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Reads by `read`, which has no flag for not waiting, where it does not have to wait.
    fn read(&self, out: &mut [u8]) -> Result<usize, Errno> {
        if self.poll(libc::POLLIN, Some(Duration::ZERO))? == 0 {
            return Err(Errno::WOULD_BLOCK);
        }
        // SAFETY: `out` is borrowed for writing until the call returns.
        octets(unsafe { (self.calls.0.confined.read)(self.fd, out.as_mut_ptr().cast(), out.len()) })
    }

    fn receive(&self, pieces: &mut [IoSliceMut<'_>], flags: c_int) -> Result<usize, Errno> {
        // One piece goes without a message: the kernel would have to copy and check its list.
        if let [only] = pieces {
            // SAFETY: the piece is borrowed for writing until the call returns.
            return unsafe { self.recv(only.as_mut_ptr().cast(), only.len(), flags) };
        }
        let mut message = message(pieces.as_mut_ptr().cast(), pieces.len());
        // SAFETY: an `IoSliceMut` is an iovec of memory that is borrowed for writing until the call
        // returns; the message has no name and no control data.
        octets(unsafe { (self.calls.0.recvmsg)(self.fd, &raw mut message, flags) })
    }

    /// Receives into memory by `recv`.
    ///
    /// # Safety
    /// As `recv` asks of the `count` octets at `at`.
    unsafe fn recv(&self, at: *mut c_void, count: usize, flags: c_int) -> Result<usize, Errno> {
        // SAFETY: `at` has room for `count` octets, or `flags` say that nothing is written.
        octets(unsafe { (self.calls.0.recv)(self.fd, at, count, flags) })
    }

    /// Gives octets to TCP, as many as it takes. Never raises `SIGPIPE`.
    pub(crate) fn send(&self, pieces: &[IoSlice<'_>], flags: c_int) -> Result<usize, Errno> {
        if is_confined() {
            return self.write(pieces);
        }
        let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        if let [only] = pieces {
            // SAFETY: the piece is borrowed until the call returns, which only reads it.
            return octets(unsafe { (self.calls.0.send)(self.fd, only.as_ptr().cast(), only.len(), flags) });
        }
        let message = message(pieces.as_ptr().cast_mut().cast(), pieces.len());
        // SAFETY: an `IoSlice` is an iovec of memory that is borrowed until the call returns, and
        // `sendmsg` only reads it.
        octets(unsafe { (self.calls.0.sendmsg)(self.fd, &raw const message, flags) })
    }

    /// Writes by `writev`, where there is room. With very little room the call may still wait on a
    /// descriptor that blocks, and it raises `SIGPIPE` itself.
    fn write(&self, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
        if self.poll(libc::POLLOUT, Some(Duration::ZERO))? == 0 {
            return Err(Errno::WOULD_BLOCK);
        }
        let count = c_int::try_from(pieces.len()).unwrap_or(c_int::MAX);
        // SAFETY: an `IoSlice` is an iovec of memory that is borrowed until the call returns, which
        // only reads it.
        octets(unsafe { (self.calls.0.confined.writev)(self.fd, pieces.as_ptr().cast(), count) })
    }

    /// Returns which of `events` the socket has, after sleeping for at most `timeout`. `None`
    /// sleeps without limit.
    pub(crate) fn poll(&self, events: c_short, timeout: Option<Duration>) -> Result<c_short, Errno> {
        let mut entry = libc::pollfd { fd: self.fd, events, revents: 0 };
        let span = timeout.map(timespec);
        let span = span.as_ref().map_or(ptr::null(), ptr::from_ref);
        let mut poll = || {
            // SAFETY: one entry and a time that live until the call returns; no signal mask.
            let got = unsafe { (self.calls.0.ppoll)(&raw mut entry, 1, span, ptr::null()) };
            if got < 0 { Err(Errno::last()) } else { Ok(entry.revents) }
        };
        if timeout != Some(Duration::ZERO) {
            return self.asleep(poll);
        }
        loop {
            match poll() {
                // If nothing is ready, Linux checks for signals before it checks the time.
                Err(Errno::INTERRUPTED) => {}
                answer => return answer,
            }
        }
    }

    /// Makes a call that sleeps. `EBADF`: the number was closed meanwhile.
    pub(super) fn asleep<T>(&self, mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
        held::assert_none();
        let sleep = Sleep::of(self.caller);
        let cancellable = Cancellable::here();
        let result = call();
        drop(cancellable);
        if sleep.ends() { result } else { Err(Errno::NO_DESCRIPTOR) }
    }

    /// Makes progress with the startup of other connections of this process. Returns when to do so
    /// again at the latest.
    pub(crate) fn progress_other_sockets(&self) -> Option<Duration> {
        (self.calls.0.others)()
    }

    /// Sets `SO_RCVLOWAT`: the socket is not readable with fewer octets.
    pub(crate) fn wake_at(&self, count: u32) -> Result<(), Errno> {
        self.set(libc::SOL_SOCKET, libc::SO_RCVLOWAT, c_int::try_from(count).unwrap_or(c_int::MAX))
    }

    /// Makes the receive buffer large enough that a partial FPDU in it does not close the window,
    /// unless the program has set its size. Setting `SO_RCVLOWAT` does it, and leaves the kernel's
    /// tuning on. Returns the buffer's size.
    pub(crate) fn widen(&self, window: u32) -> Result<usize, Errno> {
        self.wake_at(window)?;
        self.wake_at(1)?;
        let room = self.option(libc::SOL_SOCKET, libc::SO_RCVBUF);
        Ok(room.and_then(|room| usize::try_from(room).ok()).unwrap_or(0))
    }

    /// Makes the receive buffer as large as the system allows, up to a few of the longest FPDUs.
    /// Returns its size.
    pub(crate) fn widen_by_force(&self) -> Result<usize, Errno> {
        self.set(libc::SOL_SOCKET, libc::SO_RCVBUF, 512 * 1024)?;
        let room = self.option(libc::SOL_SOCKET, libc::SO_RCVBUF);
        Ok(room.and_then(|room| usize::try_from(room).ok()).unwrap_or(0))
    }

    /// Sets `TCP_NODELAY`: small segments go out at once.
    pub(crate) fn no_delay(&self) -> Result<(), Errno> {
        self.set(libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)
    }

    /// Sets `TCP_CORK`: segments that are not full wait, or go out now.
    pub(crate) fn cork(&self, on: bool) -> Result<(), Errno> {
        self.set(libc::IPPROTO_TCP, libc::TCP_CORK, c_int::from(on))
    }

    /// Returns the effective MSS of this moment.
    pub(crate) fn emss(&self) -> Option<usize> {
        self.option(libc::IPPROTO_TCP, libc::TCP_MAXSEG).and_then(|mss| usize::try_from(mss).ok())
    }

    /// Returns `TCP_NOTSENT_LOWAT`: with so many unsent octets a socket is not writable.
    pub(crate) fn most_not_sent(&self) -> usize {
        let most = self.option(libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);
        // 0 is the system's default, which is no limit in practice.
        most.filter(|most| *most != 0).map_or(usize::MAX, |most| most.cast_unsigned() as usize)
    }

    /// Returns the number of octets in the receive queue. A confined process cannot ask.
    pub(crate) fn unread(&self) -> Result<usize, Errno> {
        if is_confined() {
            return Err(Errno::WOULD_BLOCK);
        }
        let mut count: c_int = 0;
        // SAFETY: `FIONREAD` writes one int, which lives until the call returns.
        let done = unsafe { (self.calls.0.ioctl)(self.fd, libc::FIONREAD, (&raw mut count).cast()) };
        if done < 0 { Err(Errno::last()) } else { Ok(usize::try_from(count).unwrap_or(0)) }
    }

    /// Returns the error that the socket has for the next call, which gets it no more (`SO_ERROR`).
    pub(crate) fn take_error(&self) -> Option<Errno> {
        let error = self.option(libc::SOL_SOCKET, libc::SO_ERROR)?;
        (error != 0).then_some(Errno(error as c_int))
    }

    /// Returns how many octets TCP has been given that the peer's has not acknowledged; none once
    /// the connection is gone, or for a confined process, which cannot ask.
    pub(crate) fn unacknowledged(&self) -> usize {
        if is_confined() {
            return 0;
        }
        let mut count: c_int = 0;
        // SAFETY: `TIOCOUTQ` writes one int, which lives until the call returns.
        let done = unsafe { (self.calls.0.ioctl)(self.fd, libc::TIOCOUTQ, (&raw mut count).cast()) };
        // The number stays where the connection was reset.
        let is_none = done < 0 || count > 0 && self.calls.tcp_state(self.fd) == Some(TCP_CLOSE);
        if is_none { 0 } else { usize::try_from(count).unwrap_or(0) }
    }

    /// Returns whether `O_NONBLOCK` is set.
    pub(crate) fn is_nonblocking(&self) -> Result<bool, Errno> {
        // SAFETY: `F_GETFL` takes no argument.
        let flags = unsafe { (self.calls.0.fcntl)(self.fd, libc::F_GETFL, 0) };
        if flags < 0 { Err(Errno::last()) } else { Ok(flags & libc::O_NONBLOCK != 0) }
    }

    /// Returns the number that no other socket of this system has (`SO_COOKIE`).
    pub(crate) fn cookie(&self) -> Result<u64, Errno> {
        self.calls.cookie(self.fd)
    }

    /// Returns the state of the connection. Leaves errors that the program can fetch in place.
    pub(crate) fn tcp(&self) -> Tcp {
        if is_confined() {
            return Tcp::Connected;
        }
        match self.calls.tcp_state(self.fd) {
            Some(TCP_SYN_SENT | TCP_SYN_RECV) => Tcp::Connecting,
            Some(TCP_CLOSE) => Tcp::Closed,
            // The next call reports what is wrong with the descriptor.
            _ => Tcp::Connected,
        }
    }

    /// Returns whether the peer's FIN has come, or the connection is gone, as TCP knows it: `poll`
    /// tells the same of a receiving direction that this end has closed. A confined process cannot
    /// ask.
    pub(crate) fn has_peers_fin(&self) -> bool {
        !is_confined() && self.calls.tcp_state(self.fd).is_some_and(has_peers_fin)
    }

    /// Ends a direction, or both.
    pub(crate) fn shut(&self, direction: Direction) -> Result<(), Errno> {
        let how = match direction {
            Direction::Receive => libc::SHUT_RD,
            Direction::Send => libc::SHUT_WR,
            Direction::Both => libc::SHUT_RDWR,
        };
        // SAFETY: takes two integers.
        let done = unsafe { (self.calls.0.shutdown)(self.fd, how) };
        if done < 0 { Err(Errno::last()) } else { Ok(()) }
    }

    /// Resets the connection and leaves the descriptor open. A confined process cannot, and ends
    /// both directions.
    pub(crate) fn reset(&self) {
        if is_confined() {
            let _ = self.shut(Direction::Both);
        } else {
            self.calls.disconnect(self.fd);
        }
    }

    pub(super) fn set(&self, level: c_int, name: c_int, value: c_int) -> Result<(), Errno> {
        if is_confined() {
            return Ok(());
        }
        let at = (&raw const value).cast::<c_void>();
        let len = size_of::<c_int>() as libc::socklen_t;
        // SAFETY: the option is an int, which lives until the call returns.
        let done = unsafe { (self.calls.0.setsockopt)(self.fd, level, name, at, len) };
        if done < 0 { Err(Errno::last()) } else { Ok(()) }
    }

    /// Returns `SO_LINGER`.
    pub(crate) fn linger(&self) -> Result<Linger, Errno> {
        if is_confined() {
            return Err(Errno::WOULD_BLOCK);
        }
        let mut linger = libc::linger { l_onoff: 0, l_linger: 0 };
        let mut len = size_of::<libc::linger>() as libc::socklen_t;
        let at = (&raw mut linger).cast::<c_void>();
        // SAFETY: the kernel writes at most `len` octets to `linger`, which is as long.
        let done = unsafe {
            (self.calls.0.getsockopt)(self.fd, libc::SOL_SOCKET, libc::SO_LINGER, at, &raw mut len)
        };
        if done < 0 {
            Err(Errno::last())
        } else {
            Ok(Linger { on: linger.l_onoff, seconds: linger.l_linger })
        }
    }

    /// Sets `SO_LINGER`.
    pub(crate) fn set_linger(&self, linger: Linger) -> Result<(), Errno> {
        let linger = libc::linger { l_onoff: linger.on, l_linger: linger.seconds };
        let at = (&raw const linger).cast::<c_void>();
        let len = size_of::<libc::linger>() as libc::socklen_t;
        // SAFETY: the option is this structure, which lives until the call returns.
        let done = unsafe { (self.calls.0.setsockopt)(self.fd, libc::SOL_SOCKET, libc::SO_LINGER, at, len) };
        if done < 0 { Err(Errno::last()) } else { Ok(()) }
    }

    /// Returns whether urgent octets are read in line (`SO_OOBINLINE`).
    pub(crate) fn reads_urgent_in_line(&self) -> bool {
        self.option(libc::SOL_SOCKET, libc::SO_OOBINLINE).is_some_and(|on| on != 0)
    }

    /// Returns an option that is an int; none for a confined process, which cannot ask.
    pub(super) fn option(&self, level: c_int, name: c_int) -> Option<c_int> {
        if is_confined() {
            return None;
        }
        let mut value: c_int = 0;
        let mut len = size_of::<c_int>() as libc::socklen_t;
        let at = (&raw mut value).cast::<c_void>();
        // SAFETY: the option is an int, for which there is room.
        let done = unsafe { (self.calls.0.getsockopt)(self.fd, level, name, at, &raw mut len) };
        (done == 0).then_some(value)
    }
}

/// A span in which a call sleeps. It also ends when the thread is cancelled there.
struct Sleep<'a> {
    caller: &'a dyn Caller,
}

impl<'a> Sleep<'a> {
    fn of(caller: &'a dyn Caller) -> Self {
        caller.sleeps();
        Self { caller }
    }

    /// Returns whether the number still is the socket's.
    fn ends(self) -> bool {
        let caller = self.caller;
        std::mem::forget(self);
        caller.wakes()
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.caller.wakes();
    }
}

/// Confines this process: from now on it makes no system calls on its sockets but `read`, `write`,
/// `writev` and `poll` (and `shutdown`). It is about to give up the others, as the children of
/// `sshd` do that talk to strangers. This cannot be undone.
///
/// Octets that have come and are not read are then held in memory, where the kernel does not know
/// of them: before it sleeps, such a process asks
/// [`Base::holds_octets`](crate::Base::holds_octets).
pub fn confine() {
    // The system calls for signals are among those that the process gives up.
    super::lent::guard();
    CONFINED.store(true, Ordering::Relaxed);
}

/// Returns whether [`confine`] was called.
pub fn is_confined() -> bool {
    CONFINED.load(Ordering::Relaxed)
}

static CONFINED: AtomicBool = AtomicBool::new(false);

/// Reads a file at `offset`.
pub(crate) fn read_at(calls: &Calls, fd: RawFd, out: &mut [u8], offset: i64) -> Result<usize, Errno> {
    // SAFETY: `out` is borrowed for writing until the call returns.
    octets(unsafe { (calls.0.file.pread)(fd, out.as_mut_ptr().cast(), out.len(), offset) })
}

/// Moves a file's position, and returns the new one.
pub(crate) fn seek(calls: &Calls, fd: RawFd, offset: i64, whence: c_int) -> Result<i64, Errno> {
    // SAFETY: takes three integers.
    let at = unsafe { (calls.0.file.lseek)(fd, offset, whence) };
    if at < 0 { Err(Errno::last()) } else { Ok(at) }
}

/// Returns the nanoseconds of the monotonic clock, which all processes of this system share and
/// which is never set.
pub(crate) fn now() -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `CLOCK_MONOTONIC` always exists, so the call fills `time`.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr());
        time.assume_init()
    };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Raises `SIGPIPE`, as TCP does for a thread that sends into a closed direction.
pub fn raise_sigpipe() {
    // SAFETY: sends a signal to the calling thread.
    unsafe { libc::raise(libc::SIGPIPE) };
}

/// Returns whether every handler of this process asks for interrupted calls to be restarted, but
/// for those of signals that a thread's own faults raise. `poll` does not say which handler ran,
/// and is never restarted by the kernel.
pub fn handlers_restart() -> bool {
    !is_confined()
        && (1..=libc::SIGRTMAX()).all(|signal| {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: reads only; on success the structure is filled, else it stays zero, which is
            // a valid value.
            let action = unsafe {
                libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
                action.assume_init()
            };
            let handled = action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN;
            !handled || OWN_FAULTS.contains(&signal) || action.sa_flags & libc::SA_RESTART != 0
        })
}

/// Signals of a thread's own faults, which interrupt no call that waits.
pub(super) const OWN_FAULTS: [c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];

fn message(iov: *mut libc::iovec, count: usize) -> libc::msghdr {
    // SAFETY: all zero is a message without name, pieces and control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = iov;
    message.msg_iovlen = count as _;
    message
}

pub(super) fn timespec(span: Duration) -> libc::timespec {
    // SAFETY: all zero is a valid value (some targets have padding fields of their own).
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    time.tv_sec = libc::time_t::try_from(span.as_secs()).unwrap_or(libc::time_t::MAX);
    time.tv_nsec = span.subsec_nanos().into();
    time
}

fn octets(result: libc::ssize_t) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::last())
}

/// Returns random octets as a number that is not 0; `None` where the system has none to give.
pub(crate) fn random() -> Option<u32> {
    let mut octets = [0; 4];
    // SAFETY: the kernel writes at most `len` octets, which live until the call returns.
    let len =
        unsafe { libc::syscall(libc::SYS_getrandom, octets.as_mut_ptr(), octets.len(), libc::GRND_NONBLOCK) };
    Some(u32::from_ne_bytes(octets)).filter(|number| len == 4 && *number != 0)
}
