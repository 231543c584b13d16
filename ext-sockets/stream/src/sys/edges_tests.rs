//! Sleeps by edges over plain TCP, with a number in the state that stands for what a call waits
//! for.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::{Calls, EdgeSet, Process, SharedState, forget_edges_of};
use crate::patience::Patience;
use crate::{Errno, Options, Role, Stream};

/// Ends a test that would hang.
const LONG: Duration = Duration::from_secs(60);
static CALLS: Calls = Calls::libc();

/// An end of a TCP connection with a state, and its plain peer.
struct End {
    tcp: TcpStream,
    state: SharedState,
    peer: TcpStream,
}

impl End {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let tcp = listener.accept().unwrap().0;
        peer.set_nodelay(true).unwrap();
        let state = SharedState::anonymous(&Options::new(Role::Responder)).unwrap();
        state.set_framed();
        state.startup.may_send.store(true, Ordering::Release);
        Self { tcp, state, peer }
    }

    fn fd(&self) -> RawFd {
        self.tcp.as_raw_fd()
    }

    fn stream(&self) -> Stream<'_> {
        Stream::new(self.fd(), &self.state, &CALLS).unwrap()
    }

    /// Changes what sleepers wait for, and kicks them.
    fn advance(&self) {
        let mut tx = self.state.tx.lock().unwrap();
        tx.out.msn += 1;
        self.stream().kick();
    }

    fn has_come_to(&self, number: u32) -> bool {
        self.state.tx.lock().unwrap().out.msn >= number
    }

    /// Sleeps by edges in calls of ours until the number is there. Returns how often it woke.
    fn await_by_edges(&self, number: u32) -> u32 {
        let patience = Patience::new(false, Some(LONG));
        let mut wakes = 0;
        loop {
            let mut found = false;
            self.stream()
                .wait_by_edges_in_any_case(&patience, || {
                    let tx = self.state.tx.lock()?;
                    found = tx.out.msn >= number;
                    Ok((!found).then(|| self.stream().note_sleeper(&mut 1)))
                })
                .expect("a kick was missed");
            if found {
                return wakes;
            }
            wakes += 1;
        }
    }

    /// Sleeps as `poll` of a program does, level-triggered on the number of a set.
    fn await_by_poll(&self, number: u32) -> u32 {
        let mut set = EdgeSet::take(&CALLS, self.fd(), CALLS.cookie(self.fd()).unwrap()).unwrap();
        set.register(self.fd(), CALLS.cookie(self.fd()).unwrap(), 0).unwrap();
        let mut wakes = 0;
        loop {
            set.collect(|_, _| {});
            let note = {
                let tx = self.state.tx.lock().unwrap();
                if tx.out.msn >= number {
                    return wakes;
                }
                self.stream().note_sleeper(&mut 1)
            };
            assert!(is_readable(set.number(), LONG), "a kick was missed");
            drop(note);
            wakes += 1;
        }
    }

    fn leave_octets(&self) {
        (&self.peer).write_all(&[7; 100]).unwrap();
        while self.tcp.peek(&mut [0; 100]).unwrap() < 100 {}
    }
}

fn is_readable(fd: RawFd, timeout: Duration) -> bool {
    let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which lives until the call returns.
    unsafe { libc::poll(&raw mut entry, 1, timeout.as_millis() as i32) > 0 }
}

