//! Unreliable datagrams, by numbers of queue pairs and `Q_Key`s.

use std::net::{SocketAddr, UdpSocket};
use std::num::NonZeroU32;
use std::time::Instant;

use rddp_rnic::{
    Completed, CompletionQueue, DatagramOptions, Gather, Operation, QpConfig, QpNum, QpState, Rnic, SendWr,
    SrqConfig, Status, Transport, UdPeer,
};
use rddp_test_support::pattern;

use super::common::{End, PATIENCE};
use super::{Inbox, MOMENT, addr_of};

const KEY: u32 = 0x1111_1111;

/// A `Q_Key` that stands for the sender's own.
const OWN: u32 = 0x8000_0000;

/// Makes an end whose number is by its port, at an address without one.
fn end_with(addr: &str, change: impl FnOnce(&mut QpConfig)) -> End {
    let socket = UdpSocket::bind(addr).unwrap();
    let port = socket.local_addr().unwrap().port();
    let end = End::with(|config| {
        config.transport = Transport::Unreliable;
        config.num = Some(QpNum(u32::from(port) << 8 | 0x55));
        (config.max_send, config.max_recv) = (256, 256);
        change(config);
    });
    end.qp.set_qkey(KEY);
    end.qp.bind_to(socket, &DatagramOptions::default()).unwrap();
    end
}

fn end() -> End {
    end_with("127.0.0.1:0", |_| {})
}

fn peer_of(end: &End) -> UdPeer {
    UdPeer { addr: addr_of(end).ip(), qp: end.qp.num(), qkey: KEY }
}

fn inline(id: u64, octets: &[u8], to: UdPeer) -> SendWr {
    SendWr::unreliable(id, Gather::Inline(octets.to_vec()), to)
}

/// Waits until so many datagrams were dropped.
fn await_dropped(end: &End, count: u64) {
    let deadline = Instant::now() + PATIENCE;
    while end.qp.counters().dropped < count {
        assert!(Instant::now() < deadline, "{:?}", end.qp.counters());
        std::thread::yield_now();
    }
    assert_eq!(end.qp.counters().dropped, count);
}

#[test]
fn a_message_names_its_sender_and_carries_a_value() {
    for addr in ["127.0.0.1:0", "[::1]:0"] {
        let (near, far) = (end_with(addr, |_| {}), end_with(addr, |_| {}));
        let inbox = Inbox::new(&far, 3, 64);
        inbox.post(&far, 0..3);
        near.qp.post_send(&inline(1, b"hello", peer_of(&far))).unwrap();
        let (gather, to) = (Gather::Inline(b"value".to_vec()), peer_of(&far));
        let with_value = Operation::Unreliable { gather, to, immediate: Some(*b"abcd") };
        near.qp.post_send(&SendWr::new(2, with_value).solicited()).unwrap();
        near.qp.post_send(&inline(3, b"", peer_of(&far))).unwrap();
        let done = [far.success(), far.success(), far.success()];
        let messages = done.map(|done| inbox.message(done.wr_id, done.byte_len));
        assert_eq!(messages.each_ref().map(|(_, octets)| &octets[..]), [&b"hello"[..], b"value", b""]);
        assert!(messages.iter().all(|(datagram, _)| datagram.source == addr_of(&near)));
        assert_eq!(done.map(|done| done.source), [NonZeroU32::new(near.qp.num().0); 3]);
        assert_eq!(done.map(|done| done.immediate), [None, Some(*b"abcd\0\0\0\0"), None]);
        assert_eq!(done.map(|done| done.solicited), [false, true, false]);
        assert_eq!(done[1].completed, Completed::ReceiveImmediate);
        assert!((1..4).all(|id| near.success().wr_id == id));
    }
}

/// InfiniBand Architecture §10.2.5: the sender's own key stands in for one with the highest bit.
#[test]
fn a_message_without_the_key_is_dropped_and_counted() {
    let (near, far) = (end(), end());
    let inbox = Inbox::new(&far, 2, 64);
    inbox.post(&far, 0..2);
    let with = |qkey| UdPeer { qkey, ..peer_of(&far) };
    near.qp.set_qkey(KEY + 1);
    for qkey in [0, KEY ^ 1, OWN, OWN | KEY] {
        near.qp.post_send(&inline(1, b"wrong", with(qkey))).unwrap();
        assert_eq!(near.next().status, Status::Success);
    }
    await_dropped(&far, 4);
    let nobody = QpNum(far.qp.num().0 ^ 1);
    near.qp.post_send(&inline(1, b"for another", UdPeer { qp: nobody, ..with(0) })).unwrap();
    assert_eq!(near.next().status, Status::Success);
    await_dropped(&far, 5);
    assert_eq!((far.rnic.qkey_violations(), near.rnic.qkey_violations()), (4, 0));
    near.qp.set_qkey(KEY);
    near.qp.post_send(&inline(1, b"own", with(OWN | 7))).unwrap();
    assert_eq!(inbox.next(&far, 0).1, b"own");
    far.qp.set_qkey(KEY + 2);
    near.qp.post_send(&inline(1, b"late", peer_of(&far))).unwrap();
    await_dropped(&far, 6);
    assert_eq!(far.rnic.qkey_violations(), 5);
    assert_eq!(far.qp.state(), QpState::ReadyToSend);
}

