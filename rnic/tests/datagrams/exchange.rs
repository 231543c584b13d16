//! Messages to and fro, and the states of a queue pair.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use rddp_rnic::{
    Access, AsyncEventKind, Completed, ConnectError, ConnectOptions, DatagramOptions, PostError, QpState,
    RecvWr, SendWr, Status, Transport,
};
use rddp_test_support::pattern;

use super::common::End;
use super::{Inbox, addr_of, bound, bound_to, idle, program};

#[test]
fn a_message_can_be_answered_in_both_families() {
    for addr in ["127.0.0.1:0", "[::1]:0"] {
        let end = bound_to(addr, DatagramOptions::default());
        let peer = program(addr_of(&end));
        let inbox = Inbox::new(&end, 3, 64);
        inbox.post(&end, 0..3);
        for (slot, message) in [&b"hello"[..], b"", b"third"].into_iter().enumerate() {
            peer.send_to(message, addr_of(&end)).unwrap();
            let (datagram, octets) = inbox.next(&end, slot);
            assert_eq!(octets, message);
            assert_eq!(datagram.source, peer.local_addr().unwrap());
            assert_eq!(datagram.destination, addr_of(&end).ip());
            assert_eq!((datagram.len as usize, datagram.traffic_class), (message.len(), 0));
            end.qp.post_send(&SendWr::datagram(9, vec![inbox.region.sge(40..45)], datagram.source)).unwrap();
            let done = end.success();
            assert_eq!((done.wr_id, done.completed, done.byte_len), (9, Completed::Send, 0));
            let mut answer = [0; 64];
            assert_eq!(peer.recv_from(&mut answer).unwrap(), (5, addr_of(&end)));
            assert_eq!(answer[..5], *b"hello");
        }
    }
}

/// A socket that is bound to any address tells which one a datagram was sent to.
#[test]
fn the_destination_and_the_traffic_class_are_told() {
    for (any, to) in [("0.0.0.0:0", "127.0.0.3"), ("[::]:0", "::1"), ("[::]:0", "127.0.0.4")] {
        let end = bound_to(any, DatagramOptions::default());
        let to = SocketAddr::new(to.parse().unwrap(), addr_of(&end).port());
        let peer = program(to);
        let socket = socket2::SockRef::from(&peer);
        if to.is_ipv4() { socket.set_tos_v4(0x48) } else { socket.set_tclass_v6(0x48) }.unwrap();
        let inbox = Inbox::new(&end, 1, 64);
        inbox.post(&end, 0..1);
        peer.send_to(b"hello", to).unwrap();
        let (datagram, octets) = inbox.next(&end, 0);
        assert_eq!((octets, datagram.destination), (b"hello".to_vec(), to.ip()));
        assert_eq!(datagram.source, peer.local_addr().unwrap(), "as it is, and not mapped");
        assert_eq!(datagram.traffic_class, 0x48);
        // A socket of IPv6 reaches peers of IPv4, too.
        end.qp
            .post_send(&SendWr::new(
                1,
                rddp_rnic::Operation::Datagram {
                    gather: rddp_rnic::Gather::Inline(b"answer".to_vec()),
                    to: datagram.source,
                },
            ))
            .unwrap();
        assert_eq!(peer.recv(&mut [0; 64]).unwrap(), 6);
    }
}

#[test]
fn a_receive_of_several_pieces_has_the_source_and_the_message_in_order() {
    let end = bound();
    let region = end.region(200, Access::LOCAL_WRITE);
    let pieces = vec![region.sge(0..10), region.sge(50..90), region.sge(100..104)];
    end.qp.post_recv(RecvWr::new(1, pieces)).unwrap();
    program(addr_of(&end)).send_to(&pattern(14, 3), addr_of(&end)).unwrap();
    assert_eq!(end.success().byte_len, 54);
    let octets = [region.read(80, 10).unwrap(), region.read(100, 4).unwrap()].concat();
    assert_eq!(octets, pattern(14, 3));
}

