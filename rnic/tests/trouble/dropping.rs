//! Programs that drop a QP, or the device: messages that completed before arrive nevertheless.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rddp_rdmap::Opcode;
use rddp_rnic::{QpState, SendWr};
use rddp_test_support::{Peer, pattern, plain, segment};

use crate::common::device::needs_software;
use crate::common::raw::{self, BOTH, Role, client_server, with_plain_raw};
use crate::common::{ALL, End, PATIENCE, at_once, connected};
use crate::slow::stalled;

const MESSAGE: usize = 64 * 1024;

/// Sends twelve messages, and takes their completions.
fn send_twelve(end: &End) {
    let source = end.region(MESSAGE, ALL);
    source.write(0, &pattern(MESSAGE, 3)).unwrap();
    for id in 0..12 {
        end.qp.post_send(&SendWr::send(id, source.whole())).unwrap();
        assert_eq!(end.success().wr_id, id);
    }
}

/// Returns an end that has sent twelve messages to a peer that reads nothing, and seen all their
/// completions.
fn has_sent(role: Role) -> (End, Peer) {
    let (end, raw) = with_plain_raw(role);
    send_twelve(&end);
    (end, raw)
}

/// Has the peer go on reading, and checks that it gets the twelve messages, then an orderly end.
fn all_arrive(raw: &mut Peer) {
    for message in 0..12 {
        let mut octets = Vec::new();
        while octets.len() < MESSAGE {
            octets.extend(raw.expect(Opcode::Send).1);
        }
        assert_eq!(octets, pattern(MESSAGE, 3), "message {message}");
    }
    assert_eq!(raw.recv(), None);
}

/// draft-hilland-rddp-verbs §6.2: a program ends by `disconnect` and by dropping its objects. Here
/// the peer has read nothing until then.
#[test]
fn what_completed_before_a_disconnect_arrives_after_the_qp_is_gone() {
    for role in BOTH {
        let (end, mut raw) = has_sent(role);
        end.qp.disconnect();
        drop(end);
        all_arrive(&mut raw);
    }
}

#[test]
fn what_completed_arrives_without_a_disconnect_too() {
    for role in BOTH {
        let (end, mut raw) = has_sent(role);
        drop(end);
        all_arrive(&mut raw);
    }
}

/// Closing a socket with octets unread makes TCP reset, and octets on their way to the peer are
/// lost. So what the peer still sends has to be read.
#[test]
fn what_the_peer_still_sends_takes_nothing_away() {
    let (end, mut raw) = has_sent(Role::Passive);
    let target = end.region(60_000, ALL);
    let write = raw::write_to(&target, 0, &[3; 60_000]);
    let device = end.sibling();
    end.qp.disconnect();
    drop(end);
    for _ in 0..100 {
        raw.send(&write);
    }
    all_arrive(&mut raw);
    assert_eq!(target.read(0, 60_000).unwrap(), [0; 60_000], "placed after the QP was gone");
    drop(device);
}

/// A QP that is dropped while an FPDU is half sent still sends the rest of it, and nothing of the
/// requests behind it.
#[test]
fn the_rest_of_an_fpdu_goes_out_and_then_the_end() {
    let (end, mut raw) = with_plain_raw(Role::Passive);
    let other = end.sibling();
    let source = end.region(1 << 20, ALL);
    for id in 0..64 {
        end.qp.post_send(&SendWr::send(id, source.whole())).unwrap();
    }
    // The device stays: nothing waits for the peer here.
    at_once("dropping a QP", || drop(end));
    let mut octets = Vec::new();
    raw.socket.read_to_end(&mut octets).expect("a FIN, no reset");
    assert!(octets.len() < 64 << 20, "all 64 messages came");
    raw.fpdus.take(&octets);
    while raw.fpdus.next_ulpdu().is_some() {}
    assert!(raw.fpdus.is_empty(), "half an FPDU, then the end");
    assert_eq!(other.qp.state(), QpState::Idle);
}

