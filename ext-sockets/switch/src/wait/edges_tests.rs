//! Waits of the program on a socket with octets that are somebody else's.

use std::ffi::c_int;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_MOD, POLLIN, pollfd};
use rddp_real::{self as real, Wanted};

use super::epoll::{self, closing};
use super::{poll, select};
use crate::kinds::fake::{Acts, fake};
use crate::socket;
use crate::sys::test_calls;

/// Ends a test that would hang.
const LONG: Option<Duration> = Some(Duration::from_secs(60));
/// A wait with octets for somebody else, five arrivals and a kick: each makes one look at most, and
/// the first two tell that the wait is to be by edges, and that nothing was missed.
const MOST_LOOKS: usize = 5 + 1 + 2 + 1;

/// Runs `wait` while octets arrive that are somebody else's, and then what it waits for.
fn waits(wait: impl FnOnce(c_int)) -> usize {
    let (ours, mut peer, acts) = fake();
    let fd = ours.as_raw_fd();
    peer.set_nodelay(true).unwrap();
    peer.write_all(&[0; 10]).unwrap();
    std::thread::scope(|scope| {
        let acts: &Acts = &acts;
        scope.spawn(move || {
            while acts.looks() < 2 {
                std::thread::yield_now();
            }
            for _ in 0..5 {
                peer.write_all(&[0]).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
            acts.let_it_hold(fd);
            std::mem::forget(peer);
        });
        wait(fd);
    });
    closing(fd);
    socket::forget(fd);
    acts.looks()
}

#[test]
fn poll_sleeps_by_edges_while_octets_are_somebody_elses() {
    let looks = waits(|fd| {
        let mut fds = [pollfd { fd, events: POLLIN, revents: 0 }, pollfd { fd: -1, events: 0, revents: 0 }];
        assert_eq!(poll(&mut fds, LONG, test_calls::poll), Ok(1));
        assert_eq!((fds[0].fd, fds[0].revents), (fd, POLLIN));
    });
    assert!(looks <= MOST_LOOKS, "{looks}");
}

#[test]
fn poll_by_edges_ends_with_its_time() {
    let (ours, mut peer, acts) = fake();
    peer.write_all(&[0; 10]).unwrap();
    let mut fds = [pollfd { fd: ours.as_raw_fd(), events: POLLIN, revents: 0 }];
    assert_eq!(poll(&mut fds, Some(Duration::from_millis(30)), test_calls::poll), Ok(0));
    assert!(acts.looks() <= MOST_LOOKS);
    socket::forget(ours.as_raw_fd());
}

#[test]
fn one_poll_has_one_set_for_all_its_sockets() {
    let (other, mut others_peer, _) = fake();
    others_peer.write_all(&[0; 10]).unwrap();
    let looks = waits(|fd| {
        let entry = |fd| pollfd { fd, events: POLLIN, revents: 0 };
        let mut fds = [entry(other.as_raw_fd()), entry(fd)];
        assert_eq!(poll(&mut fds, LONG, test_calls::poll), Ok(1));
        assert_eq!(fds.map(|entry| entry.revents), [0, POLLIN]);
    });
    assert!(looks <= MOST_LOOKS, "{looks}");
    socket::forget(other.as_raw_fd());
}

#[test]
fn select_sleeps_by_edges_and_leaves_what_is_behind_its_numbers() {
    let looks = waits(|fd| {
        let fd = fd as usize;
        let mut read = vec![0; fd / 64 + 1];
        read[fd / 64] = 1 << (fd % 64);
        let count = fd + 1;
        let sleep = |many: usize, sets: &mut [super::Bits; 3], nap: Option<Duration>| {
            test_calls::select(many, sets.each_mut().map(|set| &mut set[..]), nap)
        };
        assert_eq!(select(count, &mut [Some(&mut read), None, None], LONG, sleep).0, Ok(1));
        assert_eq!(read[fd / 64], 1 << (fd % 64));
    });
    assert!(looks <= MOST_LOOKS, "{looks}");
}

/// Waits in an epoll set. The tests of sets take turns: the list of entries is the process's.
fn waits_in_set(flags: c_int, after: impl FnOnce(c_int, c_int)) -> usize {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    waits(|fd| {
        let set = real::new_set().unwrap();
        let wanted = Wanted { events: (libc::EPOLLIN | flags) as u32, data: 77 };
        epoll::control(set, EPOLL_CTL_ADD, fd, wanted).unwrap();
        assert_eq!(wait_in(set, LONG), [(libc::EPOLLIN as u32, 77)]);
        after(set, fd);
        real::close_number(set);
    })
}

fn wait_in(set: c_int, timeout: Option<Duration>) -> Vec<(u32, u64)> {
    let buffer = test_calls::EventBuf::default();
    let told = epoll::wait(set, timeout, |nap| buffer.fill(set, nap)).unwrap();
    buffer.events()[..told].iter().map(|event| (event.events, event.u64)).collect()
}

const NOW: Option<Duration> = Some(Duration::ZERO);

#[test]
fn an_entry_waits_by_edges_until_its_condition_holds_again() {
    let looks = waits_in_set(0, |set, _| {
        assert_eq!(wait_in(set, NOW).len(), 1, "it is level-triggered again");
    });
    assert!(looks <= MOST_LOOKS + 1, "{looks}");
}

#[test]
fn an_entry_for_edges_stays_one() {
    let looks = waits_in_set(libc::EPOLLET, |_, _| {});
    assert!(looks <= MOST_LOOKS, "{looks}");
}

#[test]
fn an_exclusive_entry_is_made_anew() {
    let looks = waits_in_set(libc::EPOLLEXCLUSIVE, |set, _| {
        assert_eq!(wait_in(set, NOW).len(), 1, "it is level-triggered again");
    });
    assert!(looks <= MOST_LOOKS + 1, "{looks}");
}

#[test]
fn an_entry_for_one_event_tells_one() {
    for flags in [0, libc::EPOLLET] {
        let looks = waits_in_set(libc::EPOLLONESHOT | flags, |set, fd| {
            assert_eq!(wait_in(set, NOW), []);
            let wanted = Wanted { events: (libc::EPOLLIN | libc::EPOLLONESHOT) as u32, data: 78 };
            epoll::control(set, EPOLL_CTL_MOD, fd, wanted).unwrap();
            assert_eq!(wait_in(set, LONG), [(libc::EPOLLIN as u32, 78)]);
        });
        assert!(looks <= MOST_LOOKS + 1, "{looks}");
    }
}

#[test]
fn a_set_in_a_set_is_ready_when_its_entry_has_an_edge() {
    waits_in_set(0, |set, _| {
        let outer = real::new_set().unwrap();
        let wanted = Wanted { events: libc::EPOLLIN as u32, data: 1 };
        real::control(outer, EPOLL_CTL_ADD, set, wanted).unwrap();
        assert_eq!(wait_in(outer, LONG), [(libc::EPOLLIN as u32, 1)]);
        real::close_number(outer);
    });
}

#[test]
fn a_socket_whose_condition_holds_is_waited_for_by_level() {
    let (ours, _peer, acts) = fake();
    acts.holds.store(true, Ordering::Release);
    let mut fds = [pollfd { fd: ours.as_raw_fd(), events: libc::POLLOUT, revents: 0 }];
    assert_eq!(poll(&mut fds, LONG, test_calls::poll), Ok(1));
    assert_eq!(acts.looks(), 1);
    socket::forget(ours.as_raw_fd());
}
