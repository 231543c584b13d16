//! Peers that send or read slowly, or stop.

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rddp_rdmap::{AtomicRequestRepr, Opcode, TerminateCode};
use rddp_rnic::{
    Access, AsyncEventKind, Completed, Completion, MemoryRegion, PostError, QpState, RecvWr, Remote, SendWr,
    Stag, Status,
};
use rddp_test_support::{Peer, pattern, plain, segment};

use crate::common::raw::{self, BOTH, Role, client_server, connect_raw, open_for, with_plain_raw, with_raw};
use crate::common::{ALL, End, at_once, connect_on};

/// RFC 5044 §5.2: TCP may cut the stream anywhere, between any two octets of any message.
#[test]
fn every_operation_arrives_one_octet_at_a_time() {
    for role in BOTH {
        for markers in [false, true] {
            let options = rddp_rnic::ConnectOptions { markers, ..client_server() };
            let (end, mut raw) = with_raw(role, &options, &plain());
            open_for(&mut raw, &end);
            trickled(&end, &mut raw);
        }
    }
}

fn trickled(end: &End, raw: &mut Peer) {
    let region = end.region(64, ALL);
    let inbox = end.region(128, Access::LOCAL_WRITE);
    for id in 0..3 {
        end.qp.post_recv(RecvWr::one(id, inbox.whole())).unwrap();
    }
    raw.trickle(&segment::send(1, 0, false, b"one mess"));
    raw.trickle(&raw::write_to(&region, 3, b"written"));
    raw.trickle(&segment::send(1, 8, true, b"age"));
    assert_eq!((end.success().byte_len, inbox.read(0, 11).unwrap()), (11, b"one message".to_vec()));
    assert_eq!(region.read(3, 7).unwrap(), b"written");
    raw.trickle(&raw::read_from(1, &region, 10));
    assert_eq!(raw.expect(Opcode::ReadResponse).1, b"\0\0\0written");
    raw.trickle(&raw::fetch_add(2, &region, 1));
    raw.expect(Opcode::AtomicResponse);
    let remote = Remote { stag: Stag(1), to: 2 };
    end.qp.post_send(&SendWr::read(10, inbox.sge(100..104), remote)).unwrap();
    let request = raw.read_request();
    raw.trickle(&segment::response(request.sink_stag, request.sink_to, false, b"ab"));
    raw.trickle(&segment::response(request.sink_stag, request.sink_to + 2, true, b"cd"));
    assert_eq!((end.success().completed, inbox.read(100, 4).unwrap()), (Completed::Read, b"abcd".to_vec()));
    end.qp.post_send(&SendWr::fetch_add(11, inbox.sge(104..112), remote, 1)).unwrap();
    let request = AtomicRequestRepr::parse(&raw.expect(Opcode::AtomicRequest).1).unwrap();
    raw.trickle(&segment::atomic_response(1, request.request_id, 77));
    assert_eq!(
        (end.success().completed, inbox.read(104, 8).unwrap()),
        (Completed::FetchAdd, 77u64.to_ne_bytes().to_vec())
    );
    raw.trickle(&segment::send_invalidate(2, region.stag(), b"gone"));
    assert_eq!(end.success().invalidated, Some(region.stag()));
    raw.trickle(&segment::terminate(TerminateCode::LOCAL_CATASTROPHIC));
    end.event_like(|event| matches!(event, AsyncEventKind::TerminateReceived(_)));
    assert_eq!(end.next().status, Status::Flushed);
}

/// Large FPDUs, which are received straight into place, may arrive in pieces.
#[test]
fn large_fpdus_arrive_in_pieces() {
    for role in BOTH {
        let (end, mut raw) = with_plain_raw(role);
        let inbox = end.region(60_000, Access::LOCAL_WRITE);
        for (msn, piece) in [(1, 977), (2, 4096), (3, 20_000), (4, 59_999)] {
            let payload = pattern(60_000, msn as u8);
            // Three pieces, to fill across the borders of scatter elements.
            let scatter = vec![inbox.sge(0..1), inbox.sge(1..30_001), inbox.sge(30_001..60_000)];
            end.qp.post_recv(RecvWr::new(u64::from(msn), scatter)).unwrap();
            for part in raw.frame(&segment::send(msn, 0, true, &payload)).chunks(piece) {
                raw.octets(part);
                std::thread::sleep(Duration::from_micros(200));
            }
            assert_eq!(end.success().byte_len, 60_000);
            assert!(inbox.read(0, 60_000).unwrap() == payload);
        }
        assert!(end.qp.counters().octets_placed_directly > 0, "the way of large payloads was not taken");
    }
}

