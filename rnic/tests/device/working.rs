//! Requests and receives, and what wakes a program for them.

use std::time::{Duration, Instant};

use rddp_rnic::{Access, Completed, PostError, QpConfig, QpState, RecvWr, SendWr, Status};

use crate::support::{End, Kind, PATIENCE, completion, host, quirk};

const KINDS: [Kind; 3] = [Kind::Siw, Kind::Rxe, Kind::Adapter];

#[test]
fn messages_are_carried_both_ways() {
    for kind in KINDS {
        let host = host(&format!("messages{}", kind as u8), kind, 0);
        let end = host.end();
        let inbox = end.pd.allocate(64, Access::LOCAL_WRITE).unwrap();
        // Posted before there is a connection.
        end.qp.post_recv(RecvWr::one(1, inbox.sge(..8))).unwrap();
        let mut peer = host.connect(&end);
        assert_eq!(end.qp.state(), QpState::ReadyToSend);
        let memory = host.memory(64);
        memory.write(0, b"hello, world");
        peer.post_receive(&RecvWr::one(2, memory.piece(32, 32))).unwrap();
        peer.post_send(&SendWr::send(3, memory.piece(0, 5)).unsignaled()).unwrap();
        let received = end.next();
        assert_eq!((received.wr_id, received.status, received.byte_len), (1, Status::Success, 5), "{kind:?}");
        assert_eq!(inbox.read(0, 5).unwrap(), b"hello");
        // Posted while there is one.
        end.qp.post_recv(RecvWr::one(4, inbox.sge(8..16))).unwrap();
        peer.post_send(&SendWr::send(5, memory.piece(7, 5)).unsignaled()).unwrap();
        let received = end.next();
        assert_eq!((received.wr_id, received.qp), (4, end.qp.num()));
        assert_eq!(inbox.read(8, 5).unwrap(), b"world");
        end.qp.post_send(&SendWr::send(6, inbox.sge(8..13))).unwrap();
        let sent = end.next();
        assert_eq!((sent.wr_id, sent.status, sent.completed), (6, Status::Success, Completed::Send));
        assert_eq!(completion(&mut peer).wr_id, 2);
        let mut octets = [0; 5];
        memory.read(32, &mut octets);
        assert_eq!(&octets, b"world");
    }
}

/// A completion that has come between the last poll and the request for an event causes none, and
/// events come without one. A program that sleeps is woken by what there is.
#[test]
fn a_program_that_sleeps_is_woken_whatever_comes_between() {
    for (name, quirks) in [("late", quirk::LATE), ("idle", quirk::IDLE_EVENTS), ("slow", quirk::SLOW)] {
        for kind in [Kind::Siw, Kind::Rxe] {
            let host = host(&format!("{name}{}", kind as u8), kind, quirks);
            let (end, mut peer) = host.pair();
            let inbox = end.pd.allocate(8, Access::LOCAL_WRITE).unwrap();
            let memory = host.memory(8);
            for round in 0..6 {
                end.qp.post_recv(RecvWr::one(round, inbox.whole())).unwrap();
                peer.post_receive(&RecvWr::one(round, memory.piece(0, 8))).unwrap();
                end.qp.post_send(&SendWr::send(100, inbox.sge(..1)).unsignaled()).unwrap();
                assert_eq!(completion(&mut peer).wr_id, round);
                peer.post_send(&SendWr::send(round, memory.piece(0, 1)).unsignaled()).unwrap();
                assert_eq!(end.next().wr_id, round, "{name}, {kind:?}");
            }
        }
    }
}

/// An event that nobody takes would wake the program for ever.
#[test]
fn a_program_that_sleeps_is_left_alone_behind_a_message() {
    for kind in KINDS {
        let host = host(&format!("quiet{}", kind as u8), kind, 0);
        let (end, mut peer) = host.pair();
        end.qp.post_recv(RecvWr::new(1, [])).unwrap();
        peer.post_send(&SendWr::send(2, Vec::new()).unsignaled()).unwrap();
        assert_eq!(end.next().wr_id, 1);
        let before = host.looks();
        assert!(!end.cq.wait(Some(Duration::from_millis(50))).unwrap());
        let looks = host.looks() - before;
        assert!(looks < 20, "{kind:?}: {looks} looks while nothing came");
    }
}

