//! Signals in the middle of a wait that does not sleep, and in the middle of a read.

use std::cell::Cell;
use std::ffi::{c_int, c_short};
use std::os::fd::AsRawFd;

use libc::{POLLIN, POLLOUT, msghdr, nfds_t, pollfd, sigset_t, ssize_t, timespec};
use rddp_stream::{Calls, Errno, Stream, Table};
use rddp_test_support::random_octets;

use crate::common::{End, by_ready_initiator};

thread_local! {
    /// Number of waits without a time limit that a signal interrupts.
    static SIGNALS: Cell<u32> = const { Cell::new(0) };
    /// End on which a handler that interrupts the next read waits, and for which events.
    static WAITING: Cell<Option<(*const End, c_short)>> = const { Cell::new(None) };
    /// Events that the handler got.
    static TOLD: Cell<Option<c_short>> = const { Cell::new(None) };
}

unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if let Some((end, want)) = WAITING.take() {
        // SAFETY: the end of the test, which lives until the test is over.
        let end = unsafe { &*end };
        TOLD.set(Some(stream(end).revents(POLLIN, want)));
    }
    // SAFETY: the arguments are passed on unchanged to the C library's function of the same
    // contract.
    unsafe { libc::recvmsg(fd, message, flags) }
}

/// `ppoll` as on Linux: where nothing is ready a signal comes before the end of the time, even of a
/// time of 0.
unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the arguments are passed on unchanged to the C library's function of the same
    // contract.
    let ready = unsafe { libc::ppoll(fds, count, timeout, mask) };
    let left = SIGNALS.get();
    if ready != 0 || left == 0 {
        return ready;
    }
    SIGNALS.set(left - 1);
    Errno::INTERRUPTED.set_last();
    -1
}

// SAFETY: the C library's functions, two of them wrapped, which keep their contracts.
static CALLS: Calls = unsafe { Calls::from_table(Table { recvmsg, ppoll, ..Table::libc() }) };

fn stream(end: &End) -> Stream<'_> {
    Stream::new(end.tcp.as_raw_fd(), &end.state, &CALLS).unwrap()
}

#[test]
fn a_signal_means_nothing_to_a_call_that_does_not_wait() {
    let (mut peer, end) = by_ready_initiator();
    let data = random_octets(1, 600);
    let fpdu = peer.frame_message(&data);
    peer.octets(&fpdu[..300]);
    assert_eq!(end.poll(POLLIN, std::time::Duration::from_millis(1)).0, 0, "half an FPDU");
    SIGNALS.set(3);
    assert_eq!(stream(&end).revents(POLLIN, POLLIN), 0);
    assert_eq!(SIGNALS.replace(3), 0, "it was interrupted");
    let mut out = [0; 1000];
    let read = |out: &mut [u8], flags| stream(&end).recv(&mut [std::io::IoSliceMut::new(out)], flags);
    assert_eq!(read(&mut out, libc::MSG_DONTWAIT), Err(Errno::WOULD_BLOCK));
    assert_eq!(SIGNALS.replace(0), 0, "it was interrupted");
    peer.octets(&fpdu[300..]);
    assert_eq!(read(&mut out, libc::MSG_WAITALL | libc::MSG_DONTWAIT), Ok(600));
    assert_eq!(out[..600], data);
}

#[test]
fn a_handler_that_waits_within_a_read_is_told_of_no_error() {
    for (want, told) in [(POLLIN, POLLIN), (POLLIN | POLLOUT, POLLIN), (POLLOUT, POLLOUT)] {
        let (mut peer, end) = by_ready_initiator();
        peer.send_message(b"hello");
        assert_eq!(end.poll(POLLIN, std::time::Duration::from_secs(20)).0, POLLIN);
        WAITING.set(Some((&raw const end, want)));
        let mut out = [0; 5];
        assert_eq!(stream(&end).recv(&mut [std::io::IoSliceMut::new(&mut out)], 0), Ok(5));
        assert_eq!(TOLD.take(), Some(told));
    }
}