/// A datagram that is too long for IP is refused by itself, and others go on.
#[test]
fn the_longest_datagrams_are_those_of_ip() {
    for (addr, longest) in [("127.0.0.1:0", 65_507), ("[::1]:0", 65_488)] {
        let end = bound_to(addr, DatagramOptions::default());
        let peer = program(addr_of(&end));
        let to = peer.local_addr().unwrap();
        let source = end.region(70_000, Access::empty());
        source.write(0, &pattern(70_000, 5)).unwrap();
        let send = |id, len| SendWr::datagram(id, vec![source.sge(0..len)], to);
        end.qp.post_sends(&[send(1, longest), send(2, longest + 1), send(3, 10)]).unwrap();
        let mut octets = vec![0; 70_000];
        assert_eq!(peer.recv(&mut octets).unwrap(), longest);
        assert!(octets[..longest] == pattern(longest, 5));
        assert_eq!(peer.recv(&mut octets).unwrap(), 10);
        let done = [(); 3].map(|()| end.next()).map(|done| (done.wr_id, done.status));
        assert_eq!(done, [(1, Status::Success), (2, Status::LocalOperation), (3, Status::Success)]);
        assert_eq!(end.qp.state(), QpState::ReadyToSend);
    }
}

/// Beyond the MTU IP cuts datagrams where that is asked for.
#[test]
fn longer_datagrams_are_cut_where_that_is_asked_for() {
    let end = bound_to("[::1]:0", DatagramOptions { fragment: true, ..DatagramOptions::default() });
    let peer = program(addr_of(&end));
    let source = end.region(65_527, Access::empty());
    source.write(0, &pattern(65_527, 5)).unwrap();
    let gather = vec![source.whole()];
    end.qp.post_send(&SendWr::datagram(1, gather, peer.local_addr().unwrap())).unwrap();
    end.success();
    let mut octets = vec![0; 70_000];
    assert_eq!(peer.recv(&mut octets).unwrap(), 65_527);
    assert!(octets[..65_527] == pattern(65_527, 5));
}

/// The network's word that nobody has the port is an event, and others are served.
#[test]
fn an_address_that_nobody_has_is_an_event() {
    for any in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
        let end = bound_to(any, DatagramOptions::default());
        let like = if any == "[::1]:0" { any } else { "127.0.0.1:0" };
        let nobody = UdpSocket::bind(like).unwrap().local_addr().unwrap();
        let peer = program(nobody);
        for round in 0..3 {
            let gone = SendWr::datagram(1, rddp_rnic::Gather::Inline(vec![1]), nobody);
            end.qp.post_send(&gone).unwrap();
            assert_eq!(end.event(), AsyncEventKind::Unreachable(nobody));
            let to = peer.local_addr().unwrap();
            let list = [0, 1, 2].map(|id| SendWr::datagram(id, rddp_rnic::Gather::Inline(vec![round]), to));
            end.qp.post_sends(&list).unwrap();
            (0..4).for_each(|_| assert_eq!(end.success().completed, Completed::Send));
            (0..3).for_each(|_| assert_eq!(peer.recv(&mut [0; 8]).unwrap(), 1));
            assert_eq!(end.qp.state(), QpState::ReadyToSend);
        }
    }
}

#[test]
fn binding_makes_ready_to_send_and_a_close_makes_idle() {
    let end = idle();
    let inbox = Inbox::new(&end, 2, 64);
    // What is posted before is kept.
    inbox.post(&end, 0..1);
    for slot in 0..2 {
        end.qp.bind("127.0.0.1:0".parse().unwrap(), &DatagramOptions::default()).unwrap();
        assert_eq!((end.qp.state(), end.qp.peer_addr()), (QpState::ReadyToSend, None));
        let again = end.qp.bind("127.0.0.1:0".parse().unwrap(), &DatagramOptions::default());
        assert!(matches!(again, Err(ConnectError::NotIdle(QpState::ReadyToSend))));
        program(addr_of(&end)).send_to(b"hello", addr_of(&end)).unwrap();
        assert_eq!(inbox.next(&end, slot).1, b"hello");
        inbox.post(&end, 1..2);
        if slot == 0 {
            end.qp.disconnect();
            assert_eq!((end.event(), end.qp.state()), (AsyncEventKind::CloseComplete, QpState::Idle));
            assert_eq!(end.next().status, Status::Flushed);
            inbox.post(&end, 1..2);
        }
    }
    end.qp.abort();
    assert_eq!((end.next().status, end.qp.state()), (Status::Flushed, QpState::Error));
    assert!(end.qp.reset());
}

/// A socket that the program keeps, too, is not closed for it.
#[test]
fn a_socket_of_the_programs_own_is_taken() {
    let end = idle();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    end.qp.bind_to(socket.try_clone().unwrap(), &DatagramOptions::default()).unwrap();
    assert_eq!(addr_of(&end), socket.local_addr().unwrap());
    end.qp.disconnect();
    let peer = program(socket.local_addr().unwrap());
    peer.send_to(b"hello", socket.local_addr().unwrap()).unwrap();
    socket.set_nonblocking(false).unwrap();
    assert_eq!(socket.recv(&mut [0; 8]).unwrap(), 5);
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let fd = tcp.as_fd().try_clone_to_owned().unwrap();
    assert!(matches!(end.qp.bind_to(fd, &DatagramOptions::default()), Err(ConnectError::Tcp(_))));
}