/// A device does not tell which messages are solicited: who waits for those alone would sleep on.
#[test]
fn who_waits_for_solicited_messages_is_woken_by_each() {
    for kind in KINDS {
        let host = host(&format!("solicited{}", kind as u8), kind, 0);
        let channel = host.rnic.create_channel().unwrap();
        let (pd, cq) = (host.rnic.alloc_pd(), host.rnic.create_cq_on(&channel, 16).unwrap());
        let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
        let end = End { qp, cq, pd };
        let mut peer = host.connect(&end);
        end.qp.post_recv(RecvWr::new(1, [])).unwrap();
        end.cq.arm(true);
        peer.post_send(&SendWr::send_inline(1, b"").solicited()).unwrap();
        assert!(channel.wait(Some(PATIENCE)).unwrap().is_some(), "{kind:?}: nothing woke the program");
        assert_eq!(end.next().completed, Completed::Receive);
    }
}

/// A device of hardware frees places of its queue when a later request that is signaled completes,
/// and at no other time.
#[test]
fn requests_that_nobody_is_told_of_never_fill_the_queue_for_good() {
    for kind in KINDS {
        let host = host(&format!("silent{}", kind as u8), kind, 0);
        let (end, _peer) = host.pair();
        let there = host.memory(8);
        let region = end.pd.allocate(8, Access::LOCAL_WRITE).unwrap();
        let write = SendWr::write(1, region.whole(), there.remote().unwrap()).unsignaled();
        let since = Instant::now();
        for _ in 0..100 {
            while let Err(refused) = end.qp.post_send(&write) {
                assert!(since.elapsed() < PATIENCE, "the queue stays full");
                assert_eq!(refused, PostError::QueueFull { capacity: 8 }, "{kind:?}");
                assert!(end.cq.poll_one().is_none(), "success was not asked for");
            }
        }
        end.qp
            .post_send(&SendWr::write(2, region.whole(), there.remote().unwrap()))
            .map_or_else(|_| assert!(end.cq.poll_one().is_none()), |()| assert_eq!(end.next().wr_id, 2));
    }
}

/// The queue of the program is longer than what its device holds at a time.
#[test]
fn inline_octets_beyond_the_device_are_sent_from_memory_of_the_connection() {
    for kind in KINDS {
        let host = host(&format!("inline{}", kind as u8), kind, 0);
        let (end, mut peer) = host.pair();
        let memory = host.memory(512);
        let most = host.rnic.capabilities().max_inline;
        for (round, len) in (0..20).zip([most, 1, 65, 0].into_iter().cycle()) {
            peer.post_receive(&RecvWr::one(round, memory.piece(0, 512))).unwrap();
            end.qp.post_send(&SendWr::send_inline(round, &vec![round as u8; len])).unwrap();
            let received = completion(&mut peer);
            assert_eq!((received.wr_id, received.byte_len as usize), (round, len), "{kind:?}");
            let mut octets = vec![0; len];
            memory.read(0, &mut octets);
            assert_eq!(octets, vec![round as u8; len]);
            assert_eq!(end.next().wr_id, round);
        }
        let long = end.qp.post_send(&SendWr::send_inline(1, &vec![0; most + 1])).unwrap_err();
        assert_eq!(long, PostError::InlineTooLong { len: most + 1, max: most });
    }
}

