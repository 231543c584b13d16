//! System calls of tests, on descriptors of theirs.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_ulong};
use std::ptr;
use std::time::Duration;

use libc::{epoll_event, pollfd};
use rddp_stream::Errno;

fn done(result: isize) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::last())
}

fn milliseconds(nap: Option<Duration>) -> c_int {
    nap.map_or(-1, |nap| nap.as_millis() as c_int + 1)
}

pub(crate) fn poll(fds: &mut [pollfd], nap: Option<Duration>) -> Result<(), Errno> {
    // SAFETY: the list lives until the call returns.
    done(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as _, milliseconds(nap)) } as isize).map(drop)
}

pub(crate) fn select(count: usize, sets: [&mut [c_ulong]; 3], nap: Option<Duration>) -> Result<(), Errno> {
    assert!(sets.iter().all(|set| set.len() * 64 >= count));
    let time = nap.map(|nap| libc::timespec {
        tv_sec: nap.as_secs().cast_signed(),
        tv_nsec: nap.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    let [read, write, except] = sets.map(|set| set.as_mut_ptr().cast());
    // SAFETY: the sets have so many bits, as was checked, and live with the time until the call
    // returns.
    done(unsafe { libc::pselect(count as c_int, read, write, except, time, ptr::null()) } as isize).map(drop)
}

/// Buffer for the events of a set, which a test reads when the wait is over.
pub(crate) struct EventBuf(UnsafeCell<[epoll_event; 4]>);

impl Default for EventBuf {
    fn default() -> Self {
        Self(UnsafeCell::new([epoll_event { events: 0, u64: 0 }; 4]))
    }
}

impl EventBuf {
    pub(crate) fn fill<'a>(&self, set: c_int, nap: Option<Duration>) -> Result<&'a mut [epoll_event], Errno> {
        let at = self.0.get().cast();
        // SAFETY: there is room for four events. The caller, one thread, has done with the last
        // slice, and the buffer outlives its wait.
        unsafe {
            let count = done(libc::epoll_wait(set, at, 4, milliseconds(nap)) as isize)?;
            Ok(std::slice::from_raw_parts_mut(at, count))
        }
    }

    pub(crate) fn events(&self) -> [epoll_event; 4] {
        // SAFETY: no wait is under way any more.
        unsafe { *self.0.get() }
    }
}

/// Wakes sleepers as a stream does.
pub(crate) fn kick(fd: c_int) {
    let lowat: c_int = 0;
    let at = (&raw const lowat).cast();
    // SAFETY: the option is an int, which lives until the call returns.
    let set = unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, at, 4) };
    assert_eq!(set, 0);
}

/// Reads what is there, and drops it; returns how much it was.
pub(crate) fn read_and_drop(fd: c_int) -> usize {
    let mut octets = [0u8; 4096];
    // SAFETY: the buffer is borrowed until the call returns.
    done(unsafe { libc::recv(fd, octets.as_mut_ptr().cast(), octets.len(), libc::MSG_DONTWAIT) }).unwrap_or(0)
}

pub(crate) fn send(fd: c_int, octets: &[u8]) -> usize {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the octets are borrowed until the call returns.
    done(unsafe { libc::send(fd, octets.as_ptr().cast(), octets.len(), flags) }).unwrap_or(0)
}

/// Puts the file of `fd` under another number too, in place of what is there.
pub(crate) fn put_under(fd: c_int, number: c_int) {
    // SAFETY: both are numbers of the test's own files.
    assert_eq!(unsafe { libc::dup2(fd, number) }, number);
}

/// Runs `body` in a child of `fork`, which ends with it, or with the thread that forked.
pub(crate) fn fork(body: impl FnOnce()) -> c_int {
    // SAFETY: the caller has prepared the fork as a program's is prepared, and the child ends by
    // `_exit`.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            libc::_exit(i32::from(done.is_err()));
        }
        child
    }
}

/// Waits for a child; returns its status.
pub(crate) fn join(child: c_int) -> c_int {
    let mut status = 0;
    // SAFETY: the status lives until the call returns.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}
