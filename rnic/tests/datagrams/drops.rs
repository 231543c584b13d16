//! Datagrams that are too long for a receive, or find none.

use std::net::UdpSocket;
use std::time::Instant;

use rddp_rnic::{Access, DatagramOptions, Gather, QpState, RecvWr, SendWr, Status, WithoutReceive};
use rddp_test_support::pattern;

use super::common::PATIENCE;
use super::{Inbox, MOMENT, addr_of, bound, bound_to, idle, program};

const DROPS: DatagramOptions = DatagramOptions { fragment: false, without_receive: WithoutReceive::Drop };

#[test]
fn a_datagram_that_is_too_long_fills_its_receive() {
    let end = bound();
    let peer = program(addr_of(&end));
    let region = end.region(400, Access::LOCAL_WRITE);
    for (id, len) in [(0, 50), (1, 40), (2, 20), (3, 0), (4, 100)] {
        let from = 100 * id;
        end.qp
            .post_recv(RecvWr::new(id as u64, vec![region.sge(from.min(300)..from.min(300) + len)]))
            .unwrap();
        peer.send_to(&pattern(60, id as u8), addr_of(&end)).unwrap();
        let done = end.next();
        let status = if len < 100 { Status::MessageTooLong } else { Status::Success };
        assert_eq!((done.wr_id, done.status, done.byte_len as usize), (id as u64, status, len));
        let octets = region.read(from.min(300), len).unwrap();
        if len > 40 {
            assert_eq!(octets[40..], pattern(60, id as u8)[..len - 40]);
        }
    }
    assert_eq!(end.qp.state(), QpState::ReadyToSend);
    // A longest one, into the smallest that has any.
    let inbox = Inbox::new(&end, 1, 64);
    inbox.post(&end, 0..1);
    peer.send_to(&vec![7; 65_507], addr_of(&end)).unwrap();
    assert_eq!((end.next().status, inbox.message(0, 104).1), (Status::MessageTooLong, vec![7; 64]));
}

#[test]
fn datagrams_without_a_receive_wait_in_the_socket() {
    let end = bound();
    let peer = program(addr_of(&end));
    for at in 0..10 {
        peer.send_to(&[at; 8], addr_of(&end)).unwrap();
    }
    std::thread::sleep(MOMENT);
    assert_eq!((end.qp.counters().octets_received, end.qp.counters().dropped), (0, 0));
    let inbox = Inbox::new(&end, 10, 64);
    for slot in 0..10 {
        inbox.post(&end, slot..slot + 1);
        assert_eq!(inbox.next(&end, slot).1, [slot as u8; 8]);
    }
}

#[test]
fn datagrams_without_a_receive_are_dropped_where_that_is_asked_for() {
    let end = bound_to("127.0.0.1:0", DROPS);
    let peer = program(addr_of(&end));
    let near = bound();
    for at in 0..10 {
        peer.send_to(&[at; 8], addr_of(&end)).unwrap();
    }
    // A bundle, too; and whatever the length.
    let list: Vec<SendWr> =
        (0..50).map(|id| SendWr::datagram(id, Gather::Inline(vec![1; 64]), addr_of(&end))).collect();
    near.qp.post_sends(&list).unwrap();
    peer.send_to(b"", addr_of(&end)).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while end.qp.counters().dropped < 61 {
        assert!(Instant::now() < deadline, "{:?}", end.qp.counters());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let inbox = Inbox::new(&end, 2, 64);
    inbox.post(&end, 0..2);
    peer.send_to(b"late", addr_of(&end)).unwrap();
    assert_eq!(inbox.next(&end, 0).1, b"late");
    // A bundle meets one receive: the rest of it is dropped.
    near.qp.post_sends(&list).unwrap();
    assert_eq!(inbox.next(&end, 1).1, [1; 64]);
    while end.qp.counters().dropped < 61 + 49 {
        assert!(Instant::now() < deadline, "{:?}", end.qp.counters());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// A flood without a receive takes no more memory than the socket has, and what the kernel drops is
/// counted as soon as one is received.
#[test]
fn drops_of_the_kernel_are_counted() {
    let end = idle();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket2::SockRef::from(&socket).set_recv_buffer_size(4096).unwrap();
    end.qp.bind_to(socket, &DatagramOptions::default()).unwrap();
    let peer = program(addr_of(&end));
    for _ in 0..1000 {
        peer.send_to(&[1; 1000], addr_of(&end)).unwrap();
    }
    let inbox = Inbox::new(&end, 1000, 1000);
    inbox.post(&end, 0..1000);
    let mut got = 0;
    while end.cq.wait(Some(MOMENT)).unwrap() {
        assert_eq!(inbox.next(&end, got).1, [1; 1000]);
        got += 1;
    }
    // The count comes with the next datagram that the socket takes.
    peer.send_to(b"last", addr_of(&end)).unwrap();
    assert_eq!(inbox.next(&end, got).1, b"last");
    assert!((1..1000).contains(&got));
    assert_eq!(end.qp.counters().dropped, 1000 - got as u64);
}

/// A flood of one queue pair does not keep others waiting.
#[test]
fn a_flood_leaves_others_alone() {
    for options in [DatagramOptions::default(), DROPS] {
        let end = bound_to("127.0.0.1:0", options);
        let other = end.sibling_with(|config| config.transport = rddp_rnic::Transport::Udp);
        other.qp.bind("127.0.0.1:0".parse().unwrap(), &DatagramOptions::default()).unwrap();
        let (victim, peer) = (addr_of(&end), program(addr_of(&end)));
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let flood = program(victim);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = flood.send_to(&[0; 1400], victim);
                }
            });
            let inbox = Inbox::new(&other, 1, 64);
            for round in 0..100 {
                inbox.post(&other, 0..1);
                peer.send_to(&[round; 9], addr_of(&other)).unwrap();
                assert_eq!(inbox.next(&other, 0).1, [round; 9]);
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(end.qp.state(), QpState::ReadyToSend);
    }
}
