//! Memory of the program that vanishes in the middle of a call: the kernel stops there, and octets
//! that were summed are lost.

use std::cell::Cell;
use std::ffi::c_int;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use libc::{msghdr, ssize_t};
use rddp_stream::{Calls, Errno, Gather, Options, Stream, Table, Why};
use rddp_test_support::random_octets;

use crate::common::{End, initiator, pair, responder};

const PAGE: usize = 4096;
const PAGES: usize = 16;
/// Number of pages that are there to the end.
const GOOD: usize = 8;

/// A mapping of a file.
struct Mapping {
    at: *mut u8,
    file: File,
}

impl Mapping {
    fn new() -> Self {
        // SAFETY: a new file, whose descriptor is used here alone; the mapping is a new one.
        let (at, file) = unsafe {
            let file = File::from_raw_fd(libc::memfd_create(c"pages".as_ptr(), libc::MFD_CLOEXEC));
            file.set_len((PAGES * PAGE) as u64).unwrap();
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let at =
                libc::mmap(std::ptr::null_mut(), PAGES * PAGE, rights, libc::MAP_SHARED, file.as_raw_fd(), 0);
            (at.cast::<u8>(), file)
        };
        assert_ne!(at.cast(), libc::MAP_FAILED);
        Mapping { at, file }
    }

    /// Returns the pages that stay.
    fn good(&mut self) -> &mut [u8] {
        // SAFETY: mapped until `self` is dropped.
        unsafe { std::slice::from_raw_parts_mut(self.at, GOOD * PAGE) }
    }

    /// Returns all pages, for calls that must cope with missing ones.
    fn all(&mut self) -> &mut [u8] {
        // SAFETY: mapped until `self` is dropped; only the calls under test touch pages that may be
        // gone.
        unsafe { std::slice::from_raw_parts_mut(self.at, PAGES * PAGE) }
    }

    /// Has the next system call that moves octets move `count` of them (0: `EFAULT`), after which
    /// all but `left` pages are gone.
    fn vanishes_behind(&self, count: usize, left: usize) {
        NEXT.set(Some(Vanishing { file: self.file.as_raw_fd(), left, count }));
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: a mapping of its own, which nothing borrows any more.
        unsafe { libc::munmap(self.at.cast(), PAGES * PAGE) };
    }
}

#[derive(Clone, Copy)]
struct Vanishing {
    file: RawFd,
    left: usize,
    count: usize,
}

thread_local! {
    static NEXT: Cell<Option<Vanishing>> = const { Cell::new(None) };
}

/// Makes a call with a shortened message, and then truncates the file.
///
/// # Safety
/// `call` may be made with the message.
unsafe fn moved(msg: &msghdr, call: impl FnOnce(&mut msghdr) -> ssize_t) -> ssize_t {
    let mut msg = *msg;
    let Some(vanishing) = NEXT.take() else { return call(&mut msg) };
    // SAFETY: the message has as many pieces as it says, as the call asks of it.
    let mut list = unsafe { std::slice::from_raw_parts(msg.msg_iov, msg.msg_iovlen) }.to_vec();
    let mut left = vanishing.count;
    for piece in &mut list {
        piece.iov_len = piece.iov_len.min(left);
        left -= piece.iov_len;
    }
    msg.msg_iov = list.as_mut_ptr();
    let done = if vanishing.count > 0 { call(&mut msg) } else { -1 };
    // SAFETY: takes two integers; the file is the test's.
    assert_eq!(unsafe { libc::ftruncate(vanishing.file, (vanishing.left * PAGE) as libc::off_t) }, 0);
    if vanishing.count == 0 {
        Errno::FAULT.set_last();
    }
    done
}

unsafe extern "C" fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's message, as `sendmsg` takes it.
    unsafe { moved(&*msg, |msg| libc::sendmsg(fd, msg, flags)) }
}

unsafe extern "C" fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's message, as `recvmsg` takes it.
    unsafe {
        if flags & libc::MSG_PEEK != 0 {
            return libc::recvmsg(fd, msg, flags);
        }
        moved(&*msg, |msg| libc::recvmsg(fd, msg, flags))
    }
}

/// The C library's functions, two of which may have memory vanish.
// SAFETY: all are the C library's, two of them wrapped to move what they are asked for, or less.
static CALLS: Calls = unsafe { Calls::from_table(Table { recvmsg, sendmsg, ..Table::libc() }) };

fn stream(end: &End) -> Stream<'_> {
    Stream::new(end.tcp.as_raw_fd(), &end.state, &CALLS).unwrap()
}

/// Length field and header of a Send.
const HEAD: usize = 20;

