//! Turns between two flows with much to send: Responses to the peer's Reads, and this end's own
//! messages.

use std::time::{Duration, Instant};

use rddp_ddp::Header;
use rddp_rdmap::Opcode;
use rddp_rnic::{ConnectOptions, MemoryRegion, RecvWr, Remote, SendWr, Stag};
use rddp_test_support::{Peer, pattern};

use crate::common::raw::{self, BOTH, with_plain_raw};
use crate::common::{ALL, End, PATIENCE, connected};

const MIB: usize = 1 << 20;

/// Returns the opcode, the L bit and the payload's length of the next segment.
fn next(raw: &mut Peer) -> (Opcode, bool, usize) {
    let (header, payload) = raw.segment().unwrap();
    let last = match header {
        Header::Tagged(header) => header.last,
        Header::Untagged(header) => header.last,
    };
    (Opcode::from_number(header.control() & 0xf).unwrap(), last, payload.len())
}

/// Has a peer that takes nothing send four Reads: the engine has begun to answer, and TCP is full.
fn four_reads(end: &End, raw: &mut Peer, source: &MemoryRegion, len: u32) {
    let before = end.qp.counters().fpdus_received;
    for msn in 1..=4 {
        raw.send(&raw::read_from(msn, source, len));
    }
    let deadline = Instant::now() + PATIENCE;
    while end.qp.counters().fpdus_received < before + 4 {
        assert!(Instant::now() < deadline, "the Reads are not taken");
        std::thread::sleep(Duration::from_millis(1));
    }
    raw.socket.peek(&mut [0]).unwrap();
}

/// Returns the octets of Responses that arrive before the first segment of another opcode, and how
/// many Responses are complete.
fn before_own(raw: &mut Peer) -> (Opcode, usize, usize) {
    let (mut octets, mut whole) = (0, 0);
    loop {
        let (opcode, last, len) = next(raw);
        if opcode != Opcode::ReadResponse {
            return (opcode, octets, whole);
        }
        octets += len;
        whole += usize::from(last);
    }
}

/// RFC 5041 §5.3 orders messages of one queue only: a Send need not wait for the Responses to Reads
/// that came before it.
#[test]
fn a_send_goes_between_the_segments_of_a_response() {
    for role in BOTH {
        let (end, mut raw) = with_plain_raw(role);
        let source = end.region(16 << 20, ALL);
        four_reads(&end, &mut raw, &source, 16 << 20);
        end.qp.post_send(&SendWr::send_inline(1, &[7; 64])).unwrap();
        let (opcode, octets, _) = before_own(&mut raw);
        assert_eq!(opcode, Opcode::Send);
        // The contents of the two sockets, and the Responses prepared for them.
        assert!(octets < 16 << 20, "{octets} octets of Responses before a Send of 64");
    }
}

/// Receivers in the field take a tagged message inside another tagged one for a fault: a Write
/// waits for the rest of one Response, and not for the next.
#[test]
fn a_write_goes_between_two_responses() {
    let nowhere = Remote { stag: Stag(1), to: 0 };
    // Lengths that end anywhere in the octets prepared at a time, also near their beginning.
    for nth in 0..64 {
        let (end, mut raw) = with_plain_raw(raw::Role::Passive);
        let source = end.region(8 << 20, ALL);
        four_reads(&end, &mut raw, &source, (7 << 20) + nth * 4321);
        end.qp.post_send(&SendWr::write_inline(1, &[7; 64], nowhere)).unwrap();
        let (opcode, _, whole) = before_own(&mut raw);
        assert_eq!((opcode, whole), (Opcode::Write, 1), "{nth}");
    }
}

/// Responses do not wait until this end has nothing of its own to send.
#[test]
fn a_response_goes_between_own_messages() {
    let (end, mut raw) = with_plain_raw(raw::Role::Passive);
    let source = end.region(MIB, ALL);
    for id in 0..64 {
        end.qp.post_send(&SendWr::send(id, source.whole())).unwrap();
    }
    raw.send(&raw::read_from(1, &source, 64));
    let mut own = 0;
    loop {
        match next(&mut raw) {
            (Opcode::ReadResponse, ..) => break,
            (_, last, _) => own += usize::from(last),
        }
    }
    assert!(own < 64, "a Response behind {own} messages");
}

/// RFC 5042 §6.4.4: both ends read and send at once, messages of all lengths, and each octet
/// arrives where it belongs.
#[test]
fn all_arrive_whole_when_both_ends_read_and_send() {
    let (active, passive) = connected(&ConnectOptions::default());
    let ends = [&active, &passive];
    let regions = ends.map(|end| [0, 1, 2].map(|_| end.region(4 * MIB, ALL)));
    for (end, [source, _, inbox]) in ends.iter().zip(&regions) {
        source.write(0, &pattern(4 * MIB, 4)).unwrap();
        for id in 0..16 {
            end.qp.post_recv(RecvWr::one(100 + id, inbox.whole())).unwrap();
        }
    }
    for (i, end) in ends.iter().enumerate() {
        let ([source, sink, _], [from, ..]) = (&regions[i], &regions[1 - i]);
        for round in 0..16 {
            let list = [
                SendWr::read(1, sink.whole(), from.remote(0)),
                SendWr::send(2, source.sge(0..[64, 70_000, MIB, 3 * MIB][round % 4])),
            ];
            end.qp.post_sends(&list).unwrap();
        }
    }
    std::thread::scope(|scope| {
        for end in ends {
            scope.spawn(|| (0..48).for_each(|_| assert_eq!(end.success().qp, end.qp.num())));
        }
    });
    for [_, sink, inbox] in &regions {
        assert_eq!(sink.read(0, 4 * MIB).unwrap(), pattern(4 * MIB, 4));
        assert_eq!(inbox.read(0, 3 * MIB).unwrap(), pattern(3 * MIB, 4));
    }
}
