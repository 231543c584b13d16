//! Allocations of a byte stream's calls. There must be none: a socket call may come from a signal
//! handler that has interrupted the allocator.
#![allow(missing_docs)]

#[allow(dead_code, reason = "shared with the other tests of streams")]
#[path = "stream/common.rs"]
mod common;
#[allow(dead_code, reason = "shared with the other tests of streams")]
#[path = "stream/either.rs"]
mod either;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::IoSlice;

use rddp_mpa::{Rtr, RtrSet};
use rddp_stream::{Copies, Errno, Format, Options, SdpOptions};

use common::{End, initiator, responder};
use either::Stream;

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator and counts, without allocating.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: passed on unchanged to the system's allocator, which has the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: passed on unchanged to the system's allocator, which made the memory in `alloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the result of `call`, and how many allocations this thread has made in it.
fn counted<T>(call: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATIONS.get();
    let result = call();
    (result, ALLOCATIONS.get() - before)
}

/// Receives as many octets as `room` has, with a call for each `step` of them.
fn recv_by(end: &End, room: &mut [u8], step: usize) {
    for piece in room.chunks_mut(step) {
        assert_eq!(end.recv(piece, libc::MSG_WAITALL), Ok(piece.len()));
    }
}

/// Returns two ends whose startup has not begun.
fn fresh_pair(options: fn(Options) -> Options) -> (End, End) {
    common::fresh_pair(&options(initiator()), &options(responder()))
}

/// Returns two ends that have exchanged an octet each way.
fn pair(options: fn(Options) -> Options) -> (End, End) {
    let (a, b) = common::pair(&options(initiator()), &options(responder()));
    for (from, to) in [(&a, &b), (&b, &a)] {
        from.send_all(b"!");
        assert_eq!(to.recv(&mut [0], 0), Ok(1));
    }
    (a, b)
}

fn with_crc(options: Options) -> Options {
    options
}

fn without_crc(options: Options) -> Options {
    Options { crc: false, ..options }
}

fn with_markers(options: Options) -> Options {
    Options { markers: true, ..options }
}

fn with_a_read_as_rtr(options: Options) -> Options {
    Options { rtr: RtrSet::only(Rtr::Read), ..options }
}

fn by_sdp(options: Options) -> Options {
    Options { format: Format::Sdp(SdpOptions::DEFAULT), ..options }
}

fn by_private_copies(options: Options) -> Options {
    let sdp = SdpOptions { copies: Copies::Private, ..SdpOptions::DEFAULT };
    Options { format: Format::Sdp(sdp), ..options }
}

const SIZES: [usize; 3] = [64, 4000, 64 * 1024];

/// Returns the allocations of one send of `count` octets in `pieces` pieces, and of its receipt by
/// calls for `step` octets.
fn exchange((from, to): &(End, End), count: usize, pieces: usize, step: usize) -> [usize; 2] {
    let (octets, mut room) = (vec![7; count], vec![0; count]);
    let list: Vec<_> = octets.chunks(count.div_ceil(pieces)).map(IoSlice::new).collect();
    let (sent, sending) = counted(|| from.stream().send(&list, libc::MSG_NOSIGNAL));
    assert_eq!(sent, Ok(count));
    let ((), receiving) = counted(|| recv_by(to, &mut room, step));
    assert_eq!(room, octets);
    [sending, receiving]
}

#[test]
fn unmarked_whole_fpdus_are_sent_and_received_without_the_heap() {
    for options in [with_crc, without_crc] {
        let ends = pair(options);
        for count in SIZES {
            for step in [count, count.div_ceil(3), 1000] {
                assert_eq!(exchange(&ends, count, 1, step), [0, 0], "{count} octets, read by {step}");
            }
        }
    }
}

#[test]
fn a_few_pieces_are_sent_without_the_heap() {
    let ends = pair(with_crc);
    for count in SIZES {
        assert_eq!(exchange(&ends, count, 32, count), [0, 0], "{count} octets");
    }
}

#[test]
fn more_than_32_pieces_are_sent_without_the_heap() {
    assert_eq!(exchange(&pair(with_crc), 4000, 40, 4000), [0, 0]);
}

#[test]
fn marked_fpdus_are_received_without_the_heap() {
    for count in SIZES {
        assert_eq!(exchange(&pair(with_markers), count, 1, 1000)[1], 0, "{count} octets");
    }
}

#[test]
fn marked_fpdus_are_sent_without_the_heap() {
    for count in SIZES {
        assert_eq!(exchange(&pair(with_markers), count, 1, count)[0], 0, "{count} octets");
    }
}

/// Returns the allocations of sends until TCP cuts an FPDU, and of the receipt of all that was
/// sent.
fn overfill((a, b): &(End, End)) -> [usize; 2] {
    [a, b].iter().for_each(|end| end.tcp.set_nonblocking(true).unwrap());
    let (octets, mut sent) = (vec![7; 300_000], 0);
    let ((), sending) = counted(|| {
        while !a.stream().owes() {
            sent += a.send(&octets).expect("TCP cuts the last FPDU that it takes");
        }
    });
    let (mut room, mut received) = (vec![0; 50_000], 0);
    let ((), receiving) = counted(|| {
        while received < sent {
            match b.recv(&mut room, 0) {
                Ok(count) => received += count,
                Err(error) => assert_eq!(error, Errno::WOULD_BLOCK),
            }
            a.stream().step();
        }
    });
    [sending, receiving]
}

#[test]
fn octets_that_tcp_cuts_are_owed_and_received_without_the_heap() {
    assert_eq!(overfill(&pair(with_crc)), [0, 0]);
    assert_eq!(overfill(&pair(with_markers))[1], 0);
}

/// The startup frames of SDP have private data.
#[test]
fn a_startup_goes_without_the_heap() {
    for options in [with_crc, by_sdp] {
        let (a, b) = fresh_pair(options);
        let (greeted, request) = counted(|| a.stream().greet());
        assert_eq!(greeted, Ok(false));
        let (greeted, reply) = counted(|| b.stream().greet());
        assert_eq!(greeted, Ok(true));
        let (started, end) = counted(|| a.stream().start(None));
        assert_eq!(started, Ok(()));
        assert_eq!([request, reply, end], [0, 0, 0]);
    }
}

#[test]
fn messages_of_sdp_are_sent_and_received_without_the_heap() {
    for options in [by_sdp, by_private_copies] {
        let ends = pair(options);
        for count in SIZES {
            for step in [count, count.div_ceil(3), 1000] {
                assert_eq!(exchange(&ends, count, 1, step), [0, 0], "{count} octets, read by {step}");
            }
        }
    }
}

/// Credits and their updates, and octets that are moved out of the way of them: more than half of
/// the buffers are used before anybody reads.
#[test]
fn credits_go_without_the_heap() {
    const MESSAGES: usize = 200;
    let (a, b) = pair(by_sdp);
    let mut spent = 0;
    for _ in 0..3 {
        for _ in 0..MESSAGES {
            let ((), sending) = counted(|| a.send_all(b"some octets"));
            spent += sending;
        }
        for end in [&b, &a] {
            let ((), sending) = counted(|| end.send_all(b"!"));
            spent += sending;
        }
        let mut room = [0; MESSAGES * 11 + 1];
        let ((), receiving) = counted(|| recv_by(&b, &mut room, MESSAGES * 11 + 1));
        let ((), answered) = counted(|| recv_by(&a, &mut [0], 1));
        spent += receiving + answered;
    }
    assert_eq!(spent, 0);
}

/// RFC 6581 §9: the initiator's first FPDU is a Read of no octets, which the responder answers.
#[test]
fn a_read_as_rtr_is_answered_without_the_heap() {
    let (a, b) = fresh_pair(with_a_read_as_rtr);
    a.stream().greet().unwrap();
    b.stream().greet().unwrap();
    a.stream().start(None).unwrap();
    let (sent, sending) = counted(|| a.send(b"!"));
    assert_eq!(sent, Ok(1));
    let (received, answering) = counted(|| b.recv(&mut [0], 0));
    assert_eq!(received, Ok(1));
    b.send(b"!").unwrap();
    let (received, receiving) = counted(|| a.recv(&mut [0], 0));
    assert_eq!(received, Ok(1));
    assert_eq!([sending, answering, receiving], [0, 0, 0]);
}
