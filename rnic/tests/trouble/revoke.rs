//! Memory that is revoked while it is in use (RFC 5042 §6.2.2): from then on no octet of it
//! changes, and its users get an error.

use std::sync::atomic::{AtomicBool, Ordering};

use rddp_rdmap::{Opcode, TerminateCode};
use rddp_rnic::{
    Access, AsyncEventKind, Completed, MemoryRegion, QpState, RecvWr, Remote, SendWr, Stag, Status,
};
use rddp_test_support::{pattern, segment};

use crate::common::guarded::Guarded;
use crate::common::raw::{self, BOTH, Role, client_server, with_plain_raw};
use crate::common::{ALL, End, at_once, connect_on};

const REMOTE: Remote = Remote { stag: Stag(1), to: 0 };

/// Ways to revoke a region: by its owner, by a request of the same QP.
const WAYS: [fn(&End, &MemoryRegion); 2] = [
    |_, region| region.deregister().unwrap(),
    |end, region| {
        end.qp.post_send(&SendWr::invalidate(99, region.stag())).unwrap();
        assert_eq!(end.success().completed, Completed::Invalidate);
    },
];

#[test]
fn the_target_of_a_write_goes_between_two_segments() {
    for role in BOTH {
        for revoke in WAYS {
            let (end, mut raw) = with_plain_raw(role);
            let target = Guarded::new(&end.pd, 64, ALL);
            let remote = target.region.remote(0);
            raw.send(&segment::write(remote.stag, remote.to, false, b"first"));
            raw.send(&raw::read_from(1, &target.region, 5));
            assert_eq!(raw.expect(Opcode::ReadResponse).1, b"first");
            revoke(&end, &target.region);
            raw.send(&segment::write(remote.stag, remote.to + 5, true, b"second"));
            assert_eq!(raw.terminate_code(), TerminateCode::TAGGED_INVALID_STAG);
            assert_eq!(target.octets()[..8], *b"first\0\0\0");
        }
    }
}

/// RFC 5040 §4.8, RFC 5042 §6.3.3: nothing more is read, and the Terminate shows how far the Read
/// had come.
#[test]
fn the_source_of_a_read_goes_while_it_is_served() {
    for role in BOTH {
        for revoke in WAYS {
            let (end, mut raw) = with_plain_raw(role);
            let source = end.region(64 << 20, ALL);
            raw.send(&raw::read_from(1, &source, 64 << 20));
            let mut got = raw.expect(Opcode::ReadResponse).1.len();
            at_once("revoking", || revoke(&end, &source));
            assert!(!source.is_valid());
            let mut last = None;
            while let Some(ulpdu) = raw.recv() {
                if ulpdu[1] & 0xf == Opcode::ReadResponse as u8 {
                    got += ulpdu.len() - 14;
                }
                last = Some(ulpdu);
            }
            let last = last.unwrap();
            let terminate = rddp_rdmap::TerminateRepr::parse(&last[18..]).unwrap();
            assert_eq!((last[1], terminate.code), (0x47, TerminateCode::INVALID_STAG));
            let request = terminate.read_request.unwrap();
            assert!(got < 64 << 20);
            assert_eq!(request.size as usize, (64 << 20) - got);
            assert_eq!(request.src_to, source.base() + got as u64);
            assert_eq!(request.sink_to, 0x2000 + got as u64);
        }
    }
}

/// The memory of a receive or of this end's own Read, of small messages and of those that are
/// received straight into place.
#[test]
fn a_sink_goes_in_the_middle_of_its_message() {
    for (read, len) in [(false, 40), (true, 40), (false, 60_000), (true, 60_000)] {
        let (end, mut raw) = with_plain_raw(Role::Passive);
        let sink = Guarded::new(&end.pd, 2 * len, Access::LOCAL_WRITE);
        let sge = sink.region.whole();
        let payload = pattern(len, 1);
        let (first, second) = if read {
            end.qp.post_send(&SendWr::read(0, sge, REMOTE)).unwrap();
            raw.read_request();
            let second = segment::response(sge.stag, sge.addr + len as u64, true, &payload);
            (segment::response(sge.stag, sge.addr, false, &payload), second)
        } else {
            end.qp.post_recv(RecvWr::one(0, sge)).unwrap();
            (segment::send(1, 0, false, &payload), segment::send(1, len as u32, true, &payload))
        };
        let other = end.region(8, ALL);
        raw.send(&first);
        raw.send(&raw::read_from(1, &other, 0));
        raw.expect(Opcode::ReadResponse);
        at_once("deregistering", || sink.region.deregister().unwrap());
        raw.send(&second);
        assert_eq!(raw.terminate_code(), TerminateCode::LOCAL_CATASTROPHIC);
        assert_eq!(end.completions_of([0])[0].status, Status::LocalProtection);
        let mut expected = payload.clone();
        expected.resize(2 * len, 0);
        assert!(sink.octets() == expected, "octets changed after deregistering");
    }
}