#[test]
fn requests_of_other_wires_are_refused() {
    let end = bound();
    let iwarp = End::new();
    let region = end.region(8, Access::LOCAL_WRITE);
    let datagram = SendWr::datagram(1, vec![region.whole()], addr_of(&end));
    assert_eq!(end.qp.post_send(&SendWr::send_inline(1, b"x")), Err(PostError::Transport));
    assert_eq!(iwarp.qp.post_send(&datagram), Err(PostError::Transport));
    assert_eq!(end.qp.post_recv(RecvWr::one(1, region.whole()).until_full()), Err(PostError::Transport));
    let (options, addr) = (ConnectOptions::default(), "127.0.0.1:9".parse().unwrap());
    assert!(matches!(end.qp.connect(addr, &options), Err(ConnectError::Transport)));
    assert!(end.rnic.listen_by(Transport::Udp, "127.0.0.1:0".parse().unwrap(), &options).is_err());
    assert!(iwarp.qp.bind("127.0.0.1:0".parse().unwrap(), &DatagramOptions::default()).is_err());
}

/// This end's memory is this end's fault, and ends the QP.
#[test]
fn memory_that_is_no_good_ends_the_queue_pair() {
    for receives in [true, false] {
        let end = bound();
        let region = end.region(64, Access::LOCAL_WRITE);
        let sge = region.whole();
        if receives {
            end.qp.post_recv(RecvWr::one(1, sge)).unwrap();
            region.deregister().unwrap();
            program(addr_of(&end)).send_to(b"hello", addr_of(&end)).unwrap();
        } else {
            let idle = idle();
            let region = idle.region(64, Access::LOCAL_WRITE);
            let to = addr_of(&end);
            idle.qp.post_send(&SendWr::datagram(1, vec![region.whole()], to)).unwrap();
            region.deregister().unwrap();
            idle.qp.bind("127.0.0.1:0".parse().unwrap(), &DatagramOptions::default()).unwrap();
            assert_eq!(idle.next().status, Status::LocalProtection);
            assert_eq!(idle.qp.state(), QpState::Error);
            continue;
        }
        assert_eq!(end.next().status, Status::LocalProtection);
        assert_eq!(end.qp.state(), QpState::Error);
    }
}

/// Returns whether a program of this host has the UDP port.
fn is_bound(port: u16) -> bool {
    let tables = ["/proc/net/udp", "/proc/net/udp6"].map(|table| std::fs::read_to_string(table).unwrap());
    tables.iter().any(|table| table.contains(&format!(":{port:04X} ")))
}

/// Has socat answer each datagram by the same.
#[test]
fn the_far_end_is_socat() {
    for (addr, listen) in [("127.0.0.1:0", "UDP4-LISTEN"), ("[::1]:0", "UDP6-LISTEN")] {
        let free: IpAddr = addr.parse::<SocketAddr>().unwrap().ip();
        let at = UdpSocket::bind((free, 0)).unwrap().local_addr().unwrap();
        let arguments = [format!("{listen}:{},bind=[{}]", at.port(), free), "PIPE".into()];
        let arguments = arguments.map(|argument| argument.replace("[127.0.0.1]", "127.0.0.1"));
        let Ok(mut child) = Command::new("socat").args(&arguments).stdin(Stdio::null()).spawn() else {
            return eprintln!("skipped: there is no socat");
        };
        while !is_bound(at.port()) {
            assert!(child.try_wait().unwrap().is_none(), "socat has ended");
            std::thread::yield_now();
        }
        let end = bound_to(addr, DatagramOptions::default());
        let inbox = Inbox::new(&end, 20, 1400);
        inbox.post(&end, 0..20);
        for slot in 0..20 {
            let message = pattern(1 + 70 * slot, slot as u8);
            let source = end.region(message.len(), Access::empty());
            source.write(0, &message).unwrap();
            end.qp.post_send(&SendWr::datagram(99, vec![source.whole()], at).unsignaled()).unwrap();
            let done = end.success();
            assert_eq!(done.wr_id, slot as u64);
            let (datagram, octets) = inbox.message(done.wr_id, done.byte_len);
            assert_eq!((datagram.source, octets == message), (at, true));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
