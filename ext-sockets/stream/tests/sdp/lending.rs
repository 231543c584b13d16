//! Sends whose octets the peer reads from the program's memory, and those that it does not read.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rddp_mpa::{Rtr, RtrSet};
use rddp_stream::{Options, SdpOptions};
use rddp_test_support::{Random, random_octets};

use crate::common::{End, initiator, responder};
use crate::{pair, with};

/// Returns these options for SDP with memory lent by each send.
fn lending(options: Options) -> Options {
    with(options, SdpOptions { threshold: 0, ..SdpOptions::DEFAULT })
}

#[test]
fn octets_cross_from_the_memory_of_the_sender() {
    let (a, b) = pair(&lending(initiator()), &lending(responder()));
    for (seed, size) in [2, 10, 100, 5000, 70_000, 1 << 20, 3_000_000].into_iter().enumerate() {
        let octets = random_octets(seed as u64, size);
        thread::scope(|scope| {
            scope.spawn(|| a.send_all(&octets));
            let mut got = vec![0; size];
            assert_eq!(b.recv(&mut got, libc::MSG_WAITALL), Ok(size));
            assert!(got == octets, "of {size} octets");
        });
    }
    assert_eq!((a.state.ended(), b.state.ended()), (None, None));
}

// The Read with which the initiator begins has a number, too.
#[test]
fn octets_are_read_behind_a_read_as_rtr() {
    let read = |options| Options { rtr: RtrSet::only(Rtr::Read), ..lending(options) };
    let (a, b) = pair(&read(initiator()), &read(responder()));
    let octets = random_octets(1, 1 << 20);
    thread::scope(|scope| {
        scope.spawn(|| b.send_all(&octets));
        let mut got = vec![0; octets.len()];
        assert_eq!(a.recv(&mut got, libc::MSG_WAITALL), Ok(octets.len()));
        assert!(got == octets);
    });
    assert_eq!((a.state.ended(), b.state.ended()), (None, None));
}

pub(crate) fn receive_in_pieces(end: &End, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut all = Vec::new();
    loop {
        let limit = [30, 5000, 100_000, 2 << 20][random.below(4)];
        let mut room = vec![0; 1 + random.below(limit)];
        let flags = [0, 0, libc::MSG_WAITALL, libc::MSG_PEEK, libc::MSG_DONTWAIT][random.below(5)];
        match end.recv(&mut room, flags) {
            Ok(0) => return all,
            Ok(_) if flags == libc::MSG_PEEK => {}
            Ok(count) => all.extend(&room[..count]),
            Err(error) => assert_eq!(error, rddp_stream::Errno::WOULD_BLOCK),
        }
    }
}

/// Sends in calls of random sizes, overwriting each buffer when its call has returned.
pub(crate) fn send_in_pieces(end: &End, data: &[u8], seed: u64) {
    let mut random = Random::new(seed);
    let mut rest = data;
    while !rest.is_empty() {
        let limit = [20, 5000, 300_000, 4 << 20][random.below(4)];
        let (now, later) = rest.split_at((1 + random.below(limit)).min(rest.len()));
        let mut lent = now.to_vec();
        let flags = if random.below(4) == 0 { libc::MSG_DONTWAIT } else { 0 };
        let count = match end.stream().send(&[IoSlice::new(&lent)], flags) {
            Ok(count) => count,
            Err(error) => {
                assert_eq!((error, flags), (rddp_stream::Errno::WOULD_BLOCK, libc::MSG_DONTWAIT));
                0
            }
        };
        lent.fill(0xee);
        rest = &rest[count..];
        assert!(count == now.len() || flags != 0 || rest.len() > later.len());
    }
    end.stream().shutdown(libc::SHUT_WR).unwrap();
}