/// A device may hold fewer requests and receives than the program's queues: the rest wait for it.
#[test]
fn a_device_holds_fewer_requests_than_the_program() {
    for kind in KINDS {
        let host = host(&format!("short{}", kind as u8), kind, quirk::SHORT | quirk::SLOW);
        let mut end = host.end();
        let config = QpConfig { max_send: 16, max_recv: 16, ..QpConfig::new(&end.cq) };
        end.qp = end.pd.create_qp(&config).unwrap();
        (0..8).for_each(|round| end.qp.post_recv(RecvWr::new(round, [])).unwrap());
        let mut peer = host.connect(&end);
        let there = host.memory(8);
        let region = end.pd.allocate(8, Access::LOCAL_WRITE).unwrap();
        let write = SendWr::write(0, region.whole(), there.remote().unwrap());
        for round in 0..8 {
            end.qp.post_send(&SendWr { wr_id: round, ..write.clone() }).unwrap();
        }
        (0..8).for_each(|round| assert_eq!(end.next().wr_id, round, "{kind:?}"));
        for round in 0..8 {
            host.until(|| host.receives() > 0);
            while peer.post_send(&SendWr::send(round, Vec::new()).unsignaled()).is_err() {
                peer.poll(&mut Vec::new()).unwrap();
            }
        }
        (0..8).for_each(|round| assert_eq!(end.next().wr_id, round, "{kind:?}"));
        assert_eq!(end.qp.state(), QpState::ReadyToSend);
    }
}

/// A message is as long as the device's longest at most; Writes and Reads go in parts.
#[test]
fn writes_and_reads_are_longer_than_the_devices_longest_message() {
    const LONG: usize = (8 << 20) + 5;
    let host = host("parts", Kind::Rxe, 0);
    let (end, _peer) = host.pair();
    let there = host.memory(LONG);
    let (from, to) = (
        end.pd.allocate(LONG, Access::LOCAL_WRITE).unwrap(),
        end.pd.allocate(LONG, Access::LOCAL_WRITE).unwrap(),
    );
    let octets: Vec<u8> = (0..LONG).map(|at| (at % 251) as u8).collect();
    from.write(0, &octets).unwrap();
    let place = there.remote().unwrap();
    let pieces = vec![from.sge(..3), from.sge(3..LONG - 2), from.sge(LONG - 2..)];
    end.qp.post_send(&SendWr::write(1, pieces, place)).unwrap();
    end.qp.post_send(&SendWr::read(2, to.whole(), place)).unwrap();
    assert_eq!((end.next().wr_id, end.next().byte_len as usize), (1, LONG));
    assert!(to.read(0, LONG).unwrap() == octets);
    let refused = end.qp.post_send(&SendWr::send(3, from.whole())).unwrap_err();
    assert_eq!(refused, PostError::MessageTooLong { len: LONG as u64 });
}

#[test]
fn what_a_device_lacks_is_refused_when_it_is_posted() {
    let siw = host("lacks", Kind::Siw, 0);
    let (end, _peer) = siw.pair();
    let region = end.pd.allocate(64, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
    let (place, piece) = (region.remote(0), region.sge(..8));
    for request in [
        SendWr::immediate(1, [0; 8]),
        SendWr::fetch_add(1, piece, place, 1),
        SendWr::invalidate(1, region.stag()),
    ] {
        assert_eq!(end.qp.post_send(&request), Err(PostError::Unsupported));
    }
    let max = siw.rnic.capabilities().max_sge;
    let many = end.qp.post_recv(RecvWr::new(1, vec![region.sge(..1); max + 1])).unwrap_err();
    assert_eq!(many, PostError::TooManySges { count: max + 1, max });
}

#[test]
fn atomics_and_immediates_are_those_of_the_device() {
    let rxe = host("atomics", Kind::Rxe, 0);
    let (end, mut peer) = rxe.pair();
    let there = rxe.memory(8);
    there.write(0, &40_u64.to_ne_bytes());
    // An atomic is of eight octets, whatever its sink is.
    let region = end.pd.allocate(16, Access::LOCAL_WRITE).unwrap();
    let place = there.remote().unwrap();
    end.qp.post_send(&SendWr::fetch_add(1, region.whole(), place, 2)).unwrap();
    assert_eq!((end.next().byte_len, region.read_u64(0).unwrap()), (8, 40));
    assert_eq!(end.qp.post_send(&SendWr::immediate(2, [1; 8])), Err(PostError::Unsupported));
    peer.post_receive(&RecvWr::new(3, Vec::new())).unwrap();
    end.qp.post_send(&SendWr::immediate(4, [1, 2, 3, 4, 0, 0, 0, 0])).unwrap();
    assert_eq!(completion(&mut peer).immediate, Some([1, 2, 3, 4, 0, 0, 0, 0]));
}