/// A sink is revoked in the middle of one FPDU, half of which has been received straight into
/// memory.
#[test]
fn a_sink_goes_in_the_middle_of_an_fpdu() {
    for read in [false, true] {
        let (end, mut raw) = with_plain_raw(Role::Passive);
        let sink = Guarded::new(&end.pd, 60_000, Access::LOCAL_WRITE);
        let sge = sink.region.whole();
        let octets = if read {
            end.qp.post_send(&SendWr::read(0, sge, REMOTE)).unwrap();
            raw.read_request();
            raw.frame(&segment::response(sge.stag, sge.addr, true, &pattern(60_000, 1)))
        } else {
            end.qp.post_recv(RecvWr::one(0, sge)).unwrap();
            raw.frame(&segment::send(1, 0, true, &pattern(60_000, 1)))
        };
        raw.octets(&octets[..30_000]);
        let deadline = std::time::Instant::now() + crate::common::PATIENCE;
        while end.qp.counters().octets_received < 30_000 {
            assert!(std::time::Instant::now() < deadline);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        at_once("deregistering", || sink.region.deregister().unwrap());
        let before = sink.octets();
        raw.octets(&octets[30_000..]);
        assert_eq!(raw.terminate_code(), TerminateCode::LOCAL_CATASTROPHIC);
        assert_eq!(end.completions_of([0])[0].status, Status::LocalProtection);
        assert!(sink.octets() == before, "octets changed after deregistering");
        end.event_like(|event| matches!(event, AsyncEventKind::Fault(_)));
        assert_eq!(end.qp.state(), QpState::Terminate);
    }
}

/// RFC 5040 §8.1.1: after revocation has returned, no packet changes the memory; the peer writes
/// all the time.
#[test]
fn nothing_changes_after_revocation_has_returned() {
    for round in 0..20 {
        let (active, passive) = (End::new(), End::new());
        connect_on("127.0.0.1:0", &active, &passive, &client_server(), &client_server());
        let target = Guarded::new(&passive.pd, 100_000, ALL);
        let remote = target.region.remote(0);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let sources =
                    [active.region(100_000, Access::empty()), active.region(100_000, Access::empty())];
                sources[0].write(0, &[0x11; 100_000]).unwrap();
                sources[1].write(0, &[0x22; 100_000]).unwrap();
                for turn in 0.. {
                    let wr = SendWr::write(turn, sources[turn as usize % 2].whole(), remote).unsignaled();
                    if stop.load(Ordering::Relaxed) || active.qp.state() != QpState::ReadyToSend {
                        return;
                    }
                    let _ = active.qp.post_send(&wr);
                    let _ = active.cq.poll_one();
                }
            });
            let deadline = std::time::Instant::now() + crate::common::PATIENCE;
            while target.octets()[0] == 0 {
                assert!(std::time::Instant::now() < deadline);
            }
            std::thread::sleep(std::time::Duration::from_micros(300 * round));
            at_once("deregistering", || target.region.deregister().unwrap());
            let before = target.octets();
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert!(target.octets() == before, "octets changed after deregistering");
            stop.store(true, Ordering::Relaxed);
        });
        target.assert_guards();
    }
}

/// RFC 5040 §5.3: an invalidation by the peer revokes the memory for all streams
/// before the receive completes.
#[test]
fn a_remote_invalidation_is_in_force_when_the_receive_completes() {
    let (end, mut raw) = with_plain_raw(Role::Passive);
    let target = Guarded::new(&end.pd, 64, ALL);
    let inbox = end.region(8, Access::LOCAL_WRITE);
    end.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    let (write, stag) = (raw::write_to(&target.region, 0, b"late"), target.region.stag());
    raw.send_all(&[
        &raw::write_to(&target.region, 0, b"good"),
        &segment::send_invalidate(1, stag, b"done"),
        &write,
    ]);
    assert_eq!(end.success().invalidated, Some(stag));
    assert!(!target.region.is_valid());
    assert_eq!(raw.terminate_code(), TerminateCode::TAGGED_INVALID_STAG);
    assert_eq!(target.octets()[..4], *b"good");
}

/// RFC 5040 §8.1.1: a peer may invalidate only an STag whose owner allowed it.
#[test]
fn a_peer_may_not_invalidate_what_was_not_given_for_that() {
    let (end, mut raw) = with_plain_raw(Role::Active);
    let shared = end.region(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ);
    let inbox = end.region(8, Access::LOCAL_WRITE);
    end.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    raw.send(&segment::send_invalidate(1, shared.stag(), b"done"));
    assert_eq!(raw.terminate_code(), TerminateCode::CANNOT_INVALIDATE_PROTECTION);
    assert_eq!(end.completions_of([1])[0].status, Status::RemoteInvalidate);
    assert!(shared.is_valid());
}

/// A peer stops reading in the middle of the last FPDU that was posted: an invalidation behind it
/// is done nevertheless, and the Write that was begun completes when the peer reads again.
#[test]
fn an_invalidation_behind_a_started_fpdu_leaves_it_to_complete() {
    const LEN: usize = 20_000;
    let (end, mut raw) = with_plain_raw(Role::Active);
    let (source, other) = (end.region(LEN, Access::empty()), end.region(8, ALL));
    let (mut posted, mut sent) = (0, 0);
    // One FPDU each; until TCP takes some of one, and not all.
    loop {
        end.qp.post_send(&SendWr::write(posted, source.whole(), REMOTE)).unwrap();
        posted += 1;
        let before = std::mem::replace(&mut sent, end.qp.counters().octets_sent);
        match sent - before {
            // It took none of this one, which is begun later: once more, when the peer has read
            // some.
            0 => drop(raw.expect(Opcode::Write)),
            taken if taken < LEN as u64 => break,
            _ => {}
        }
        while let Some(completion) = end.cq.poll_one() {
            assert_eq!(completion.status, Status::Success);
        }
        sent = end.qp.counters().octets_sent;
    }
    end.qp.post_send(&SendWr::invalidate(posted, other.stag())).unwrap();
    assert!(!other.is_valid(), "the invalidation waits for the peer");
    let last = loop {
        if raw.is_silent(std::time::Duration::from_millis(20)) {
            break end.next();
        }
        raw.expect(Opcode::Write);
    };
    assert_eq!((last.wr_id, last.status), (posted - 1, Status::Success));
    assert_eq!((end.success().wr_id, end.qp.state()), (posted, QpState::ReadyToSend));
}
