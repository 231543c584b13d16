//! Terminates that arrive, well-formed and malformed (RFC 5040 §4.8, §7.1).

use rddp_ddp::{Header, Msn, Qn, TaggedRepr};
use rddp_rdmap::{
    Fault, Offending, Opcode, ReadRequestRepr, TerminateCode, TerminateRepr, terminate_for, untagged_header,
};
use rddp_rnic::{Access, AsyncEventKind, QpState, RecvWr, Remote, SendWr, Stag, Status};
use rddp_test_support::{Peer, segment};

use crate::common::End;
use crate::common::raw::{BOTH, Role, with_plain_raw};

/// Returns an end with a receive (0), a Send that TCP takes (1) and a Read (2) that waits.
fn waiting(role: Role) -> (End, Peer) {
    let (end, mut raw) = with_plain_raw(role);
    let region = end.region(64, Access::LOCAL_WRITE);
    end.qp.post_recv(RecvWr::one(0, region.whole())).unwrap();
    let remote = Remote { stag: Stag(1), to: 0 };
    let list = [SendWr::send_inline(1, b"a"), SendWr::read(2, region.whole(), remote)];
    end.qp.post_sends(&list).unwrap();
    raw.expect(Opcode::Send);
    raw.read_request();
    (end, raw)
}

/// Checks that the connection is over, and that no Terminate was sent.
fn is_over(end: &End, raw: &mut Peer, read: Status) {
    assert_eq!(raw.recv(), None, "a Terminate was answered");
    assert_eq!(end.qp.terminate_sent(), None);
    let statuses: Vec<_> = end.completions_of(0..3).iter().map(|completion| completion.status).collect();
    assert_eq!(statuses, [Status::Flushed, Status::Success, read]);
    raw.fin();
    end.await_state(QpState::Error);
}

#[test]
fn every_code_ends_the_connection_and_is_told() {
    for code in
        TerminateCode::ALL.iter().copied().chain([0x0000, 0x00ff, 0x0200, 0x1301, 0xffff].map(TerminateCode))
    {
        let (end, mut raw) = waiting(Role::Passive);
        raw.send(&segment::terminate(code));
        end.event_like(|event| *event == AsyncEventKind::TerminateReceived(code));
        assert_eq!(end.qp.terminate_received().unwrap().code, code);
        // Codes that say that memory was refused are about the oldest Read.
        let refused = code.0 >> 8 == 0x01 && code != TerminateCode::CANNOT_INVALIDATE_PROTECTION;
        is_over(&end, &mut raw, if refused { Status::RemoteAccess } else { Status::Flushed });
    }
}

/// draft-hilland-rddp-verbs §8.3.3, example V2: only the refused Read ends in an error.
#[test]
fn a_refused_read_is_told_apart() {
    let (end, mut raw) = with_plain_raw(Role::Active);
    let region = end.region(64, Access::LOCAL_WRITE);
    let remote = Remote { stag: Stag(1), to: 0 };
    let list = [
        SendWr::send_inline(0, b"a"),
        SendWr::read(1, region.whole(), remote),
        SendWr::send_inline(2, b"c"),
        SendWr::write_inline(3, b"d", remote),
    ];
    end.qp.post_sends(&list).unwrap();
    (0..4).for_each(|_| drop(raw.segment()));
    let header = untagged_header(Opcode::ReadRequest, Stag(0), Msn(1), 0, true);
    let terminate = TerminateRepr {
        code: TerminateCode::INVALID_STAG,
        segment_len: Some(46),
        header: Some(header),
        read_request: None,
    };
    raw.send(&segment::terminate_with(&terminate));
    let statuses: Vec<_> = end.completions_of(0..4).iter().map(|completion| completion.status).collect();
    assert_eq!(statuses, [Status::Success, Status::RemoteAccess, Status::Flushed, Status::Flushed]);
    assert_eq!(end.qp.terminate_received(), Some(terminate));
}

/// RFC 5040 §4.8: a Terminate about a Send of this end does not blame a Read that is outstanding.
#[test]
fn a_terminate_about_another_message_does_not_blame_the_read() {
    let (end, mut raw) = waiting(Role::Active);
    let header = untagged_header(Opcode::SendInvalidate, Stag(7), Msn(1), 0, true);
    let terminate = TerminateRepr {
        code: TerminateCode::ACCESS_RIGHTS,
        segment_len: Some(22),
        header: Some(header),
        read_request: None,
    };
    raw.send(&segment::terminate_with(&terminate));
    is_over(&end, &mut raw, Status::Flushed);
}