/// Messages of one size leave together, each with a front of its own.
#[test]
fn bundles_keep_the_front_of_each_message() {
    let (near, far) = (end(), end());
    let inbox = Inbox::new(&far, 120, 1024);
    inbox.post(&far, 0..120);
    let source = near.region(1024, rddp_rnic::Access::empty());
    source.write(0, &pattern(1024, 3)).unwrap();
    let list: Vec<SendWr> = (0..180_u32)
        .map(|at| {
            // Every third is for another queue pair at the port.
            let place = if at % 3 == 0 { 1 } else { 0 };
            let qp = QpNum(far.qp.num().0 + place);
            let gather = match at % 2 {
                0 => Gather::Inline(pattern(1024, 3)[at as usize..][..48].to_vec()),
                _ => source.sge(at as usize..at as usize + 48).into(),
            };
            let to = UdPeer { qp, ..peer_of(&far) };
            SendWr::new(1, Operation::Unreliable { gather, to, immediate: Some(at.to_be_bytes()) })
                .unsignaled()
        })
        .collect();
    let calls = near.qp.counters().send_calls;
    near.qp.post_sends(&list).unwrap();
    assert_eq!(near.qp.counters().send_calls - calls, 3);
    for (slot, at) in (0..180_u32).filter(|at| at % 3 > 0).enumerate() {
        let done = far.success();
        assert_eq!((done.wr_id, done.immediate_u32()), (slot as u64, Some(at)));
        assert_eq!(inbox.message(done.wr_id, done.byte_len).1, pattern(1024, 3)[at as usize..][..48]);
    }
    await_dropped(&far, 60);
}

/// InfiniBand Architecture §10.3.1, SQE.
#[test]
fn a_request_that_fails_ends_requests_and_no_receives() {
    let (near, far) = (end(), end());
    let inbox = Inbox::new(&near, 1, 64);
    inbox.post(&near, 0..1);
    // Longer than any datagram of IP.
    let source = near.region(70_000, rddp_rnic::Access::empty());
    let long = SendWr::unreliable(2, source.whole(), peer_of(&far));
    let short = |id| inline(id, b"short", peer_of(&far));
    near.qp.post_sends(&[short(1), long, short(3)]).unwrap();
    near.qp.post_send(&short(4)).unwrap();
    let ended = [(); 4].map(|()| near.next()).map(|done| (done.wr_id, done.status));
    let (operation, flushed) = (Status::LocalOperation, Status::Flushed);
    assert_eq!(ended, [(1, Status::Success), (2, operation), (3, flushed), (4, flushed)]);
    assert_eq!(near.qp.state(), QpState::SendsFailed);
    far.qp.post_send(&inline(5, b"still", peer_of(&near))).unwrap();
    assert_eq!(inbox.next(&near, 0).1, b"still");
    assert!(near.qp.resume_sends() && near.qp.state() == QpState::ReadyToSend);
    near.qp.post_send(&short(6)).unwrap();
    assert_eq!(near.success().wr_id, 6);
    near.qp.abort();
    assert!(!near.qp.resume_sends());
}

/// An adapter loses what the network does not take: here, what goes to all hosts of a network.
#[test]
fn a_message_to_which_the_network_is_closed_is_lost_and_others_go_on() {
    let (near, far) = (end(), end());
    let inbox = Inbox::new(&far, 3, 64);
    inbox.post(&far, 0..3);
    let all = UdPeer { addr: [127, 255, 255, 255].into(), ..peer_of(&far) };
    let list = [(1, all), (2, peer_of(&far)), (3, all), (4, all), (5, peer_of(&far))]
        .map(|(id, to)| inline(id, b"message", to));
    near.qp.post_sends(&list).unwrap();
    assert!((1..=5).all(|id| near.success().wr_id == id));
    assert_eq!((near.qp.state(), near.qp.counters().dropped), (QpState::ReadyToSend, 3));
    assert!((0..2).all(|_| far.success().byte_len == 47));
}