/// RFC 5042 §6.4.2: a peer that stops in the middle of an FPDU delays no other, and may go on.
#[test]
fn half_an_fpdu_and_silence_stalls_nobody_else() {
    for len in [50, 60_000] {
        let (stalled, mut raw) = with_plain_raw(Role::Passive);
        let inbox = stalled.region(len, Access::LOCAL_WRITE);
        stalled.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
        let octets = raw.frame(&segment::send(1, 0, true, &pattern(len, 1)));
        let (first, rest) = octets.split_at(octets.len() / 2);
        raw.octets(first);
        // On the same device, PD and CQ.
        goes_on(&stalled);
        assert_eq!(stalled.qp.state(), QpState::ReadyToSend);
        raw.octets(rest);
        assert_eq!(stalled.success().byte_len as usize, len);
        assert!(inbox.read(0, len).unwrap() == pattern(len, 1));
    }
}

/// Sends a hundred messages on another connection of the same device.
pub fn goes_on(beside: &End) {
    let (active, passive) = (End::new(), beside.sibling());
    connect_on("127.0.0.1:0", &active, &passive, &client_server(), &client_server());
    let inbox = passive.region(64, Access::LOCAL_WRITE);
    for id in 1000..1100 {
        passive.qp.post_recv(RecvWr::one(id, inbox.whole())).unwrap();
        active.qp.post_send(&SendWr::send_inline(id, b"still here")).unwrap();
        assert_eq!(passive.success().wr_id, id);
        assert_eq!(active.success().wr_id, id);
    }
}

/// Returns an end with Writes that wait for a peer that has stopped reading.
pub(crate) fn stalled(role: Role) -> (End, Peer, MemoryRegion) {
    let (end, raw) = with_plain_raw(role);
    let source = end.region(4 << 20, Access::empty());
    let remote = Remote { stag: Stag(1), to: 0 };
    for id in 0..16 {
        end.qp.post_send(&SendWr::write(id, source.whole(), remote)).unwrap();
    }
    let mut last = 0;
    // Until TCP takes no more.
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let sent = end.qp.counters().octets_sent;
        if std::mem::replace(&mut last, sent) == sent {
            return (end, raw, source);
        }
    }
}

/// RFC 5042 §6.4.2: this end's messages to it wait, its own still arrive, and others go on.
#[test]
fn a_peer_that_stops_reading_stalls_its_own_sends_only() {
    let (end, mut raw, _source) = stalled(Role::Passive);
    let early: Vec<_> = end.cq.completions().collect();
    assert!(early.len() < 16, "TCP took all of it");
    let inbox = end.region(64, Access::LOCAL_WRITE);
    for msn in 1..20 {
        end.qp.post_recv(RecvWr::one(100, inbox.whole())).unwrap();
        raw.send(&segment::send(msn, 0, true, b"I do not read, I write"));
        assert_eq!(end.success().wr_id, 100);
    }
    goes_on(&end);
    // It reads again: everything arrives, each FPDU whole.
    let mut octets = 0;
    while octets < 16 * (4 << 20) {
        octets += raw.expect(Opcode::Write).1.len();
    }
    let late = end.completions_of(early.len() as u64..16);
    assert!(late.iter().all(|completion| completion.status == Status::Success));
}

/// RFC 5042 §6.4.2: no call waits for a peer that has stopped reading, and everything completes
/// once.
#[test]
fn leaving_a_peer_that_stops_reading_takes_no_time() {
    let ways: [fn(&End); 3] = [|end| end.qp.abort(), |end| end.qp.disconnect(), |end| end.qp.terminate()];
    for leave in ways {
        let (end, _raw, _source) = stalled(Role::Active);
        at_once("leaving", || leave(&end));
        let completions = end.completions_of(0..16);
        let flushed = completions.iter().skip_while(|completion| completion.status == Status::Success);
        assert!(flushed.clone().count() > 0);
        assert!(flushed.clone().all(|completion| completion.status == Status::Flushed), "{completions:?}");
    }
    let (end, _raw, _source) = stalled(Role::Active);
    let End { cq, qp, .. } = end;
    at_once("dropping the QP", || drop(qp));
    let mut ids: Vec<_> = cq.completions().map(|completion| completion.wr_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, Vec::from_iter(0..16));
}

/// Deregistering waits for no peer: an FPDU that TCP has begun is finished from a copy, the rest
/// fails.
#[test]
fn deregistering_what_a_stalled_peer_waits_for_takes_no_time() {
    let ways: [fn(MemoryRegion) -> Option<MemoryRegion>; 2] = [
        |region| {
            region.deregister().unwrap();
            Some(region)
        },
        |region| {
            drop(region);
            None
        },
    ];
    for end_region in ways {
        let (end, mut raw, source) = stalled(Role::Passive);
        source.write(0, &vec![0x77; 4 << 20]).unwrap();
        let _kept = at_once("deregistering", || end_region(source));
        // Every FPDU is intact: the deframer checks each CRC.
        let mut terminate = None;
        while let Some(ulpdu) = raw.recv() {
            terminate = Some(ulpdu).filter(|ulpdu| ulpdu[1] == 0x47);
        }
        let terminate = terminate.expect("no Terminate at the end");
        assert_eq!(terminate[18..], [0, 0, 0, 0], "a local error names no segment");
        let completions = end.completions_of(0..16);
        let bad: Vec<_> = completions.iter().filter(|c| c.status == Status::LocalProtection).collect();
        assert_eq!(bad.len(), 1, "{completions:?}");
        assert!(completions[bad[0].wr_id as usize + 1..].iter().all(|c| c.status == Status::Flushed));
        drop(raw);
        end.await_state(QpState::Error);
    }
}

