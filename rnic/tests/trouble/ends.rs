//! FIN in every state (draft-hilland-rddp-verbs §6.2), and octets that still arrive afterwards.

use std::io::Write;
use std::time::{Duration, Instant};

use rddp_rdmap::{Opcode, TerminateCode};
use rddp_rnic::{Access, AsyncEventKind, QpState, RecvWr, Remote, SendWr, Stag, Status};
use rddp_test_support::{Peer, segment};

use crate::common::raw::{self, BOTH, Role, with_plain_raw};
use crate::common::{ALL, End, PATIENCE};

const NOWHERE: Remote = Remote { stag: Stag(1), to: 0 };

fn established(end: &End, role: Role) {
    if role == Role::Passive {
        assert_eq!(end.event(), AsyncEventKind::Established);
    }
}

#[test]
fn a_fin_with_nothing_pending_is_a_graceful_close() {
    for role in BOTH {
        let (end, mut raw) = with_plain_raw(role);
        established(&end, role);
        let inbox = end.region(8, Access::LOCAL_WRITE);
        end.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
        raw.fin();
        assert_eq!(raw.recv(), None, "no Terminate, only a FIN");
        assert_eq!(end.event(), AsyncEventKind::CloseComplete);
        assert_eq!((end.qp.state(), end.qp.terminate_sent()), (QpState::Idle, None));
        assert_eq!(end.completions_of([1])[0].status, Status::Flushed);
    }
}

#[test]
fn our_graceful_close_ends_in_idle() {
    for role in BOTH {
        let (end, mut raw) = with_plain_raw(role);
        established(&end, role);
        end.qp.disconnect();
        assert_eq!((end.qp.state(), raw.recv()), (QpState::Closing, None));
        raw.fin();
        assert_eq!(end.event(), AsyncEventKind::CloseComplete);
        assert_eq!(end.qp.state(), QpState::Idle);
    }
}

/// Checks for a bad close: Terminate 0x0207, behind the octets that TCP had begun to take.
fn is_a_bad_close(end: &End, raw: &mut Peer, ids: std::ops::Range<u64>) {
    assert_eq!(raw.terminate_code(), TerminateCode::CATASTROPHIC_STREAM);
    end.event_like(|event| *event == AsyncEventKind::BadClose);
    end.await_state(QpState::Error);
    let completions = end.completions_of(ids);
    assert!(completions.iter().any(|completion| completion.status == Status::Flushed), "{completions:?}");
    assert_eq!(end.qp.terminate_sent().unwrap().code, TerminateCode::CATASTROPHIC_STREAM);
}

#[test]
fn a_fin_with_a_send_queued_is_a_bad_close() {
    let (end, mut raw) = with_plain_raw(Role::Passive);
    let source = end.region(4 << 20, Access::empty());
    for id in 0..16 {
        end.qp.post_send(&SendWr::send(id, source.whole())).unwrap();
    }
    raw.fin();
    end.event_like(|event| *event == AsyncEventKind::BadClose);
    assert_eq!(raw.terminate_code(), TerminateCode::CATASTROPHIC_STREAM);
    end.await_state(QpState::Error);
    let completions = end.completions_of(0..16);
    assert_eq!(completions[15].status, Status::Flushed);
}

#[test]
fn a_fin_with_a_read_of_the_peers_in_service_is_a_bad_close() {
    let (end, mut raw) = with_plain_raw(Role::Passive);
    let source = end.region(64 << 20, ALL);
    raw.send(&raw::read_from(1, &source, 64 << 20));
    let mut answered = raw.expect(Opcode::ReadResponse).1.len();
    raw.fin();
    end.event_like(|event| *event == AsyncEventKind::BadClose);
    let mut terminate = None;
    while let Some(ulpdu) = raw.recv() {
        match ulpdu[1] & 0xf {
            2 => answered += ulpdu.len() - 14,
            _ => terminate = Some(ulpdu),
        }
    }
    assert!(answered < 64 << 20, "the Read was answered in full");
    assert_eq!(terminate.expect("no Terminate")[18..20], [0x02, 0x07]);
    end.await_state(QpState::Error);
}

