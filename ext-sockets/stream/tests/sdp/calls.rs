//! Calls have the results that TCP gives, while credits come and go.

use std::ffi::{c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rddp_mpa::Revision;
use rddp_stream::{Calls, Copies, Errno, Format, Options, PrivateData, SdpOptions, SharedState, Table};
use rddp_test_support::{pattern, random_octets};

use crate::common::{End, fresh_pair, initiator, responder};
use crate::exchange::waits_for_as_many_as_the_low_water_mark;
use crate::{pair, sdp, start, with};

/// The fewest buffers.
const FEW: SdpOptions = SdpOptions { bufs: 1, size: 2000, ..SdpOptions::DEFAULT };
/// Messages of octets that fit them: two credits are kept.
const CREDITS: usize = 256 - 2;

fn few() -> (End, End) {
    pair(&with(initiator(), FEW), &with(responder(), FEW))
}

/// Sends messages of one octet until there are no credits; returns how many.
fn use_up_credits(end: &End) -> usize {
    let mut count = 0;
    while let Ok(1) = end.stream().send(&[IoSlice::new(&[count as u8])], libc::MSG_DONTWAIT) {
        count += 1;
    }
    count
}

#[test]
fn private_data_of_the_program_is_refused() {
    let private_data = PrivateData::new(b"mine", Revision::Two).unwrap();
    let options = Options { private_data, ..sdp(initiator()) };
    assert_eq!(SharedState::anonymous(&options).map(drop), Err(Errno::INVALID));
    let plain = Options { format: Format::Octets, ..options };
    assert!(SharedState::anonymous(&plain).is_ok());
}

#[test]
fn a_sender_without_credits_waits_and_goes_on_with_those_that_come() {
    let (a, b) = few();
    let sent = use_up_credits(&a);
    // The first message of the initiator may be one without octets.
    assert!((CREDITS - 1..=CREDITS).contains(&sent), "{sent}");
    assert_eq!(a.stream().send(&[IoSlice::new(b"x")], libc::MSG_DONTWAIT), Err(Errno::WOULD_BLOCK));
    assert_eq!(a.poll(libc::POLLOUT, Duration::ZERO).0, 0, "no credits, no room");
    assert_eq!(a.stream().interest(libc::POLLOUT), libc::POLLIN, "TCP has room");
    thread::scope(|scope| {
        let sending = scope.spawn(|| a.send(b"the last one"));
        let octets = b.read(1000).unwrap();
        assert!(octets.iter().enumerate().all(|(at, octet)| *octet == at as u8));
        let mut rest = vec![0; sent + 12 - octets.len()];
        assert_eq!(b.recv(&mut rest, libc::MSG_WAITALL), Ok(rest.len()));
        assert_eq!((sending.join().unwrap(), &rest[rest.len() - 12..]), (Ok(12), &b"the last one"[..]));
    });
    assert_eq!(a.poll(libc::POLLOUT, Duration::from_secs(20)).0, libc::POLLOUT);
}

#[test]
fn an_end_that_was_shut_for_receiving_before_the_startup_gets_credits() {
    for nth in [0, 1] {
        let (a, b) = fresh_pair(&with(initiator(), FEW), &with(responder(), FEW));
        let (shut, other) = if nth == 0 { (&a, &b) } else { (&b, &a) };
        shut.stream().shutdown(libc::SHUT_RD).unwrap();
        start(&a, &b);
        assert_eq!(shut.poll(libc::POLLIN, Duration::ZERO).0, libc::POLLIN, "TCP is not told");
        thread::scope(|scope| {
            scope.spawn(|| (0..3 * CREDITS).for_each(|_| shut.send_all(b"x")));
            let mut all = vec![0; 3 * CREDITS];
            assert_eq!(other.recv(&mut all, libc::MSG_WAITALL), Ok(all.len()));
        });
    }
}

#[test]
fn credits_behind_octets_that_nobody_reads_are_reached() {
    for markers in [false, true] {
        for kept in [1, 100, 1900] {
            let options = |options| with(Options { markers, ..options }, FEW);
            let (a, b) = pair(&options(initiator()), &options(responder()));
            let unread = pattern(200 * kept, 7);
            for octets in unread.chunks(kept) {
                a.send_all(octets);
            }
            let sent = use_up_credits(&b);
            assert_eq!(sent, CREDITS);
            // A part is read, so that the rest of a message lies in front.
            assert_eq!(b.read(kept / 3).unwrap(), unread[..kept / 3]);
            // The socket is readable all the time, which is no reason to wake.
            let (told, swallowed) = b.poll(libc::POLLOUT, Duration::from_millis(50));
            assert!(told == 0 && swallowed <= 2, "{told} {swallowed}");
            let mut octets = vec![0; sent];
            assert_eq!(a.recv(&mut octets, libc::MSG_WAITALL), Ok(sent));
            let (told, swallowed) = b.poll(libc::POLLOUT, Duration::from_secs(20));
            assert!(told == libc::POLLOUT && swallowed <= 2, "{told} {swallowed}");
            b.send_all(b"there are credits");
            assert!(b.readable(), "octets are still there");
            let mut look = vec![0; 3 * kept];
            assert_eq!(b.recv(&mut look, libc::MSG_PEEK), Ok(3 * kept));
            assert_eq!(look, unread[kept / 3..][..3 * kept]);
            let mut rest = vec![0; unread.len() - kept / 3];
            assert_eq!(b.recv(&mut rest, libc::MSG_WAITALL), Ok(rest.len()));
            assert!(rest == unread[kept / 3..]);
            assert!(!b.readable(), "nothing is left");
            assert_eq!(a.read(100), Ok(b"there are credits".to_vec()));
            // The credits of the octets that were moved have come back, too.
            for octets in unread.chunks(kept) {
                let sent = a.stream().send(&[IoSlice::new(octets)], libc::MSG_DONTWAIT);
                assert_eq!(sent, Ok(kept));
            }
            assert_eq!(b.recv(&mut rest, libc::MSG_WAITALL), Ok(rest.len()));
            assert_eq!((a.state.ended(), b.state.ended()), (None, None));
        }
    }
}

#[test]
fn two_ends_that_both_send_first_go_on_when_they_read() {
    let (a, b) = few();
    let octets = random_octets(9, 400_000);
    let talk = |end: &End| {
        end.send_all(&octets[..200_000]);
        let mut got = vec![0; 200_000];
        assert_eq!(end.recv(&mut got, libc::MSG_WAITALL), Ok(200_000));
        assert!(got == octets[..200_000]);
    };
    thread::scope(|scope| {
        scope.spawn(|| talk(&a));
        scope.spawn(|| talk(&b));
    });
}

#[test]
fn flags_of_receives_mean_what_they_mean_to_tcp() {
    let (a, b) = pair(&sdp(initiator()), &sdp(responder()));
    assert_eq!(b.recv(&mut [0; 9], libc::MSG_DONTWAIT), Err(Errno::WOULD_BLOCK));
    a.send_all(b"one");
    a.send_all(b"two");
    let mut look = [0; 6];
    assert_eq!((b.recv(&mut look, libc::MSG_PEEK | libc::MSG_WAITALL), &look), (Ok(6), b"onetwo"));
    assert_eq!((b.stream().available(), b.recv(&mut [0; 1], libc::MSG_TRUNC)), (Ok(6), Ok(1)));
    assert_eq!(b.stream().available(), Ok(5));
    let (mut first, mut second) = ([0; 2], [0; 9]);
    let mut pieces = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    assert_eq!((b.stream().recv(&mut pieces, 0), &first, &second[..3]), (Ok(5), b"ne", &b"two"[..]));
    b.state.set_low_water(5);
    thread::scope(|scope| {
        let reading = scope.spawn(|| b.read(100));
        for octets in [&b"12"[..], b"3", b"45"] {
            a.send_all(octets);
        }
        assert_eq!(reading.join().unwrap(), Ok(b"12345".to_vec()));
    });
    b.state.set_low_water(1);
    let sent = a.stream().send(&[IoSlice::new(b"of "), IoSlice::new(b""), IoSlice::new(b"pieces")], 0);
    assert_eq!((sent, b.read(100)), (Ok(9), Ok(b"of pieces".to_vec())));
}

#[test]
fn a_wait_is_for_as_many_octets_as_the_low_water_mark_says() {
    waits_for_as_many_as_the_low_water_mark(pair(&sdp(initiator()), &sdp(responder())));
}

#[test]
fn a_credit_update_gives_the_program_no_event() {
    let (a, b) = few();
    for _ in 0..1000 {
        a.send_all(b"x");
        assert_eq!(b.read(1), Ok(b"x".to_vec()));
    }
    assert_eq!(a.poll(libc::POLLIN, Duration::ZERO).0, 0);
    b.send_all(b"y");
    assert_eq!(a.poll(libc::POLLIN, Duration::from_secs(20)).0, libc::POLLIN);
    assert_eq!(a.read(10), Ok(b"y".to_vec()));
}

#[test]
fn counters_tell_what_was_sent_received_absorbed_and_copied() {
    let (a, b) = few();
    for _ in 0..10 {
        a.send_all(&[7; 100]);
    }
    let sent = use_up_credits(&b);
    // Looks behind the unread octets for credits.
    assert_eq!(b.poll(libc::POLLOUT, Duration::ZERO).0, 0);
    let mut octets = vec![0; 1000];
    assert_eq!(b.recv(&mut octets, libc::MSG_WAITALL), Ok(1000));
    let counters = |end: &End| end.stream().sdp_info().unwrap().counters;
    assert_eq!(counters(&a)[..3], [10, 1000, 0]);
    assert_eq!(counters(&b)[..4], [sent as u64, sent as u64, 1000, 1000]);
    assert!((1000..=2000).contains(&counters(&b)[4]), "{:?}", counters(&b));
    assert_eq!(counters(&b)[5..], [0; 3]);
    thread::scope(|scope| {
        let sending = scope.spawn(|| b.send(b"waits"));
        while counters(&b)[5] == 0 {
            thread::yield_now();
        }
        let mut octets = vec![0; sent];
        assert_eq!(a.recv(&mut octets, libc::MSG_WAITALL), Ok(sent));
        assert_eq!(sending.join().unwrap(), Ok(5));
    });
}

#[test]
fn private_copies_are_counted_at_both_ends() {
    let private = SdpOptions { copies: Copies::Private, ..SdpOptions::DEFAULT };
    let (a, b) = pair(&with(initiator(), private), &with(responder(), private));
    a.send_all(&[7; 5000]);
    assert_eq!(b.recv(&mut [0; 5000], libc::MSG_WAITALL), Ok(5000));
    let counters = |end: &End| end.stream().sdp_info().unwrap().counters;
    assert_eq!((counters(&a)[4], counters(&b)[2], counters(&b)[3]), (5000, 5000, 5000));
    assert!(counters(&b)[4] >= 5000);
}

static SENDS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn counted(fd: c_int, octets: *const c_void, len: usize, flags: c_int) -> libc::ssize_t {
    SENDS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller's octets, as `send` takes them.
    unsafe { libc::send(fd, octets, len, flags) }
}

// With two credits left at both ends, each update takes one that its answer gives back.
#[test]
fn two_full_ends_do_not_answer_each_other_for_ever() {
    // SAFETY: the functions of libc, one of which counts its calls.
    let calls = unsafe { Calls::from_table(Table { send: counted, ..Table::libc() }) };
    let (a, b) = few();
    let data = vec![1; 4 << 20];
    thread::scope(|scope| {
        for end in [&a, &b] {
            end.state.set_send_timeout(Some(Duration::from_millis(300)));
            scope.spawn(|| assert!(end.send(&data).unwrap() < data.len()));
        }
    });
    b.state.set_send_timeout(Some(Duration::from_secs(1)));
    let (told, swallowed) = thread::scope(|scope| {
        scope.spawn(|| {
            let sender = crate::Stream::new(b.tcp.as_raw_fd(), &b.state, &calls).unwrap();
            assert_eq!(sender.send(&[IoSlice::new(b"x")], 0), Err(Errno::WOULD_BLOCK));
        });
        // Its `DisConn` is answered by the first update.
        a.stream().shutdown(libc::SHUT_WR).unwrap();
        a.poll(libc::POLLRDHUP, Duration::from_secs(1))
    });
    let sends = SENDS.load(Ordering::Relaxed);
    // An update that is due is not left out.
    assert!(told == 0 && (1..30).contains(&sends) && swallowed < 200, "{sends} sends, {swallowed} wake-ups");
    assert_eq!((a.state.ended(), b.state.ended()), (None, None));
}
