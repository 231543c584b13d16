//! Peers that ask for more than was agreed on, or than there is.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use rddp_rdmap::{Opcode, TerminateCode};
use rddp_rnic::{Access, ConnectOptions, QpState, RecvWr, SendWr, Stag, Status};
use rddp_test_support::{Peer, pattern, plain, segment};

use crate::common::guarded::Guarded;
use crate::common::raw::{self, BOTH, Role, client_server, open_for, with_plain_raw, with_raw};
use crate::common::{ALL, End, PATIENCE, connect_on};
use crate::slow::goes_on;

/// Returns an end that takes this many Reads at a time.
fn with_ird(role: Role, ird: u16) -> (End, Peer) {
    let options = ConnectOptions { ird, ..client_server() };
    let mut startup = plain();
    startup.ord = ird;
    let (end, mut raw) = with_raw(role, &options, &startup);
    open_for(&mut raw, &end);
    assert_eq!(end.qp.negotiated().unwrap().ird, ird);
    (end, raw)
}

/// RFC 5040 §6.1: IRD at a time, again and again.
#[test]
fn as_many_reads_as_agreed_are_served_again_and_again() {
    for role in BOTH {
        let (end, mut raw) = with_ird(role, 4);
        let source = end.region(5000, ALL);
        source.write(0, &pattern(5000, 1)).unwrap();
        for round in 0..20 {
            let requests: Vec<_> =
                (1..=4).map(|i| raw::read_from(round * 4 + i, &source, 1000 * i)).collect();
            raw.send_all(&requests.iter().map(Vec::as_slice).collect::<Vec<_>>());
            for i in 1..=4usize {
                assert_eq!(raw.expect(Opcode::ReadResponse).1, pattern(1000 * i, 1));
            }
        }
        assert_eq!(end.qp.state(), QpState::ReadyToSend);
    }
}

/// RFC 5040 §6.1: one Read more is refused, whatever state the others are in, and its source is not
/// checked.
#[test]
fn a_read_too_many_is_terminated() {
    for role in BOTH {
        for ird in [0, 1, 2, 8] {
            let (end, mut raw) = with_ird(role, ird);
            let source = end.region(16 << 20, ALL);
            // The peer does not read, so none of the Reads ends.
            for msn in 1..=u32::from(ird) {
                raw.send(&raw::read_from(msn, &source, 16 << 20));
            }
            raw.send(&raw::read_from(u32::from(ird) + 1, &source, 5));
            end.event_like(|event| matches!(event, rddp_rnic::AsyncEventKind::Fault(_)));
            assert_eq!(raw.terminate_code(), TerminateCode::UNTAGGED_MSN_RANGE, "IRD {ird}");
        }
    }
}

/// RFC 7306 §5.2: atomics count among the Reads.
#[test]
fn an_atomic_too_many_is_terminated() {
    let (end, mut raw) = with_ird(Role::Passive, 2);
    let source = end.region(16 << 20, ALL);
    raw.send(&raw::read_from(1, &source, 16 << 20));
    raw.send(&raw::fetch_add(2, &source, 1));
    raw.send(&raw::fetch_add(3, &source, 1));
    end.event_like(|event| matches!(event, rddp_rnic::AsyncEventKind::Fault(_)));
    assert_eq!(raw.terminate_code(), TerminateCode::UNTAGGED_MSN_RANGE);
    assert_eq!(source.read(0, 8).unwrap(), [0; 8], "an atomic out of its turn was done");
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// RFC 5042 §6.2.1, §6.4.4: 46 octets that ask for 4 GiB get a Terminate, and no memory.
#[test]
fn a_read_of_four_gigabytes_of_one_octet_is_terminated() {
    for role in BOTH {
        let (end, mut raw) = with_plain_raw(role);
        let source = end.region(1, ALL);
        raw.send(&raw::read_from(1, &source, u32::MAX));
        let terminate = raw.terminate();
        assert_eq!(terminate.code, TerminateCode::BOUNDS);
        assert_eq!(terminate.read_request.unwrap().size, u32::MAX);
    }
}

/// RFC 5040 §5.2.1: the source is validated whole before anything of it is sent, also when only its
/// end is out of bounds.
#[test]
fn a_read_of_one_octet_too_many_gets_no_octet() {
    for role in BOTH {
        let (end, mut raw) = with_plain_raw(role);
        // Several segments, the first ones of which lie inside.
        let source = end.region(200_000, ALL);
        raw.send(&raw::read_from(1, &source, 200_001));
        raw.expect(Opcode::Terminate);
        assert_eq!(end.qp.terminate_sent().unwrap().code, TerminateCode::BOUNDS);
    }
}

/// RFC 5042 §6.4.4: large Reads are served segment by segment, and no further than the peer reads.
#[test]
fn large_reads_that_nobody_takes_cost_no_memory() {
    let (end, mut raw) = with_ird(Role::Passive, 32);
    let source = end.region(1 << 30, ALL);
    raw.send(&raw::read_from(1, &source, 1));
    raw.expect(Opcode::ReadResponse);
    let before = resident();
    for msn in 2..=33 {
        raw.send(&raw::read_from(msn, &source, 1 << 30));
    }
    raw.expect(Opcode::ReadResponse);
    goes_on(&end);
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} octets for Reads of 32 GiB");
    assert_eq!(end.qp.state(), QpState::ReadyToSend);
}

