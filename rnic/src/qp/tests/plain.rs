//! Segments by the short way, and those that a condition alone keeps from it: both arrive alike.

use rddp_rdma::{Completed, Sge};
use rddp_rdmap::{TerminateCode, tagged_header, untagged_header};
use rddp_test_support::{Peer, pattern};

use super::*;
use crate::{Completion, MemoryRegion, Status};

struct End {
    /// Closed first: else the device would wait for it.
    peer: Peer,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    inbox: MemoryRegion,
}

const ACCESS: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);

fn end() -> End {
    let rnic = Rnic::open().unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
    let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
    let peer = Peer::new(attached(&qp), negotiated());
    let inbox = pd.allocate(1 << 17, ACCESS).unwrap();
    End { peer, pd, cq, qp, inbox }
}

impl End {
    fn post(&self, id: u64, pieces: &[Sge]) {
        self.qp.post_recv(RecvWr::new(id, pieces.to_vec())).unwrap();
    }

    fn completion(&self) -> Completion {
        assert!(self.cq.wait(Some(PATIENCE)).unwrap());
        self.cq.poll_one().unwrap()
    }

    fn octets(&self, at: usize, len: usize) -> Vec<u8> {
        self.inbox.read(at, len).unwrap()
    }
}

/// A receive of one piece is for the short way, one whose first piece is too small is not; so with
/// a message that is long.
#[test]
fn sends_fill_one_receive_each_whichever_way_they_go() {
    let mut end = end();
    let piece = |at: usize, len: usize| end.inbox.sge(at..at + len);
    let lists =
        [vec![piece(0, 64)], vec![piece(100, 10), piece(200, 54)], vec![piece(300, 64), piece(400, 9)]];
    for (id, list) in lists.iter().enumerate() {
        end.post(id as u64, list);
    }
    end.post(3, &[piece(1000, 70_000)]);
    end.post(4, &[piece(500, 64)]);
    (1..=3).for_each(|seed| end.peer.send_message(&pattern(64, seed)));
    end.peer.send_message(&pattern(50_000, 4));
    end.peer.send_message(&pattern(1, 5));
    for (id, len) in [64, 64, 64, 50_000, 1].into_iter().enumerate() {
        let completion = end.completion();
        let (completed, status) = (Completed::Receive, Status::Success);
        let told = (completion.wr_id, completion.byte_len, completion.completed, completion.status);
        assert_eq!(told, (id as u64, len, completed, status));
        assert_eq!((completion.invalidated, completion.immediate, completion.solicited), (None, None, false));
        assert_eq!(completion.qp, end.qp.num());
    }
    assert_eq!(end.octets(0, 65), [pattern(64, 1), vec![0]].concat());
    assert_eq!([end.octets(100, 10), end.octets(200, 54)].concat(), pattern(64, 2));
    assert_eq!(end.octets(110, 90), [0; 90]);
    assert_eq!((end.octets(300, 64), end.octets(400, 9)), (pattern(64, 3), vec![0; 9]));
    assert_eq!(end.octets(1000, 50_000), pattern(50_000, 4));
    assert_eq!(end.octets(500, 2), [pattern(1, 5), vec![0]].concat());
    assert_eq!(end.qp.counters().fpdus_received, 5);
}

/// RFC 5041 §7.1: a message that is too long for its receive, or finds none, is not placed.
#[test]
fn a_send_beyond_its_receive_and_one_without_are_refused() {
    for (room, code) in [(Some(63), 0x1205), (None, 0x1202)] {
        let mut end = end();
        if let Some(room) = room {
            end.post(1, &[end.inbox.sge(0..room)]);
        }
        end.peer.send_message(&pattern(64, 1));
        if room.is_some() {
            assert_eq!(end.completion().status, Status::MessageTooLong);
        }
        assert_eq!(end.peer.terminate_code(), TerminateCode(code));
        assert_eq!(end.octets(0, 64), [0; 64]);
    }
}

/// draft-hilland-rddp-verbs §8.3.2: memory that was deregistered since it was posted is this side's
/// fault.
#[test]
fn a_receive_whose_memory_is_gone_completes_with_the_reason() {
    let mut end = end();
    let gone = end.pd.allocate(64, Access::LOCAL_WRITE).unwrap();
    end.post(1, &[gone.whole()]);
    drop(gone);
    end.peer.send_message(&pattern(64, 1));
    assert_eq!(end.completion().status, Status::LocalProtection);
}

/// A peer's Writes need the right to write, and inside of the region; the last segment tells the
/// octets of all to the Immediate Data behind it.
#[test]
fn writes_are_placed_and_counted_whichever_way_they_go() {
    let mut end = end();
    let at = |offset: usize| end.inbox.remote(offset);
    let stag = at(0).stag;
    for (offset, len, last) in [(0, 100, false), (100, 40_000, false), (40_100, 7, true)] {
        let header = tagged_header(Opcode::Write, stag, at(offset).to, last);
        end.peer.send_segment(&header, &pattern(len, 7));
    }
    end.post(1, &[]);
    let header = untagged_header(Opcode::ImmediateSolicited, Stag(0), Msn(1), 0, true);
    end.peer.send_segment(&header, &[0; 8]);
    let completion = end.completion();
    assert_eq!((completion.byte_len, completion.solicited), (40_107, true));
    let written = [pattern(100, 7), pattern(40_000, 7), pattern(7, 7)].concat();
    assert_eq!(end.octets(0, 40_108), [written, vec![0]].concat());
    let header = tagged_header(Opcode::Write, stag, at(end.inbox.len() - 3).to, true);
    end.peer.send_segment(&header, &[1; 4]);
    assert_eq!(end.peer.terminate_code(), TerminateCode(0x1101));
    assert_eq!(end.octets(end.inbox.len() - 3, 3), [0; 3]);
}

#[test]
fn a_write_without_the_right_is_refused() {
    for access in [Access::LOCAL_WRITE, Access::LOCAL_WRITE | Access::REMOTE_READ] {
        let mut end = end();
        let closed = end.pd.allocate(64, access).unwrap();
        let remote = closed.remote(0);
        end.peer.send_segment(&tagged_header(Opcode::Write, remote.stag, remote.to, true), &[1; 4]);
        assert!(end.peer.ended().is_some());
        assert_eq!(closed.read(0, 4).unwrap(), [0; 4]);
    }
}

#[test]
fn a_solicited_send_says_so() {
    let mut end = end();
    end.post(1, &[end.inbox.sge(0..64)]);
    let header = untagged_header(Opcode::SendSolicited, Stag(0), Msn(1), 0, true);
    end.peer.send_segment(&header, &[1; 4]);
    assert!(end.completion().solicited);
}

/// RFC 5044 §4.4: nothing of an FPDU with a wrong CRC is placed, and its receive stays.
#[test]
fn a_damaged_send_or_write_is_not_placed() {
    for is_write in [false, true] {
        let mut end = end();
        end.post(1, &[end.inbox.sge(0..64)]);
        let remote = end.inbox.remote(0);
        let write = tagged_header(Opcode::Write, remote.stag, remote.to, true);
        let mut fpdu =
            if is_write { end.peer.frame_segment(&write, &[1; 4]) } else { end.peer.frame_message(&[1; 4]) };
        let at = fpdu.len() - 5;
        fpdu[at] ^= 1;
        end.peer.octets(&fpdu);
        assert_eq!(end.completion().status, Status::Flushed);
        assert_eq!(end.peer.terminate_code(), TerminateCode(0x2002));
        assert_eq!(end.octets(0, 4), [0; 4]);
    }
}