#[test]
fn a_fin_with_a_read_of_ours_outstanding_is_a_bad_close() {
    for role in BOTH {
        let (end, mut raw) = with_plain_raw(role);
        let sink = end.region(64, Access::LOCAL_WRITE);
        end.qp.post_send(&SendWr::read(0, sink.whole(), NOWHERE)).unwrap();
        raw.read_request();
        raw.fin();
        is_a_bad_close(&end, &mut raw, 0..1);
    }
}

/// RFC 5044 §8 code 1: nothing of a half FPDU is delivered.
#[test]
fn a_fin_in_the_middle_of_an_fpdu_is_a_bad_close() {
    for len in [4, 60_000] {
        let (end, mut raw) = with_plain_raw(Role::Active);
        let inbox = end.region(len, Access::LOCAL_WRITE);
        end.qp.post_recv(RecvWr::one(0, inbox.whole())).unwrap();
        let octets = raw.frame(&segment::send(1, 0, true, &vec![1; len]));
        raw.octets(&octets[..octets.len() - 1]);
        raw.fin();
        is_a_bad_close(&end, &mut raw, 0..1);
    }
}

/// draft-hilland-rddp-verbs §6.2.3: a receive is in use, though no FPDU is cut off.
#[test]
fn a_fin_inside_a_message_is_a_bad_close() {
    for role in BOTH {
        let (end, mut raw) = with_plain_raw(role);
        let inbox = end.region(8, Access::LOCAL_WRITE);
        end.qp.post_recv(RecvWr::one(0, inbox.whole())).unwrap();
        raw.send(&segment::send(1, 0, false, b"half"));
        raw.fin();
        is_a_bad_close(&end, &mut raw, 0..1);
    }
}

#[test]
fn disconnecting_with_work_outstanding_resets() {
    let (end, mut raw) = with_plain_raw(Role::Active);
    let sink = end.region(64, Access::LOCAL_WRITE);
    end.qp.post_send(&SendWr::read(0, sink.whole(), NOWHERE)).unwrap();
    raw.read_request();
    end.qp.disconnect();
    assert_eq!(end.event(), AsyncEventKind::BadClose);
    assert_eq!(end.qp.state(), QpState::Error);
    assert_eq!(end.completions_of([0])[0].status, Status::Flushed);
    assert_eq!(raw.recv(), None);
}

/// draft-hilland-rddp-verbs §6.2: any segment that arrives in Closing makes it a bad close.
#[test]
fn a_segment_in_closing_is_a_bad_close() {
    let (end, mut raw) = with_plain_raw(Role::Active);
    end.qp.disconnect();
    assert_eq!(raw.recv(), None);
    raw.send(&segment::write(Stag(0), 0, true, b""));
    assert_eq!(end.event(), AsyncEventKind::BadClose);
    assert_eq!(end.qp.state(), QpState::Error);
}

/// draft-hilland-rddp-verbs §6.2: so does work that is posted in Closing.
#[test]
fn work_posted_in_closing_is_a_bad_close() {
    let (end, _raw) = with_plain_raw(Role::Active);
    end.qp.disconnect();
    end.qp.post_send(&SendWr::send_inline(7, b"late")).unwrap();
    assert_eq!(end.event(), AsyncEventKind::BadClose);
    assert_eq!((end.qp.state(), end.completions_of([7])[0].status), (QpState::Error, Status::Flushed));
}

#[test]
fn a_receive_posted_in_closing_is_flushed() {
    let (end, raw) = with_plain_raw(Role::Active);
    let inbox = end.region(8, Access::LOCAL_WRITE);
    end.qp.disconnect();
    end.qp.post_recv(RecvWr::one(7, inbox.whole())).unwrap();
    assert_eq!(end.completions_of([7])[0].status, Status::Flushed);
    raw.fin();
    assert_eq!(end.event(), AsyncEventKind::CloseComplete);
}