/// RFC 5042 §6.4.4: operations that cost the peer nothing do not starve others.
#[test]
fn a_flood_of_empty_writes_starves_nobody() {
    let (flooded, mut raw) = with_plain_raw(Role::Passive);
    let (active, passive) = (End::new(), flooded.sibling());
    connect_on("127.0.0.1:0", &active, &passive, &client_server(), &client_server());
    let inbox = passive.region(64, Access::LOCAL_WRITE);
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let burst: Vec<u8> = (0..2000).flat_map(|_| raw.frame(&segment::write(Stag(0), 0, true, b""))).collect();
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let begin = Instant::now();
            while !stop.load(Ordering::Relaxed) && begin.elapsed() < PATIENCE {
                raw.octets(&burst);
                sent.fetch_add(2000, Ordering::Relaxed);
            }
            begin.elapsed() < PATIENCE
        });
        while sent.load(Ordering::Relaxed) < 100_000 {
            std::thread::yield_now();
        }
        for id in 0..20 {
            passive.qp.post_recv(RecvWr::one(id, inbox.whole())).unwrap();
            active.qp.post_send(&SendWr::send_inline(id, b"between")).unwrap();
            assert_eq!((passive.success().wr_id, active.success().wr_id), (id, id));
        }
        stop.store(true, Ordering::Relaxed);
        assert!(flood.join().unwrap(), "the others had to wait for the end of the flood");
    });
    assert_eq!(flooded.qp.state(), QpState::ReadyToSend);
}

/// RFC 5041 §7.1: the octets that fit are placed, none behind them, and the receive ends in an
/// error.
#[test]
fn a_message_longer_than_its_receive_is_terminated() {
    for role in BOTH {
        for (first, second) in [(0, 9), (8, 1), (4, 5), (8, 60_000)] {
            let (end, mut raw) = with_plain_raw(role);
            let inbox = Guarded::new(&end.pd, 8, Access::LOCAL_WRITE);
            end.qp.post_recv(RecvWr::one(0, inbox.region.whole())).unwrap();
            end.qp.post_recv(RecvWr::one(1, inbox.region.whole())).unwrap();
            if first > 0 {
                raw.send(&segment::send(1, 0, false, &vec![1; first]));
            }
            raw.send(&segment::send(1, first as u32, true, &vec![2; second]));
            assert_eq!(raw.terminate_code(), TerminateCode::UNTAGGED_TOO_LONG);
            let completions = end.completions_of([0, 1]);
            assert_eq!(
                [completions[0].status, completions[1].status],
                [Status::MessageTooLong, Status::Flushed]
            );
            inbox.assert_guards();
            let mut expected = vec![0; 8];
            expected[..first].fill(1);
            assert_eq!(inbox.octets(), expected);
        }
    }
}

/// RFC 5041 §7.1, RFC 7306 §6.3: every kind of message on queue 0 needs a receive, empty ones too.
#[test]
fn a_message_without_a_receive_is_terminated() {
    let immediate = |msn| {
        let mut ulpdu = segment::send(msn, 0, true, b"12345678");
        ulpdu[1] = 0x48;
        ulpdu
    };
    for role in BOTH {
        for message in [segment::send(2, 0, true, b""), segment::send(2, 0, true, b"data"), immediate(2)] {
            let (end, mut raw) = with_plain_raw(role);
            end.qp.post_recv(RecvWr::new(1, [])).unwrap();
            raw.send(&segment::send(1, 0, true, b""));
            assert_eq!(end.success().wr_id, 1);
            raw.send(&message);
            assert_eq!(raw.terminate_code(), TerminateCode::UNTAGGED_NO_BUFFER);
        }
    }
}

/// RFC 5040 §6.2.1: octets behind a fault are read, so that TCP does not lose the Terminate; but
/// only up to a limit.
#[test]
fn a_peer_that_writes_on_behind_a_terminate_is_reset() {
    let (end, mut raw) = with_plain_raw(Role::Passive);
    raw.send(&segment::send(1, 0, true, b"no receive"));
    raw.expect(Opcode::Terminate);
    let (chunk, mut taken) = (vec![0; 1 << 20], 0);
    while raw.socket.write_all(&chunk).is_ok() {
        taken += chunk.len();
    }
    // What TCP keeps at either end comes on top.
    assert!(taken <= (64 + 48) << 20, "{taken} octets");
    end.await_state(QpState::Error);
}

/// RFC 5042 §6.3.5: operations of no octets need no right, no STag, no memory.
#[test]
fn empty_operations_need_no_right() {
    let (end, mut raw) = with_plain_raw(Role::Passive);
    for (i, stag) in [0, 1, u32::MAX].into_iter().enumerate() {
        raw.send(&segment::write(Stag(stag), u64::MAX, true, b""));
        let request = rddp_rdmap::ReadRequestRepr {
            sink_stag: Stag(9),
            sink_to: 8,
            size: 0,
            src_stag: Stag(stag),
            src_to: u64::MAX,
        };
        raw.send(&segment::read(i as u32 + 1, &request));
        raw.expect(Opcode::ReadResponse);
    }
    assert_eq!(end.qp.state(), QpState::ReadyToSend);
}