#[test]
fn octets_cross_both_ways_at_once() {
    for seed in 0..4 {
        let (a, b) = pair(&lending(initiator()), &lending(responder()));
        let (to_b, to_a) = (random_octets(2 * seed, 6 << 20), random_octets(2 * seed + 1, 6 << 20));
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            // An end whose calls have all returned may have the last octets in its own memory.
            scope.spawn(|| help(&a, &over));
            scope.spawn(|| help(&b, &over));
            scope.spawn(|| send_in_pieces(&a, &to_b, seed + 10));
            scope.spawn(|| send_in_pieces(&b, &to_a, seed + 20));
            let at_b = scope.spawn(|| receive_in_pieces(&b, seed + 30));
            let at_a = scope.spawn(|| receive_in_pieces(&a, seed + 40));
            let (at_b, at_a) = (at_b.join(), at_a.join());
            over.store(true, Ordering::Relaxed);
            assert!(at_b.unwrap() == to_b && at_a.unwrap() == to_a);
        });
        assert_eq!((a.state.ended(), b.state.ended()), (None, None));
    }
}

/// Does what the helper thread does for an end whose program makes no call but to wait.
pub(crate) fn help(end: &End, until: &AtomicBool) {
    while !until.load(Ordering::Relaxed) {
        end.stream().meet_obligation();
        end.poll(libc::POLLOUT, Duration::ZERO);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn both_ends_send_and_nobody_receives() {
    for size in [2, 1000, 128 << 10, 1 << 20, 2 << 20] {
        let (a, b) = pair(&lending(initiator()), &lending(responder()));
        let (to_b, to_a) = (random_octets(1, size), random_octets(2, size));
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| help(&a, &over));
            scope.spawn(|| help(&b, &over));
            let from_b = scope.spawn(|| b.send(&to_a));
            assert_eq!((a.send(&to_b), from_b.join().unwrap()), (Ok(size), Ok(size)), "{size} octets");
            let mut got = vec![0; size];
            assert!(a.recv(&mut got, libc::MSG_WAITALL) == Ok(size) && got == to_a);
            assert!(b.recv(&mut got, libc::MSG_WAITALL) == Ok(size) && got == to_b);
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!((a.state.ended(), b.state.ended()), (None, None));
    }
}

#[test]
fn an_echo_goes_on_however_much_is_unread() {
    const PIECE: usize = 256 << 10;
    const ALL: usize = 12 << 20;
    // Octets that nobody has read, of both directions: less than both ends have Bufs for.
    const AHEAD: usize = 6 << 20;
    let (a, b) = pair(&lending(initiator()), &lending(responder()));
    let (sent, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let octets = random_octets(3, PIECE);
    thread::scope(|scope| {
        scope.spawn(|| help(&a, &over));
        scope.spawn(|| help(&b, &over));
        scope.spawn(|| {
            for _ in 0..ALL / PIECE {
                a.send_all(&octets);
                sent.fetch_add(PIECE, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            let mut left = ALL;
            while left > 0 {
                let part = b.read(PIECE / 2).unwrap();
                left -= part.len();
                b.send_all(&part);
            }
        });
        for received in (0..ALL).step_by(PIECE) {
            while sent.load(Ordering::Relaxed) < ALL.min(received + AHEAD) {
                thread::sleep(Duration::from_millis(1));
            }
            let mut got = vec![0; PIECE];
            assert!(a.recv(&mut got, libc::MSG_WAITALL) == Ok(PIECE) && got == octets);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!((a.state.ended(), b.state.ended()), (None, None));
}

#[test]
fn a_send_that_nobody_reads_returns_and_its_memory_is_the_programs() {
    let (a, b) = pair(&lending(initiator()), &lending(responder()));
    for size in [10, 100_000] {
        let octets = random_octets(5, size);
        let mut lent = octets.clone();
        let began = Instant::now();
        assert_eq!(a.send(&lent), Ok(size));
        assert!(began.elapsed() >= Duration::from_millis(900), "the memory is lent for a second");
        lent.fill(0xee);
        assert!(a.stream().has_obligation());
        let mut got = vec![0; size];
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| help(&a, &over));
            assert!(b.recv(&mut got, libc::MSG_WAITALL) == Ok(size) && got == octets);
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(a.stream().step(), ());
        let until = Instant::now() + Duration::from_secs(20);
        while a.stream().has_obligation() && Instant::now() < until {
            a.stream().meet_obligation();
        }
        assert!(!a.stream().has_obligation());
    }
    assert_eq!((a.state.ended(), b.state.ended()), (None, None));
}

#[test]
fn a_time_limit_ends_a_send_with_the_octets_accepted() {
    let (a, b) = pair(&lending(initiator()), &lending(responder()));
    a.state.set_send_timeout(Some(Duration::from_millis(50)));
    let octets = random_octets(5, 3 << 20);
    let mut lent = octets.clone();
    let count = a.send(&lent).unwrap();
    assert!(count > 0 && count < octets.len(), "{count}");
    lent.fill(0xee);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| help(&a, &over));
        let mut got = vec![0; count];
        assert!(b.recv(&mut got, libc::MSG_WAITALL) == Ok(count) && got == octets[..count]);
        over.store(true, Ordering::Relaxed);
    });
}

/// Runs `child` in a forked process, which then ends.
fn fork(child: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child makes socket calls of ours, and ends without returning.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            child();
            libc::_exit(0);
        }
        pid
    }
}

fn end_of(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: waits for a child of this process.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

#[test]
fn an_advert_whose_process_is_killed_is_taken_back() {
    let (a, b) = pair(&lending(initiator()), &lending(responder()));
    let octets = random_octets(8, 500_000);
    // The child lends its memory and is killed, in a socket that this process holds, too.
    let child = fork(|| {
        let _ = a.send(&octets);
    });
    let mut inline = [0];
    assert_eq!(b.recv(&mut inline, libc::MSG_PEEK), Ok(1));
    // SAFETY: a child of this process that nobody has waited for.
    unsafe { libc::kill(child, libc::SIGKILL) };
    end_of(child);
    a.state.set_threshold(u64::MAX);
    let over = AtomicBool::new(false);
    let got = thread::scope(|scope| {
        scope.spawn(|| {
            let sent = a.send(b"behind");
            over.store(true, Ordering::Relaxed);
            sent
        });
        // What the dead had not been told was sent is dropped, but for the octet that went along.
        let mut got = vec![0; 7];
        let count = b.recv(&mut got, libc::MSG_WAITALL);
        (count, got)
    });
    let ends = (a.state.ended(), b.state.ended());
    if ends == (None, None) {
        assert_eq!((got.0, &got.1[1..]), (Ok(7), &b"behind"[..]));
        assert_eq!(got.1[0], octets[0]);
    } else {
        // The peer had begun to read: what it has are octets of the dead.
        let count = got.0.unwrap_or(0);
        assert!(got.1[..count] == octets[..count], "{ends:?}");
    }
}

#[test]
fn what_a_send_has_left_behind_is_served_by_calls_for_other_things() {
    let calls: [fn(&End); 2] = [
        |end| assert_eq!(end.read(10).as_deref(), Ok(&b"r"[..])),
        |end| assert_eq!(end.poll(libc::POLLIN, Duration::from_secs(30)).0, libc::POLLIN),
    ];
    for call in calls {
        let (a, b) = pair(&lending(initiator()), &lending(responder()));
        b.state.set_receive_timeout(Some(Duration::from_secs(30)));
        a.state.set_send_timeout(Some(Duration::from_millis(10)));
        let octets = random_octets(9, 300_000);
        a.send_all(&octets);
        assert!(a.stream().has_obligation());
        thread::scope(|scope| {
            scope.spawn(|| call(&a));
            let mut got = vec![0; octets.len()];
            assert!(b.recv(&mut got, libc::MSG_WAITALL) == Ok(got.len()) && got == octets);
            b.send_all(b"r");
        });
        assert!(!a.stream().has_obligation());
    }
}