/// RFC 5040 §6.2.1: TCP loses a Terminate if the socket is closed with octets unread. Neither the
/// octets that the peer still sends nor those that it has not read may cause that.
#[test]
fn a_terminate_reaches_a_peer_that_is_still_sending() {
    for role in BOTH {
        let (end, mut raw) = with_plain_raw(role);
        let source = end.region(2 << 20, Access::empty());
        end.qp.post_send(&SendWr::write(1, source.whole(), NOWHERE)).unwrap();
        let (target, payload) = (end.region(60_000, ALL), vec![3; 60_000]);
        let mut backlog = raw.frame(&segment::write(Stag(0x9999_9999), 0, true, b"bad"));
        for _ in 0..16 {
            backlog.extend(raw.frame(&raw::write_to(&target, 0, &payload)));
        }
        // Nearly the MiB that is drained; nothing is read before all of it is sent.
        raw.octets(&backlog);
        assert_eq!(raw.terminate_code(), TerminateCode::TAGGED_INVALID_STAG);
        assert_eq!(target.read(0, 60_000).unwrap(), vec![0; 60_000], "placed behind a fault");
        raw.fin();
        end.await_state(QpState::Error);
    }
}

/// RFC 5042 §6.4.2: reading on behind a Terminate is limited, in octets and in time.
#[test]
fn reading_on_behind_a_terminate_is_bounded() {
    let (end, mut raw) = with_plain_raw(Role::Passive);
    raw.send(&segment::write(Stag(0x9999_9999), 0, true, b"bad"));
    let (begin, chunk) = (Instant::now(), vec![0; 1 << 20]);
    let mut sent = 0;
    while raw.socket.write_all(&chunk).is_ok() {
        sent += chunk.len();
        assert!(begin.elapsed() < PATIENCE && sent < 1 << 30, "{sent} octets are still taken");
    }
    end.await_state(QpState::Error);
    end.event_like(|event| *event == AsyncEventKind::BadClose);
    // A MiB, and what one turn of reading takes.
    assert!(end.qp.counters().octets_received < 4 << 20, "{:?}", end.qp.counters());
}

/// RFC 5040 §5.4, RFC 5041 §7.1: one Terminate, and whatever comes behind the first fault is
/// dropped without a word.
#[test]
fn everything_behind_the_first_fault_is_dropped() {
    let (end, mut raw) = with_plain_raw(Role::Passive);
    let (target, inbox) = (end.region(64, ALL), end.region(64, Access::LOCAL_WRITE));
    end.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    let bad = segment::write(Stag(0x9999_9999), 0, true, b"bad");
    let other = segment::send(9, 0, true, b"also bad");
    let good = raw::write_to(&target, 0, b"good");
    let terminate = segment::terminate(TerminateCode::LOCAL_CATASTROPHIC);
    raw.send_all(&[&bad, &good, &other, &bad, &terminate]);
    assert_eq!(raw.terminate_code(), TerminateCode::TAGGED_INVALID_STAG);
    raw.send_all(&[&good, &bad]);
    raw.fin();
    end.await_state(QpState::Error);
    assert_eq!(target.read(0, 4).unwrap(), [0; 4]);
    assert_eq!(end.completions_of([1])[0].status, Status::Flushed);
    let faults = end.rnic.async_events();
    assert_eq!(faults.filter(|event| matches!(event.kind, AsyncEventKind::Fault(_))).count(), 1);
}

/// Work posted after the end of a connection is flushed at once (draft-hilland-rddp-verbs §6.2).
#[test]
fn work_posted_behind_the_end_is_flushed() {
    let (end, raw) = with_plain_raw(Role::Active);
    let inbox = end.region(8, Access::LOCAL_WRITE);
    end.qp.terminate();
    for state in [QpState::Terminate, QpState::Error] {
        assert_eq!(end.qp.state(), state);
        end.qp.post_send(&SendWr::send_inline(1, b"late")).unwrap();
        end.qp.post_recv(RecvWr::one(2, inbox.whole())).unwrap();
        assert!(end.completions_of([1, 2]).iter().all(|completion| completion.status == Status::Flushed));
        let _ = raw.socket.shutdown(std::net::Shutdown::Both);
        std::thread::sleep(Duration::from_millis(1));
        end.await_state(QpState::Error);
    }
}
