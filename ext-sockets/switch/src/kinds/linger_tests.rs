//! Closed sockets and obligations, in the hands of the thread.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::MutexGuard;

use super::super::fake::{Acts, fake};
use super::super::{after_fork, before_fork, closing, fork_is_over, received, store};
use super::*;
use crate::socket::{KindId, Mode, Settings};
use crate::sys::test_calls;
use rddp_stream::{Options, Process, Role};

/// Lock of each test: one of them resets the oldest socket there is.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for what the thread does; fails after a time that is never needed.
fn comes(mut is_there: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_there() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn begin_obligation(fd: c_int, acts: &Acts) -> bool {
    acts.obliged.store(true, Ordering::Release);
    oblige(&Ours::new(socket::hold(fd).unwrap(), fd))
}

#[test]
fn the_thread_meets_obligations_and_ends_with_the_last() {
    let _alone = alone();
    // More than one wait of the thread reports.
    let mut all: Vec<_> = (0..150).map(|_| fake()).collect();
    for (ours, _, acts) in &all {
        assert!(begin_obligation(ours.as_raw_fd(), acts));
        assert!(begin_obligation(ours.as_raw_fd(), acts), "once is enough");
    }
    assert_eq!(line().obliged.len(), all.len());
    assert_eq!(all[0].2.met.load(Ordering::Acquire), 0);
    for (_, peer, _) in &mut all {
        peer.write_all(b"x").unwrap();
    }
    comes(|| all.iter().all(|(_, _, acts)| acts.met.load(Ordering::Acquire) == 1));
    comes(|| line().set.is_none());
    assert_eq!(line().thread_of, 0);
    all.iter().for_each(|(ours, _, _)| socket::forget(ours.as_raw_fd()));
}

#[test]
fn a_socket_without_an_obligation_has_no_thread() {
    let _alone = alone();
    let (ours, _peer, _) = fake();
    assert!(!oblige(&Ours::new(socket::hold(ours.as_raw_fd()).unwrap(), ours.as_raw_fd())));
    assert!(line().obliged.is_empty());
    socket::forget(ours.as_raw_fd());
}

#[test]
fn an_obligation_ends_with_the_last_number_of_its_socket() {
    let _alone = alone();
    let (ours, mut peer, acts) = fake();
    assert!(begin_obligation(ours.as_raw_fd(), &acts));
    closing(ours.as_raw_fd());
    assert!(line().obliged.is_empty());
    drop(ours);
    assert_eq!(peer.read(&mut [0]).unwrap(), 0, "no number is left");
}

#[test]
fn a_number_that_is_another_sockets_by_now_is_left_alone() {
    let _alone = alone();
    let (ours, _peer, acts) = fake();
    let (other, _others_peer, others_acts) = fake();
    assert!(begin_obligation(ours.as_raw_fd(), &acts));
    let mut line = line();
    let (number, fd) = line.obliged.iter().map(|(number, one)| (*number, one.ours.fd())).next().unwrap();
    test_calls::put_under(other.as_raw_fd(), fd);
    line.step(number);
    assert!(line.obliged.is_empty());
    drop(line);
    assert_eq!(others_acts.met.load(Ordering::Acquire), 0);
    assert!(!hidden::is_hidden(fd) && real::is_open(fd), "it is the program's");
    real::close_number(fd);
    [ours, other].iter().for_each(|tcp| socket::forget(tcp.as_raw_fd()));
}

#[test]
fn a_child_takes_up_an_open_obligation() {
    let _alone = alone();
    let (ours, mut peer, acts) = fake();
    let fd = ours.as_raw_fd();
    // Its parent's thread has had one, and has not seen this yet.
    WERE_OBLIGED.store(true, Ordering::Relaxed);
    acts.obliged.store(true, Ordering::Release);
    before_fork();
    let child = test_calls::fork(|| {
        after_fork();
        comes(|| acts.met.load(Ordering::Acquire) == 1);
    });
    fork_is_over();
    peer.write_all(b"x").unwrap();
    assert_eq!(test_calls::join(child), 0);
    socket::forget(fd);
}

#[test]
fn a_farewell_gives_the_peer_all_octets_while_it_goes_on_sending() {
    let _alone = alone();
    let (ours, mut peer, acts) = fake();
    let octets = vec![7; 3_000_000];
    *acts.to_send.lock().unwrap() = Some(octets.clone());
    peer.write_all(&[1; 1000]).unwrap();
    closing(ours.as_raw_fd());
    drop(ours);
    let mut got = Vec::new();
    let mut piece = [0; 40_000];
    while got.len() < octets.len() {
        let count = peer.read(&mut piece).expect("the close was a reset");
        assert!(count > 0);
        got.extend_from_slice(&piece[..count]);
        // As credits that come back: the kernel's close would have answered with a reset.
        peer.write_all(&[2; 16]).unwrap();
    }
    assert!(got == octets);
    assert_eq!(*acts.ended_by_reset.lock().unwrap(), None, "the peer's end has not come");
    acts.peer_ended.store(true, Ordering::Release);
    assert_eq!(peer.read(&mut piece).unwrap(), 0);
    comes(|| *acts.ended_by_reset.lock().unwrap() == Some(false));
}

#[test]
fn a_farewell_does_not_wait_long_for_the_peers_end() {
    let _alone = alone();
    let (ours, mut peer, acts) = fake();
    *acts.to_send.lock().unwrap() = Some(vec![7; 10]);
    closing(ours.as_raw_fd());
    drop(ours);
    let mut got = Vec::new();
    peer.read_to_end(&mut got).unwrap();
    assert_eq!(got, [7; 10]);
}

#[test]
fn a_lingering_socket_that_comes_back_in_a_message_is_open_again() {
    let _alone = alone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    // As `recvmsg` gives the program a number that the library knows nothing of.
    let again = server.try_clone().unwrap();
    let settings = Settings {
        mode: Mode::Starting,
        kind: KindId::Framed,
        role: Some(Role::Responder),
        ..Settings::default()
    };
    let held = socket::adopt(server.as_raw_fd(), settings).unwrap();
    held.set_state(store::create(held.cookie(), &Options::new(Role::Responder)).unwrap());
    closing(server.as_raw_fd());
    drop(server);
    assert!(held.is_closed());
    received(again.as_raw_fd());
    let now = socket::hold(again.as_raw_fd()).unwrap();
    assert_eq!(now.index(), held.index());
    assert!(!now.is_closed());
    drop(held);
    line().reset_oldest();
    assert!(now.state().unwrap().is_held(|holder| holder == Process::me()));
    client.set_nonblocking(true).unwrap();
    assert_eq!(client.peek(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    socket::forget(again.as_raw_fd());
}