/// Returns two ends, of which the second receives large FPDUs in place: the last one was large.
fn bulky_pair() -> (End, End) {
    let (a, b) = pair(&initiator(), &responder());
    a.send_all(&random_octets(1, BULK));
    assert_eq!(b.read(BULK).map(|octets| octets.len()), Ok(BULK));
    (a, b)
}

const BULK: usize = 20_000;
const ABORTED: Errno = Errno(libc::ECONNABORTED);

fn is_gone(end: &End) {
    assert_eq!(end.state.ended().unwrap().why, Why::MemoryGone);
}

// The CRC of an FPDU is made, and TCP has begun to take it: no other octets can follow.
#[test]
fn memory_that_vanishes_between_sum_and_write_ends_the_stream() {
    let (a, b) = pair(&initiator(), &responder());
    let mut memory = Mapping::new();
    memory.vanishes_behind(20_000, 4);
    assert_eq!(stream(&a).send(&[IoSlice::new(memory.all())], 0), Err(ABORTED));
    is_gone(&a);
    assert_eq!(b.read(PAGES * PAGE), Err(Errno::RESET));
}

#[test]
fn memory_that_vanishes_before_tcp_takes_any_of_it_is_counted_up_to_there() {
    let (a, b) = pair(&initiator(), &responder());
    let mut memory = Mapping::new();
    let data = random_octets(1, GOOD * PAGE);
    memory.good().copy_from_slice(&data);
    memory.vanishes_behind(0, GOOD);
    assert_eq!(stream(&a).send(&[IoSlice::new(memory.all())], 0), Ok(data.len()));
    assert_eq!(stream(&a).send(&[IoSlice::new(&memory.all()[data.len()..])], 0), Err(Errno(libc::EFAULT)));
    a.send_all(b"behind");
    assert!(b.read(data.len()).unwrap() == data);
    assert_eq!(b.read(100).unwrap(), b"behind");
}

// Without a CRC the octets are not read before TCP takes them.
#[test]
fn without_crc_too_a_bad_page_is_found_before_tcp_takes_any() {
    for crc in [false, true] {
        let (a, b) = pair(&Options { crc, ..initiator() }, &Options { crc, ..responder() });
        let mut memory = Mapping::new();
        for good in [4, 12, 15] {
            memory.file.set_len((good * PAGE) as u64).unwrap();
            assert_eq!(stream(&a).send(&[IoSlice::new(memory.all())], 0), Ok(good * PAGE), "CRC {crc}");
            let mut got = 0;
            while got < good * PAGE {
                got += b.read(PAGES * PAGE).unwrap().len();
            }
        }
    }
}

#[test]
fn copied_octets_may_vanish_while_they_are_sent() {
    let (a, b) = pair(&Options { gather: Gather::Copy, ..initiator() }, &responder());
    let mut memory = Mapping::new();
    memory.vanishes_behind(20_000, 0);
    assert_eq!(stream(&a).send(&[IoSlice::new(&memory.all()[..30_000])], 0), Ok(30_000));
    assert_eq!(b.read(PAGES * PAGE).unwrap(), [0; 30_000]);
}

// An FPDU is received in place, and the kernel has given a part: wherever it stops, no octet is
// lost.
#[test]
fn a_receive_in_place_that_stops_in_the_middle_is_continued() {
    for taken in [1, HEAD - 1, HEAD, HEAD + 1, 10_000, 4 * PAGE, 4 * PAGE + HEAD] {
        let (a, b) = bulky_pair();
        let (mut memory, data) = (Mapping::new(), random_octets(2, BULK));
        a.send_all(&data);
        a.send_all(b"behind");
        memory.vanishes_behind(taken, 4);
        let came = stream(&b).recv(&mut [IoSliceMut::new(memory.all())], 0).unwrap();
        assert_eq!(came, 4 * PAGE, "{taken}");
        assert!(memory.all()[..came] == data[..came], "{taken}");
        assert_eq!(
            stream(&b).recv(&mut [IoSliceMut::new(&mut memory.all()[came..])], 0),
            Err(Errno(libc::EFAULT))
        );
        assert!(b.read(data.len() - came).unwrap() == data[came..], "{taken}");
        assert_eq!(b.read(100).unwrap(), b"behind");
    }
}

#[test]
fn received_octets_that_vanish_before_they_are_summed_end_the_stream() {
    for (taken, left) in [(10_000, 0), (10_000, 1), (BULK + 100, 1), (BULK + 100, 4)] {
        let (a, b) = bulky_pair();
        let mut memory = Mapping::new();
        a.send_all(&random_octets(2, BULK));
        memory.vanishes_behind(taken, left);
        let came = stream(&b).recv(&mut [IoSliceMut::new(memory.all())], 0);
        assert_eq!(came, Err(ABORTED), "{taken} {left}");
        is_gone(&b);
    }
}
