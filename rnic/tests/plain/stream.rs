//! One stream of octets both ways, and its ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use rddp_rnic::{
    Access, AsyncEventKind, Completed, ConnectError, ConnectOptions, PostError, QpConfig, QpState, RecvWr,
    Remote, Rnic, RnicConfig, SendWr, Stag, Status, Transport,
};
use rddp_test_support::{Random, pattern};

use super::common::{End, PATIENCE};
use super::{MOMENT, connected, end, over_tcp};

const LEN: usize = 300_000;

/// Takes the receives of `sizes`, one behind the other in a region that begins at 0.
fn post_all(end: &End, region: &rddp_rnic::MemoryRegion, sizes: &[usize], full: bool) {
    let mut at = 0;
    for (id, size) in sizes.iter().enumerate() {
        let wr = RecvWr::one(id as u64, region.sge(at..at + size));
        end.qp.post_recv(if full { wr.until_full() } else { wr }).unwrap();
        at += size;
    }
}

/// Writes `octets` cut by seed.
fn write_in_pieces(peer: &mut TcpStream, mut octets: &[u8], random: &mut Random) {
    while !octets.is_empty() {
        let (now, later) = octets.split_at((1 + random.below(20_000)).min(octets.len()));
        peer.write_all(now).unwrap();
        octets = later;
    }
}

#[test]
fn full_receives_are_full_however_the_stream_is_cut() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let end = End::with(|config| {
            over_tcp(config);
            config.max_recv = LEN;
        });
        let mut peer = connected(&end, seed % 2 == 0);
        let mut sizes = Vec::new();
        while sizes.iter().sum::<usize>() < LEN {
            let left = LEN - sizes.iter().sum::<usize>();
            sizes.push((1 + random.below(9000)).min(left));
        }
        let inbox = end.region(LEN, Access::LOCAL_WRITE);
        let octets = pattern(LEN, seed as u8);
        let late = random.below(2) == 0;
        if late {
            write_in_pieces(&mut peer, &octets[..LEN / 2], &mut random);
        }
        post_all(&end, &inbox, &sizes, true);
        write_in_pieces(&mut peer, &octets[if late { LEN / 2 } else { 0 }..], &mut random);
        for (id, size) in sizes.iter().enumerate() {
            let done = end.success();
            assert_eq!((done.wr_id, done.byte_len as usize), (id as u64, *size));
            assert_eq!(done.completed, Completed::Receive);
        }
        assert!(inbox.read(0, LEN).unwrap() == octets, "seed {seed}");
    }
}

#[test]
fn other_receives_complete_with_whatever_has_come() {
    let end = end();
    let mut peer = connected(&end, true);
    let inbox = end.region(LEN, Access::LOCAL_WRITE);
    let octets = pattern(LEN, 1);
    let writer = std::thread::spawn({
        let octets = octets.clone();
        move || {
            write_in_pieces(&mut peer, &octets, &mut Random::new(7));
            peer
        }
    });
    let mut have = 0;
    while have < LEN {
        let to = (have + 5000).min(LEN);
        end.qp.post_recv(RecvWr::one(1, inbox.sge(have..to))).unwrap();
        let done = end.success();
        assert!((1..=to - have).contains(&(done.byte_len as usize)));
        have += done.byte_len as usize;
    }
    assert!(inbox.read(0, LEN).unwrap() == octets);
    drop(writer.join().unwrap());
}

/// Without a receive nothing is read, and a peer that goes on is held by TCP.
#[test]
fn octets_without_a_receive_wait() {
    let end = end();
    let mut peer = connected(&end, false);
    peer.write_all(b"early").unwrap();
    std::thread::sleep(MOMENT);
    assert_eq!(end.qp.counters().octets_received, 0);
    let inbox = end.region(16, Access::LOCAL_WRITE);
    end.qp.post_recv(RecvWr::one(1, inbox.sge(0..5)).until_full()).unwrap();
    assert_eq!(end.success().byte_len, 5);
    assert_eq!(inbox.read(0, 5).unwrap(), b"early");
}

/// Messages that arrive together take one call and not one each.
#[test]
fn short_messages_are_read_many_at_a_time() {
    let end = End::with(|config| {
        over_tcp(config);
        config.max_recv = 64;
    });
    let mut peer = connected(&end, true);
    let inbox = end.region(64 * 64, Access::LOCAL_WRITE);
    post_all(&end, &inbox, &[64; 64], true);
    peer.write_all(&pattern(64 * 64, 5)).unwrap();
    for id in 0..64 {
        assert_eq!((end.success().wr_id, end.qp.counters().octets_received), (id, 64 * 64));
    }
    assert!(inbox.read(0, 64 * 64).unwrap() == pattern(64 * 64, 5));
}