fn fork(body: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child makes calls on its sockets and the state, and `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: takes integers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        Process::forget_me();
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: ends the child without the exit handlers of the tests.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    pid
}

fn join(pid: libc::pid_t) {
    let mut status = 0;
    // SAFETY: waits for a child of ours; the status lives until the call returns.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
}

/// A number that the processes of a test share.
fn shared_number() -> &'static AtomicU32 {
    // SAFETY: a new mapping, which stays; zeros are a number.
    unsafe {
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let at = libc::mmap(std::ptr::null_mut(), 4096, rights, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        &*at.cast()
    }
}

/// Kicks sleepers of both kinds in two processes `rounds` times, each time when both have come.
fn kick_often(rounds: u32) {
    let end = End::new();
    end.leave_octets();
    let come = shared_number();
    let child = fork(|| {
        for round in 1..=rounds {
            end.await_by_poll(round);
            come.fetch_add(1, Ordering::AcqRel);
        }
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=rounds {
                end.await_by_edges(round);
                come.fetch_add(1, Ordering::AcqRel);
            }
        });
        let until = Instant::now() + LONG * 5;
        for round in 0..rounds {
            while come.load(Ordering::Acquire) < 2 * round {
                assert!(Instant::now() < until);
                thread::yield_now();
            }
            end.advance();
            // What could keep an edge is gone before a sleeper looks: other octets take the place.
            (&end.peer).write_all(&[1]).unwrap();
            let mut octet = [0];
            (&end.tcp).read_exact(&mut octet).unwrap();
        }
    });
    join(child);
}

#[test]
fn sleepers_of_both_kinds_in_two_processes_miss_no_kick() {
    kick_often(3_000);
}

#[test]
#[ignore = "the long form of the test above: some seconds"]
fn sleepers_of_both_kinds_miss_none_of_100_000_kicks() {
    kick_often(100_000);
}

#[test]
fn octets_for_another_call_wake_a_sleeper_once_for_each_arrival() {
    const ARRIVALS: u32 = 50;
    for by_poll in [false, true] {
        let end = End::new();
        end.leave_octets();
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                tell.send(()).unwrap();
                if by_poll { end.await_by_poll(1) } else { end.await_by_edges(1) }
            });
            told.recv().unwrap();
            for octets in 1..=ARRIVALS as usize {
                (&end.peer).write_all(&[0]).unwrap();
                while end.tcp.peek(&mut [0; 1000]).unwrap() < 100 + octets {}
            }
            end.advance();
            // One more is the kick.
            assert!(sleeper.join().unwrap() <= ARRIVALS + 1);
        });
    }
}

#[test]
fn a_kick_without_room_comes_when_tcp_has_room() {
    let end = End::new();
    end.tcp.set_nonblocking(true).unwrap();
    while (&end.tcp).write(&[0; 4096]).is_ok() {}
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| end.await_by_edges(1));
        while !end.state.sleepers.any() {
            thread::yield_now();
        }
        end.advance();
        // The room that a reader makes.
        let mut reader = &end.peer;
        reader.set_nonblocking(true).unwrap();
        let until = Instant::now() + LONG;
        while !sleeper.is_finished() {
            assert!(Instant::now() < until);
            let _ = reader.read(&mut [0; 1 << 16]);
        }
    });
}

/// Two thirds of the buffer are full, which no `poll` has seen: the kernel does not call the socket
/// writable, and nothing has asked it to tell when it is.
#[test]
fn a_kick_comes_when_the_kernel_calls_the_socket_writable_again() {
    let filled = || {
        let end = End::new();
        set_buffer(&end.tcp, libc::SO_SNDBUF);
        set_buffer(&end.peer, libc::SO_RCVBUF);
        end.tcp.set_nonblocking(true).unwrap();
        end
    };
    let model = filled();
    let mut most = 0;
    while model.stream().kernel.poll(libc::POLLOUT, Some(Duration::ZERO)).unwrap() != 0 {
        most += (&model.tcp).write(&[0; 1024]).unwrap();
        thread::sleep(Duration::from_micros(200)); // what has arrived leaves the buffer
    }
    let end = filled();
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| end.await_by_edges(1));
        while !end.state.sleepers.any() {
            thread::yield_now();
        }
        for _ in 0..most / 1024 {
            let _ = (&end.tcp).write(&[0; 1024]);
            thread::sleep(Duration::from_micros(200));
        }
        end.advance();
        let mut reader = &end.peer;
        reader.set_nonblocking(true).unwrap();
        let until = Instant::now() + LONG;
        while !sleeper.is_finished() {
            assert!(Instant::now() < until);
            let _ = reader.read(&mut [0; 1 << 16]);
        }
    });
}

fn set_buffer(tcp: &TcpStream, which: i32) {
    let octets = 64 * 1024;
    // SAFETY: the option is an int, which lives until the call returns.
    let done =
        unsafe { libc::setsockopt(tcp.as_raw_fd(), libc::SOL_SOCKET, which, (&raw const octets).cast(), 4) };
    assert_eq!(done, 0);
}

#[test]
fn a_killed_sleeper_costs_one_kick() {
    let end = End::new();
    let child = fork(|| {
        end.await_by_edges(1);
    });
    while !end.state.sleepers.any() {
        thread::yield_now();
    }
    // SAFETY: ends the child of this test, and waits for it.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    assert!(end.state.sleepers.any());
    end.advance();
    assert!(!end.state.sleepers.any());
}

#[test]
fn a_note_of_before_a_kick_is_not_taken_for_one_of_after_it() {
    let end = End::new();
    let before = end.state.sleepers.note();
    end.stream().kick();
    let after = end.state.sleepers.note();
    drop(before);
    assert!(end.state.sleepers.any());
    drop(after);
    assert!(!end.state.sleepers.any());
}

#[test]
fn sleepers_learn_that_a_process_makes_no_more_kicks() {
    let end = End::new();
    assert!(!end.state.sleepers.are_not_told());
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| end.await_by_edges(1));
        while !end.state.sleepers.any() {
            thread::yield_now();
        }
        end.stream().announce_confinement();
        // As a confined process: without a kick.
        end.state.tx.lock().unwrap().out.msn += 1;
        sleeper.join().unwrap();
    });
    assert!(end.state.sleepers.are_not_told());
}

#[test]
fn the_low_water_mark_is_1_while_a_sleeper_is_noted() {
    let end = End::new();
    let mut wake_at = 5000;
    end.stream().kernel.wake_at(wake_at).unwrap();
    let _note = end.stream().note_sleeper(&mut wake_at);
    assert_eq!(wake_at, 1);
    assert_eq!(end.stream().kernel.option(libc::SOL_SOCKET, libc::SO_RCVLOWAT), Some(1));
}

#[test]
fn a_sleep_by_edges_ends_with_its_time() {
    let end = End::new();
    end.leave_octets();
    let patience = Patience::new(false, Some(Duration::from_millis(20)));
    let wait =
        || end.stream().wait_by_edges_in_any_case(&patience, || Ok(Some(end.stream().note_sleeper(&mut 1))));
    assert_eq!(wait(), Ok(()));
    assert!(patience.is_over(), "octets that were there have ended the sleep");
    assert_eq!(wait(), Err(Errno::WOULD_BLOCK));
    assert!(!end.state.sleepers.any());
}

#[test]
fn a_set_goes_on_with_the_socket_that_it_has_and_with_no_other() {
    let (one, other) = (End::new(), End::new());
    let cookie = |end: &End| CALLS.cookie(end.fd()).unwrap();
    let mut set = EdgeSet::take(&CALLS, one.fd(), cookie(&one)).unwrap();
    let number = set.number();
    assert!(number >= 200, "a program gets the low numbers");
    assert_eq!(set.register(one.fd(), cookie(&one), 0), Ok(true));
    set.collect(|_, _| {});
    drop(set);
    let mut set = EdgeSet::take(&CALLS, one.fd(), cookie(&one)).unwrap();
    assert_eq!(set.register(one.fd(), cookie(&one), 0), Ok(false));
    drop(set);
    let number = one.fd();
    forget_edges_of(&CALLS, number);
    let mut set = EdgeSet::take(&CALLS, one.fd(), cookie(&one)).unwrap();
    assert_eq!(set.register(one.fd(), cookie(&one), 0), Ok(true), "the number was about to be closed");
    drop(set);
    // Another socket under the same number, without notice.
    // SAFETY: both numbers are of this test's sockets, and stay theirs.
    unsafe { libc::dup2(other.fd(), number) };
    let mut set = EdgeSet::take(&CALLS, number, cookie(&other)).unwrap();
    assert_eq!(set.register(number, cookie(&other), 0), Ok(true));
    let mut events = 0;
    set.collect(|_, now| events |= now);
    assert_ne!(events & libc::POLLOUT, 0);
    (&one.peer).write_all(&[1]).unwrap();
    (&other.peer).write_all(&[1]).unwrap();
    assert!(is_readable(set.number(), LONG));
}

#[test]
fn a_set_that_the_program_has_closed_is_made_anew() {
    for registered in [false, true] {
        let end = End::new();
        let cookie = CALLS.cookie(end.fd()).unwrap();
        // In a process without other threads, which would get the closed number.
        let child = fork(|| {
            let mut set = EdgeSet::take(&CALLS, end.fd(), cookie).unwrap();
            if registered {
                set.register(end.fd(), cookie, 0).unwrap();
            }
            // SAFETY: as a program does that closes all numbers there are.
            unsafe { libc::close(set.number()) };
            drop(set);
            end.await_by_edges(1);
        });
        while !end.state.sleepers.any() {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(5));
        end.advance();
        join(child);
    }
}

#[test]
fn a_sleep_in_a_signal_handler_does_not_disturb_the_one_it_interrupts() {
    let (one, other) = (End::new(), End::new());
    let cookie = |end: &End| CALLS.cookie(end.fd()).unwrap();
    let mut outer = EdgeSet::take(&CALLS, one.fd(), cookie(&one)).unwrap();
    outer.register(one.fd(), cookie(&one), 0).unwrap();
    outer.collect(|_, _| {});
    let mut inner = EdgeSet::take(&CALLS, other.fd(), cookie(&other)).unwrap();
    assert_ne!(inner.number(), outer.number());
    inner.register(other.fd(), cookie(&other), 0).unwrap();
    drop(inner);
    (&one.peer).write_all(&[1]).unwrap();
    assert!(is_readable(outer.number(), LONG));
}

/// Leaves sets as a sleep does that a handler ends by `siglongjmp`.
#[inline(never)]
fn leave_sets_behind(end: &End, count: usize) {
    let cookie = CALLS.cookie(end.fd()).unwrap();
    for _ in 0..count {
        std::mem::forget(EdgeSet::take(&CALLS, end.fd(), cookie).unwrap());
    }
}

#[test]
fn sets_that_were_left_behind_are_used_again() {
    let end = End::new();
    let child = fork(|| {
        super::forget_inherited_sets(&CALLS);
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        leave_sets_behind(&end, 64);
        let before = open();
        leave_sets_behind(&end, 200);
        assert_eq!(open(), before);
    });
    join(child);
}

#[test]
fn a_child_has_sets_of_its_own() {
    let end = End::new();
    let cookie = CALLS.cookie(end.fd()).unwrap();
    let mut set = EdgeSet::take(&CALLS, end.fd(), cookie).unwrap();
    set.register(end.fd(), cookie, 0).unwrap();
    set.collect(|_, _| {});
    drop(set);
    let child = fork(|| {
        super::forget_inherited_sets(&CALLS);
        let mut set = EdgeSet::take(&CALLS, end.fd(), cookie).unwrap();
        assert_eq!(set.register(end.fd(), cookie, 0), Ok(true));
        set.collect(|_, _| {});
        (&end.peer).write_all(&[1]).unwrap();
        assert!(is_readable(set.number(), LONG));
        set.collect(|_, _| {});
    });
    join(child);
    let set = EdgeSet::take(&CALLS, end.fd(), cookie).unwrap();
    assert!(is_readable(set.number(), LONG), "the child has taken the parent's edge");
}

#[test]
fn without_a_set_a_sleep_is_for_what_does_not_hold() {
    let end = End::new();
    end.leave_octets();
    let (recheck, mut looks) = (Duration::from_millis(1), 0);
    let kernel = end.stream().kernel;
    kernel
        .sleep_on_the_rest(recheck, || {
            looks += 1;
            Ok(Some(((), Some(LONG))))
        })
        .unwrap();
    assert_eq!(looks, 1);
    assert!(end.has_come_to(0));
}