/// draft-hilland-rddp-verbs §6.2: Closing and Terminate end by a timer when the peer does not
/// close.
#[test]
fn a_peer_that_does_not_close_is_left_by_the_timer() {
    let begin = Instant::now();
    let (closing, mut raw_closing) = with_plain_raw(Role::Active);
    closing.qp.disconnect();
    assert_eq!(closing.qp.state(), QpState::Closing);
    let (terminating, mut raw_terminating) = with_plain_raw(Role::Active);
    terminating.qp.terminate();
    assert_eq!(raw_terminating.terminate_code(), TerminateCode::LOCAL_CATASTROPHIC);
    let (deaf, _raw_deaf, _source) = stalled(Role::Active);
    deaf.qp.terminate();
    assert_eq!(raw_closing.recv(), None);
    for end in [&closing, &terminating, &deaf] {
        end.await_state(QpState::Error);
    }
    assert!(begin.elapsed() >= Duration::from_secs(4), "the peer had no time to close");
    assert_eq!(
        closing.event_like(|event| *event != AsyncEventKind::Established),
        AsyncEventKind::ConnectionLost
    );
    for end in [&terminating, &deaf] {
        end.event_like(|event| matches!(event, AsyncEventKind::Fault(_)));
        assert_eq!(end.event(), AsyncEventKind::BadClose);
    }
}

/// TCP takes some of them in part, wherever its memory ends.
#[test]
fn short_messages_to_a_slow_peer_arrive_whole_and_complete_in_order() {
    const COUNT: u64 = 20_000;
    let end = End::with(|config| config.max_send = 64);
    let mut raw = connect_raw(Role::Passive, &end, &client_server(), &plain());
    open_for(&mut raw, &end);
    let source = end.region(1024, ALL);
    let octets: Vec<u8> = (0..1024).map(|at| (at % 251) as u8).collect();
    source.write(0, &octets).unwrap();
    let payload = |id: u64| &octets[..(1 + id * 37 % if id.is_multiple_of(3) { 512 } else { 1024 }) as usize];
    let is_full = AtomicBool::new(false);
    let done: Vec<Completion> = std::thread::scope(|scope| {
        let posting = scope.spawn(|| {
            let mut done = Vec::new();
            for id in 0..COUNT {
                let wr = match payload(id) {
                    inline if id.is_multiple_of(3) => SendWr::send_inline(id, inline),
                    lent => SendWr::send(id, source.sge(0..lent.len())),
                };
                while let Err(refused) = end.qp.post_send(&wr) {
                    assert!(matches!(refused, PostError::QueueFull { .. }), "{refused}");
                    is_full.store(true, Ordering::Relaxed);
                    done.extend(end.cq.completions());
                }
                done.extend(end.cq.completions());
            }
            while done.len() < COUNT as usize {
                done.push(end.next());
            }
            done
        });
        while !is_full.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        for id in 0..COUNT {
            assert!(raw.expect(Opcode::Send).1 == payload(id), "message {id}");
        }
        posting.join().unwrap()
    });
    assert!(done.iter().all(|done| done.status == Status::Success));
    assert!(done.iter().map(|done| done.wr_id).eq(0..COUNT));
}

/// draft-hilland-rddp-verbs §6.2: what completed before a graceful close arrives, also at a peer
/// that reads for longer than one that reads nothing is waited for.
#[test]
fn a_peer_that_reads_slowly_gets_all_that_was_sent_before_a_disconnect() {
    let (end, raw) = with_plain_raw(Role::Active);
    let mut socket = raw.socket.try_clone().unwrap();
    let reading = std::thread::spawn(move || {
        let (mut octets, mut count) = (vec![0; 60_000], 0);
        loop {
            std::thread::sleep(Duration::from_millis(250));
            match socket.read(&mut octets).unwrap() {
                0 => return count,
                some => count += some,
            }
        }
    });
    let region = end.region(1 << 20, Access::empty());
    for id in 0..2 {
        end.qp.post_send(&SendWr::send(id, region.whole())).unwrap();
        end.success();
    }
    end.qp.disconnect();
    assert!(reading.join().unwrap() > 2 << 20);
}