/// Octets that were read ahead are kept for receives to come, and the FIN behind them waits, too.
#[test]
fn octets_ahead_wait_for_receives() {
    let end = end();
    let mut peer = connected(&end, false);
    let inbox = end.region(300, Access::LOCAL_WRITE);
    peer.write_all(&pattern(300, 9)).unwrap();
    drop(peer);
    std::thread::sleep(MOMENT);
    for at in [0, 100, 200] {
        end.qp.post_recv(RecvWr::one(at as u64, inbox.sge(at..at + 100)).until_full()).unwrap();
        let done = end.success();
        assert_eq!((done.wr_id, done.byte_len), (at as u64, 100));
        assert_eq!(end.qp.counters().octets_received, 300);
        assert_eq!(end.qp.state(), QpState::ReadyToSend);
    }
    assert!(inbox.read(0, 300).unwrap() == pattern(300, 9));
    end.qp.post_recv(RecvWr::one(1, inbox.sge(0..1))).unwrap();
    assert_eq!(end.next().status, Status::Flushed);
}

/// Octets that are read ahead count as partial FPDUs do, until their connection ends.
#[test]
fn memory_for_octets_ahead_has_a_limit() {
    let rnic = Rnic::with_config(&RnicConfig { max_partial: 40_000, ..Default::default() }).unwrap();
    let fresh = || {
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16).unwrap());
        let mut config = QpConfig::new(&cq);
        over_tcp(&mut config);
        let qp = pd.create_qp(&config).unwrap();
        End { rnic: rnic.clone(), pd, cq, qp }
    };
    let received = |end: &End, peer: &mut TcpStream| {
        let inbox = end.region(300, Access::LOCAL_WRITE);
        peer.write_all(&pattern(50_000, 2)).unwrap();
        std::thread::sleep(MOMENT);
        for at in [0, 100, 200] {
            end.qp.post_recv(RecvWr::one(1, inbox.sge(at..at + 100))).unwrap();
            assert_eq!(end.success().byte_len, 100);
        }
        assert!(inbox.read(0, 300).unwrap() == pattern(300, 2));
        end.qp.counters().octets_received
    };
    for active in [true, false, true] {
        let (first, second) = (fresh(), fresh());
        let (mut a, mut b) = (connected(&first, active), connected(&second, active));
        assert_eq!((received(&first, &mut a), received(&second, &mut b)), (50_000, 300));
    }
}

#[test]
fn sends_are_written_as_they_are() {
    let end = end();
    let mut peer = connected(&end, true);
    let source = end.region(LEN, Access::empty());
    source.write(0, &pattern(LEN, 3)).unwrap();
    let gather = vec![source.sge(0..10), source.sge(10..100_000), source.sge(100_000..LEN)];
    let list = [
        SendWr::send_inline(1, b"hello, "),
        SendWr::send_inline(2, b""),
        SendWr::send(3, gather),
        SendWr::send_inline(4, b"bye"),
    ];
    end.qp.post_sends(&list).unwrap();
    let mut octets = vec![0; 7 + LEN + 3];
    peer.read_exact(&mut octets).unwrap();
    assert_eq!((&octets[..7], &octets[7 + LEN..]), (&b"hello, "[..], &b"bye"[..]));
    assert!(octets[7..7 + LEN] == pattern(LEN, 3));
    for id in 1..=4 {
        assert_eq!(end.success().wr_id, id);
    }
    let counters = end.qp.counters();
    assert_eq!((counters.octets_sent, counters.fpdus_sent), (octets.len() as u64, 0));
}

/// Either direction ends by itself, in either order.
#[test]
fn each_direction_ends_by_itself() {
    for peer_first in [true, false] {
        let end = end();
        let mut peer = connected(&end, peer_first);
        let inbox = end.region(64, Access::LOCAL_WRITE);
        post_all(&end, &inbox, &[8, 8, 8], true);
        if peer_first {
            // The second receive is filled in part, the third not at all.
            peer.write_all(b"01234567abc").unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
            assert_eq!(end.success().byte_len, 8);
            let flushed = [end.next(), end.next()].map(|done| (done.status, done.byte_len));
            assert_eq!(flushed, [(Status::EndOfStream, 3), (Status::Flushed, 0)]);
            assert_eq!(inbox.read(8, 3).unwrap(), b"abc");
            // A receive that is posted now is flushed at once, and Sends go on.
            end.qp.post_recv(RecvWr::one(9, inbox.sge(0..8))).unwrap();
            assert_eq!((end.next().status, end.qp.state()), (Status::Flushed, QpState::ReadyToSend));
            end.qp.post_send(&SendWr::send_inline(4, b"answer")).unwrap();
            assert_eq!(end.success().wr_id, 4);
            end.qp.disconnect();
            let mut rest = Vec::new();
            peer.read_to_end(&mut rest).unwrap();
            assert_eq!(rest, b"answer");
        } else {
            end.qp.post_send(&SendWr::send_inline(4, b"question")).unwrap();
            end.qp.disconnect();
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            assert_eq!((&all[..], end.success().wr_id), (&b"question"[..], 4));
            assert_eq!(end.qp.state(), QpState::Closing);
            // Receives go on, those posted before and those posted now.
            end.qp.post_recv(RecvWr::one(3, inbox.sge(24..32)).until_full()).unwrap();
            peer.write_all(b"0123456789abcdef0123456789ABCDEF").unwrap();
            assert_eq!([0; 4].map(|_| end.success().wr_id), [0, 1, 2, 3]);
            drop(peer);
        }
        assert_eq!(
            end.event_like(|kind| *kind == AsyncEventKind::CloseComplete),
            AsyncEventKind::CloseComplete
        );
        assert_eq!(end.qp.state(), QpState::Idle);
        assert!(end.cq.poll_one().is_none());
    }
}