/// Returns the payload of the longest Terminate.
fn longest() -> Vec<u8> {
    let header: Header = untagged_header(Opcode::ReadRequest, Stag(0), Msn(1), 0, true);
    let read_request =
        ReadRequestRepr { sink_stag: Stag(1), sink_to: 2, size: 3, src_stag: Stag(4), src_to: 5 };
    let offending = Offending { read_request: Some(read_request), ..Offending::new(header, 28) };
    let fault = Fault::read_source(rddp_rdmap::AccessError::Bounds);
    terminate_for(&fault, Some(&offending)).octets().as_ref().to_vec()
}

/// RFC 5040 §4.8, RFC 5042: every part is optional, whatever M, D and R say, and nothing is
/// answered.
#[test]
fn a_terminate_cut_anywhere_ends_the_connection() {
    let whole = longest();
    assert_eq!(whole.len(), 52);
    for len in 0..=whole.len() {
        let (end, mut raw) = waiting(Role::Passive);
        let header = untagged_header(Opcode::Terminate, Stag(0), Msn(1), 0, true);
        raw.send(&[header.octets().as_ref(), &whole[..len]].concat());
        end.event_like(|event| match event {
            AsyncEventKind::TerminateReceived(code) => *code == TerminateCode::BOUNDS && len >= 4,
            AsyncEventKind::Fault(fault) => matches!(fault, Fault::Terminate(_)) && len < 4,
            _ => false,
        });
        is_over(&end, &mut raw, if len >= 4 { Status::RemoteAccess } else { Status::Flushed });
    }
}

#[test]
fn header_flags_that_lie_harm_nobody() {
    for flags in 0..8u8 {
        for len in [4, 6, 20, 24, 52, 128] {
            let (end, mut raw) = waiting(Role::Passive);
            let mut payload = longest();
            payload.resize(len, 0xff);
            payload[2] = flags << 5;
            let header = untagged_header(Opcode::Terminate, Stag(0), Msn(1), 0, true);
            raw.send(&[header.octets().as_ref(), &payload].concat());
            end.event_like(|event| matches!(event, AsyncEventKind::TerminateReceived(_)));
            raw.fin();
            end.await_state(QpState::Error);
        }
    }
}

/// RFC 5040 §7.1: a malformed Terminate only leads to closing.
#[test]
fn a_misplaced_terminate_is_not_answered() {
    let untagged = |qn, msn, mo, last| {
        let mut header = untagged_header(Opcode::Terminate, Stag(0), Msn(msn), mo, last);
        if let Header::Untagged(header) = &mut header {
            header.qn = Qn(qn);
        }
        header
    };
    let headers = [
        untagged(0, 1, 0, true),
        untagged(1, 1, 0, true),
        untagged(3, 1, 0, true),
        untagged(77, 1, 0, true),
        untagged(2, 0, 0, true),
        untagged(2, 2, 0, true),
        untagged(2, 1, 4, true),
        untagged(2, 1, 0, false),
        TaggedRepr { last: true, rsvd_ulp: 0x47, stag: Stag(1), to: 0 }.into(),
    ];
    for role in BOTH {
        for header in &headers {
            let (end, mut raw) = waiting(role);
            raw.send(&[header.octets().as_ref(), &[0; 4]].concat());
            end.event_like(|event| matches!(event, AsyncEventKind::Fault(Fault::Terminate(_))));
            is_over(&end, &mut raw, Status::Flushed);
        }
    }
    for len in [129, 1000] {
        let (end, mut raw) = waiting(Role::Active);
        raw.send(&[untagged(2, 1, 0, true).octets().as_ref(), &vec![0; len]].concat());
        is_over(&end, &mut raw, Status::Flushed);
    }
}

/// RFC 5040 §7.1, §6.2: both ends fail at once; one Terminate each way, and both end.
#[test]
fn terminates_that_cross_are_not_answered() {
    for role in BOTH {
        let (end, mut raw) = with_plain_raw(role);
        raw.send(&segment::terminate(TerminateCode::LOCAL_CATASTROPHIC));
        end.qp.terminate();
        let mut sent = 0;
        while let Some(ulpdu) = raw.recv() {
            assert_eq!(ulpdu[1], 0x47);
            sent += 1;
        }
        assert!(sent <= 1);
        raw.fin();
        end.await_state(QpState::Error);
        assert_eq!(end.qp.counters().terminates_sent, sent);
    }
}

/// draft-hilland-rddp-verbs §6.2.4: the Terminates of both ends can be read afterwards,
/// until the next connection.
#[test]
fn terminates_are_kept_for_the_program() {
    let (end, mut raw) = waiting(Role::Active);
    raw.send(&segment::terminate(TerminateCode(0x1234)));
    is_over(&end, &mut raw, Status::Flushed);
    assert_eq!(end.qp.terminate_received().unwrap().code, TerminateCode(0x1234));
    assert_eq!(end.qp.counters().terminates_received, 1);
    assert!(end.qp.reset());
    assert_eq!(end.qp.terminate_received(), None);
}
