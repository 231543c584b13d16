//! Far ends that lie about where they are, and sockperf.

use std::net::{SocketAddr, SocketAddrV4};
use std::process::{Command, Stdio};

use rddp_rnic::{AsyncEventKind, Gather, QpState, SendWr, Status};
use socket2::{Domain, Protocol, Socket, Type};

use super::common::{End, PATIENCE};
use super::{Inbox, MOMENT, addr_of, bound};

/// Protocol of a raw socket whose datagrams have their own header of IP.
const RAW: i32 = 255;

/// Sends a datagram of UDP with a source of the caller's choice (RFC 791 §3.1, RFC 768).
fn forge(raw: &Socket, source: SocketAddrV4, to: SocketAddrV4, message: &[u8]) {
    let len = 28 + message.len() as u16;
    let mut octets = vec![0x45, 0];
    octets.extend(len.to_be_bytes());
    // No identification, no parts, 64 hops; the system sets the sum.
    octets.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    octets.extend(source.ip().octets());
    octets.extend(to.ip().octets());
    octets.extend([source.port(), to.port(), len - 20, 0].map(u16::to_be_bytes).concat());
    octets.extend(message);
    raw.send_to(&octets, &SocketAddr::from(to).into()).unwrap();
}

fn answer(end: &End, to: SocketAddr) -> Status {
    end.qp.post_send(&SendWr::datagram(99, Gather::Inline(b"answer".to_vec()), to)).unwrap();
    end.next().status
}

/// A source is what the datagram says. Nothing is sent to it unasked, and an answer that cannot be
/// harms nobody.
#[test]
fn a_source_that_lies_is_told_and_an_answer_to_it_harms_nobody() {
    let Ok(raw) = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(RAW))) else {
        return eprintln!("skipped: only root has raw sockets");
    };
    let end = bound();
    let SocketAddr::V4(own) = addr_of(&end) else { panic!("bound to IPv4") };
    let inbox = Inbox::new(&end, 4, 64);
    inbox.post(&end, 0..4);
    let nobody: SocketAddrV4 = "127.0.0.9:1".parse().unwrap();
    let none: SocketAddrV4 = "127.0.0.9:0".parse().unwrap();
    for (slot, source) in [nobody, none, own].into_iter().enumerate() {
        forge(&raw, source, own, b"forged");
        let (datagram, octets) = inbox.next(&end, slot);
        assert_eq!((datagram.source, &octets[..]), (source.into(), &b"forged"[..]));
    }
    assert_eq!(end.qp.counters().send_calls, 0);
    assert_eq!(answer(&end, nobody.into()), Status::Success);
    assert_eq!(end.event(), AsyncEventKind::Unreachable(nobody.into()));
    // No port is no address, also of a bundle.
    assert_eq!(answer(&end, none.into()), Status::LocalOperation);
    let list = [0; 3].map(|id| SendWr::datagram(id, Gather::Inline(b"answer".to_vec()), none.into()));
    end.qp.post_sends(&list).unwrap();
    (0..3).for_each(|_| assert_eq!(end.next().status, Status::LocalOperation));
    // An answer to its own address comes back.
    end.qp.post_send(&SendWr::datagram(99, Gather::Inline(b"answer".to_vec()), own.into())).unwrap();
    let done = [end.success(), end.success()];
    let received = done.iter().find(|done| done.wr_id == 3).unwrap();
    assert_eq!(inbox.message(3, received.byte_len).1, b"answer");
    assert_eq!(end.qp.state(), QpState::ReadyToSend);
}

/// Place of the octet of sockperf's header whose lowest bit says that a client has sent it.
const FLAGS: usize = 9;

/// sockperf sends one message at a time, and counts the answers.
#[test]
fn the_far_end_is_sockperf() {
    let end = bound();
    let port = addr_of(&end).port().to_string();
    let arguments = ["ping-pong", "-i", "127.0.0.1", "-p", &port, "-t", "1", "-m", "100"];
    let started =
        Command::new("sockperf").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = started else { return eprintln!("skipped: there is no sockperf") };
    let inbox = Inbox::new(&end, 8, 200);
    inbox.post(&end, 0..8);
    let (mut answered, begun) = (0, std::time::Instant::now());
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < PATIENCE, "sockperf does not end");
        if !end.cq.wait(Some(MOMENT)).unwrap() {
            continue;
        }
        let done = end.success();
        let (datagram, mut octets) = inbox.message(done.wr_id, done.byte_len);
        octets[FLAGS] &= !1;
        let back = SendWr::datagram(99, Gather::Inline(octets), datagram.source).unsignaled();
        end.qp.post_send(&back).unwrap();
        end.qp.post_recv(inbox.receive(done.wr_id as usize)).unwrap();
        answered += 1;
    }
    let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert!(answered > 10 && said.contains("# dropped messages = 0"), "{answered} answered: {said}");
}