/// A FIN follows all that was posted before, however slow the peer is.
#[test]
fn a_close_waits_for_what_is_queued() {
    let end = end();
    let mut peer = connected(&end, true);
    let source = end.region(LEN, Access::empty());
    (0..50).for_each(|id| end.qp.post_send(&SendWr::send(id, source.whole())).unwrap());
    end.qp.disconnect();
    let mut octets = 0;
    let mut chunk = vec![0; 1 << 20];
    loop {
        match peer.read(&mut chunk).unwrap() {
            0 => break,
            count => octets += count,
        }
    }
    assert_eq!(octets, 50 * LEN);
    (0..50).for_each(|id| assert_eq!(end.success().wr_id, id));
}

#[test]
fn a_peer_that_resets_is_lost() {
    let end = end();
    let peer = connected(&end, true);
    let inbox = end.region(8, Access::LOCAL_WRITE);
    end.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    socket2::SockRef::from(&peer).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(peer);
    assert_eq!(end.next().status, Status::Flushed);
    end.event_like(|kind| *kind == AsyncEventKind::ConnectionLost);
    assert_eq!(end.qp.state(), QpState::Error);
}

/// This end's faults cannot be told to the peer: TCP is reset.
#[test]
fn memory_that_is_no_good_ends_the_connection() {
    for receives in [true, false] {
        let end = end();
        let mut peer = connected(&end, true);
        let region = end.region(8, Access::LOCAL_WRITE);
        let sge = region.whole();
        let source = end.region(64 << 20, Access::empty());
        if receives {
            end.qp.post_recv(RecvWr::one(1, sge)).unwrap();
            region.deregister().unwrap();
            peer.write_all(b"octets").unwrap();
        } else {
            // More than TCP takes stands before it.
            end.qp.post_sends(&[SendWr::send(0, source.whole()), SendWr::send(1, sge)]).unwrap();
            region.deregister().unwrap();
        }
        let reader = std::thread::spawn(move || drain(peer));
        let done = loop {
            let done = end.next();
            if done.status != Status::Success {
                break done;
            }
        };
        assert_eq!((done.wr_id, done.status), (1, Status::LocalProtection));
        end.await_state(QpState::Error);
        assert_eq!(reader.join().unwrap(), ErrorKind::ConnectionReset);
    }
}

/// Reads until the connection ends, and returns with which error.
fn drain(mut peer: TcpStream) -> ErrorKind {
    let mut chunk = vec![0; 1 << 20];
    loop {
        match peer.read(&mut chunk) {
            Ok(0) => panic!("ended in order"),
            Ok(_) => {}
            Err(error) => return error.kind(),
        }
    }
}

/// Requests that plain TCP has not are refused when they are posted, and so are private data.
#[test]
fn requests_that_the_wire_has_not_are_refused() {
    let end = end();
    let region = end.region(8, Access::LOCAL_WRITE);
    let remote = Remote { stag: Stag(1), to: 0 };
    let refused = [
        SendWr::write(1, region.whole(), remote),
        SendWr::read(1, region.whole(), remote),
        SendWr::fetch_add(1, region.whole(), remote, 1),
        SendWr::immediate(1, [0; 8]),
        SendWr::send_invalidate(1, vec![region.whole()], Stag(1)),
    ];
    for wr in &refused {
        assert_eq!(end.qp.post_send(wr), Err(PostError::Transport), "{wr:?}");
    }
    let iwarp = end.sibling();
    let full = RecvWr::one(1, region.whole()).until_full();
    assert_eq!(iwarp.qp.post_recv(full), Err(PostError::Transport));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let data = ConnectOptions { private_data: b"hello".to_vec(), ..ConnectOptions::default() };
    let error = end.qp.connect(listener.local_addr().unwrap(), &data).unwrap_err();
    assert!(matches!(error, ConnectError::PrivateData), "{error}");
}

#[test]
fn a_connection_of_another_wire_is_refused() {
    let end = end();
    let iwarp = end.sibling();
    let options = ConnectOptions::default();
    let listener = end.rnic.listen_by(Transport::Tcp, "127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let request = listener.accept(Some(PATIENCE)).unwrap().unwrap();
    assert!(matches!(request.accept(&iwarp.qp, b""), Err(ConnectError::Transport)));
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
}