/// A stranger says nothing to a queue pair of unreliable datagrams.
#[test]
fn what_is_cut_or_foreign_or_lies_is_dropped() {
    let far = end();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let number = |addr: SocketAddr| u32::from(addr.port()) << 8 | 9;
    let front = |to: u32, from: u32, qkey: u32| {
        let words = [1 << 24 | to, from, qkey, 0];
        [&words.map(u32::to_be_bytes).concat()[..], b"message"].concat()
    };
    let (to, from) = (far.qp.num().0, number(stranger.local_addr().unwrap()));
    let whole = front(to, from, KEY);
    let mut bad: Vec<Vec<u8>> = (0..16).map(|len| whole[..len].to_vec()).collect();
    // Other numbers, another key, a port that is not the stranger's, and no number.
    bad.extend([
        front(to ^ 1, from, KEY),
        front(to, from, KEY ^ 1),
        front(to, from ^ 0x100, KEY),
        front(to, 0, KEY),
    ]);
    // Other versions, flags that mean nothing, and a value that is none.
    bad.extend([(0, 0), (0, 2), (4, 4), (4, 0xff), (15, 1)].map(|(at, octet)| {
        let mut other = whole.clone();
        other[at] = octet;
        other
    }));
    bad.push(vec![0xff; 65_507]);
    // Without a receive nothing is delivered either.
    bad.push(whole.clone());
    for octets in &bad {
        stranger.send_to(octets, addr_of(&far)).unwrap();
    }
    await_dropped(&far, bad.len() as u64);
    let inbox = Inbox::new(&far, 1, 64);
    inbox.post(&far, 0..1);
    let right = [&whole[..16], b"right"].concat();
    for octets in bad.iter().take(bad.len() - 1).chain([&right]) {
        stranger.send_to(octets, addr_of(&far)).unwrap();
    }
    assert_eq!(inbox.next(&far, 0).1, b"right");
    await_dropped(&far, 2 * bad.len() as u64 - 1);
}

#[test]
fn a_message_that_is_too_long_fills_its_receive_and_a_shared_one_serves_all() {
    let (near, far) = (end(), end());
    let inbox = Inbox::new(&far, 1, 8);
    inbox.post(&far, 0..1);
    near.qp.post_send(&inline(1, b"0123456789", peer_of(&far))).unwrap();
    let done = far.next();
    assert_eq!((done.status, done.source), (Status::MessageTooLong, NonZeroU32::new(near.qp.num().0)));
    assert_eq!(inbox.message(0, done.byte_len).1, b"01234567");

    let rnic = Rnic::open().unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
    let srq = pd.create_srq(SrqConfig { max_recv: 16, ..SrqConfig::default() });
    let make = |low: u32| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let num = QpNum(u32::from(socket.local_addr().unwrap().port()) << 8 | low);
        let config = QpConfig {
            transport: Transport::Unreliable,
            srq: Some(srq.clone()),
            num: Some(num),
            ..QpConfig::new(&cq)
        };
        let qp = pd.create_qp(&config).unwrap();
        qp.bind_to(socket, &DatagramOptions::default()).unwrap();
        qp
    };
    let qps = [make(1), make(2)];
    let region = pd.allocate(128, rddp_rnic::Access::LOCAL_WRITE).unwrap();
    for qp in &qps {
        srq.post_recv(rddp_rnic::RecvWr::one(1, region.whole())).unwrap();
        let addr = qp.local_addr().unwrap().ip();
        near.qp.post_send(&inline(1, b"shared", UdPeer { addr, qp: qp.num(), qkey: 0 })).unwrap();
        assert_eq!(next(&cq), (Status::Success, qp.num(), 46));
    }
}

fn next(cq: &CompletionQueue) -> (Status, QpNum, u32) {
    assert!(cq.wait(Some(PATIENCE)).unwrap(), "no completion came");
    let done = cq.poll_one().unwrap();
    (done.status, done.qp, done.byte_len)
}

#[test]
fn numbers_without_a_port_and_other_requests_are_refused() {
    let end = end();
    for num in [None, Some(QpNum(0x55)), Some(QpNum(0x100_0000))] {
        let config = QpConfig { transport: Transport::Unreliable, num, ..QpConfig::new(&end.cq) };
        assert!(end.pd.create_qp(&config).is_err(), "{num:?}");
    }
    let plain = SendWr::datagram(1, Gather::Inline(b"plain".to_vec()), addr_of(&end));
    assert!(end.qp.post_send(&plain).is_err());
    assert!(super::bound().qp.post_send(&inline(1, b"by number", peer_of(&end))).is_err());
    std::thread::sleep(MOMENT);
    assert_eq!(end.qp.counters().dropped, 0);
}