/// A program that keeps handles for as long as it runs, as those of the C verbs do, waits like this
/// before it ends.
#[test]
fn a_device_lingers_until_the_peers_of_dropped_qps_have_closed() {
    let (end, mut raw) = has_sent(Role::Passive);
    let (device, closes) = (end.sibling(), AtomicBool::new(false));
    device.rnic.linger(PATIENCE);
    drop(end);
    // The peer does nothing yet: the limit ends this.
    device.rnic.linger(Duration::from_millis(1));
    std::thread::scope(|scope| {
        let peer = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            all_arrive(&mut raw);
            closes.store(true, Ordering::SeqCst);
            drop(raw);
        });
        device.rnic.linger(PATIENCE);
        assert!(closes.load(Ordering::SeqCst), "the peer has not closed yet");
        peer.join().unwrap();
    });
}

/// Runs a program that sends twelve messages, and ends as soon as its objects are dropped. Its peer
/// is the test.
fn sends_and_ends(addr: SocketAddr) {
    let end = End::new();
    end.qp.connect(addr, &client_server()).unwrap();
    send_twelve(&end);
    println!("sent");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    drop(end);
    // SAFETY: it takes a number, and ends the process without running anything of it.
    unsafe { libc::_exit(0) };
}

/// Dropping the last handle of a device waits for its connections: if a process ended with octets
/// unread, TCP would reset them.
#[test]
fn a_process_that_ends_at_once_loses_nothing() {
    if let Ok(addr) = std::env::var("RDDP_DROPPING_TEST") {
        return sends_and_ends(addr.parse().unwrap());
    }
    needs_software("a raw peer of TCP");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "dropping::a_process_that_ends_at_once_loses_nothing", "--nocapture"])
        .env("RDDP_DROPPING_TEST", listener.local_addr().unwrap().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut raw = Peer::responder(listener.accept().unwrap().0, &plain());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("sent")));
    child.stdin.take().unwrap().write_all(b"end\n").unwrap();
    let burst: Vec<u8> =
        (0..100).flat_map(|_| raw.frame(&segment::write(rddp_rnic::Stag(0), 0, true, b""))).collect();
    for _ in 0..100 {
        raw.try_octets(&burst);
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = raw.socket.shutdown(Shutdown::Write);
    assert!(child.wait().unwrap().success());
    all_arrive(&mut raw);
}

/// RFC 5042 §6.4.2: dropping the last handle of a device waits a second at most for a peer that
/// neither reads nor closes.
#[test]
fn dropping_a_device_does_not_wait_long_for_a_peer() {
    let (end, raw) = has_sent(Role::Passive);
    let begin = Instant::now();
    drop(end);
    assert!(begin.elapsed() < PATIENCE / 4, "{:?}", begin.elapsed());
    drop(raw);
}

/// Dropping a QP is no reset for the peer's program: its QP is idle again, with nothing lost.
#[test]
fn the_peer_sees_an_orderly_end() {
    let (active, passive) = connected(&rddp_rnic::ConnectOptions::default());
    active.qp.post_send(&SendWr::write_inline(1, b"", passive.region(8, ALL).remote(0))).unwrap();
    active.success();
    drop(active);
    passive.await_state(QpState::Idle);
}

/// RFC 5042 §6.4.2: a dropped QP's connection whose peer neither reads nor closes is given up in
/// the end, though the device lives on. Octets that the peer sends are answered by a reset from
/// then on.
#[test]
fn a_peer_that_neither_reads_nor_closes_is_given_up() {
    let (end, mut raw, _source) = stalled(Role::Passive);
    let device = end.sibling();
    drop(end);
    let octets = raw.frame(&segment::write(rddp_rnic::Stag(0), 0, true, b""));
    let deadline = Instant::now() + PATIENCE;
    while raw.socket.write_all(&octets).is_ok() {
        assert!(Instant::now() < deadline, "the connection lingers on");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(device);
}
