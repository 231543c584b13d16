//! FPDUs longer than a TCP segment: sent by consent only, received whatever their length.

use rddp_ddp::Stag;
use rddp_mpa::{LARGE_FPDU, MAX_ULPDU, StartupConfig, fpdu_len};
use rddp_rdmap::Opcode;
use rddp_rnic::{ConnectOptions, RecvWr, Remote, SendWr};
use rddp_test_support::{Peer, plain, random_octets, segment};

use crate::common::raw::{BOTH, Role, client_server, open_for, read_from, with_raw};
use crate::common::{ALL, End};

/// Octets of a message: several FPDUs of any kind.
const LEN: usize = 200_000;

/// Octets of a TCP segment of the connections here.
const EMSS: usize = 1448;

const REMOTE: Remote = Remote { stag: Stag(7), to: 0x1000 };

fn options(large_fpdus: bool) -> ConnectOptions {
    ConnectOptions { mss: Some(1460), large_fpdus, ..client_server() }
}

/// Returns an end and a raw peer, either of which asks for large FPDUs or does not.
fn pair(role: Role, asks: bool, peer: &StartupConfig) -> (End, Peer) {
    let (end, mut raw) = with_raw(role, &options(asks), peer);
    open_for(&mut raw, &end);
    (end, raw)
}

/// Has the end send a Write, a Send and a Response of [`LEN`] octets. Returns the length of the
/// longest FPDU.
fn longest(end: &End, raw: &mut Peer) -> usize {
    let source = end.region(LEN, ALL);
    let octets = random_octets(1, LEN);
    source.write(0, &octets).unwrap();
    let mut longest = 0;
    for op in [Opcode::Write, Opcode::Send, Opcode::ReadResponse] {
        match op {
            Opcode::Write => end.qp.post_send(&SendWr::write(1, source.whole(), REMOTE)).unwrap(),
            Opcode::Send => end.qp.post_send(&SendWr::send(1, source.whole())).unwrap(),
            _ => raw.send(&read_from(1, &source, LEN as u32)),
        }
        let mut message = Vec::new();
        while message.len() < LEN {
            let (header, payload) = raw.expect(op);
            longest = longest.max(fpdu_len(header.len() + payload.len()));
            message.extend(payload);
        }
        assert!(message == octets, "{op:?}");
        if op != Opcode::ReadResponse {
            assert_eq!(end.success().wr_id, 1);
        }
    }
    longest
}

/// RFC 5044 §4.5, §7.1.1: each condition of the consent.
#[test]
fn large_fpdus_are_sent_where_both_ends_ask_and_none_has_markers() {
    for role in BOTH {
        for (asks, peer_asks, markers, most) in [
            (true, true, false, LARGE_FPDU),
            (true, false, false, EMSS),
            (false, true, false, EMSS),
            (true, true, true, EMSS),
        ] {
            let peer = StartupConfig { large_fpdus: peer_asks, markers, ..plain() };
            let (end, mut raw) = pair(role, asks, &peer);
            let agreed = end.qp.negotiated().unwrap();
            assert_eq!(agreed.large_fpdus, most == LARGE_FPDU);
            let longest = longest(&end, &mut raw);
            let case = format!("{role:?}, {asks}, {peer_asks}, {markers}: {longest}");
            assert!(longest <= most && longest >= most - 16, "{case}");
        }
    }
}

/// RFC 5044 §3: by agreement of the programs an FPDU is as long as the sender may make it.
#[test]
fn programs_agree_on_the_longest_fpdus_unless_there_are_markers() {
    for role in BOTH {
        let (end, mut raw) = pair(role, false, &plain());
        assert!(end.qp.send_large_fpdus());
        assert_eq!(longest(&end, &mut raw), fpdu_len(MAX_ULPDU), "{role:?}");
        let (end, mut raw) = pair(role, false, &StartupConfig { markers: true, ..plain() });
        assert!(!end.qp.send_large_fpdus());
        assert!(longest(&end, &mut raw) <= EMSS, "{role:?}");
    }
    assert!(!End::new().qp.send_large_fpdus(), "without a connection");
}

/// A message of many large FPDUs is one write: none is ended for the sake of alignment.
#[test]
fn large_fpdus_go_in_one_write() {
    let (end, mut raw) = pair(Role::Active, true, &StartupConfig { large_fpdus: true, ..plain() });
    let source = end.region(LEN, ALL);
    let before = end.qp.counters().send_calls;
    end.qp.post_send(&SendWr::send(1, source.whole())).unwrap();
    assert_eq!(raw.payload(LEN).len(), LEN);
    assert_eq!(end.success().wr_id, 1);
    // TCP may have had no room for all of it.
    assert!(end.qp.counters().send_calls - before <= 4);
}

/// RFC 5044 §3: a receiver takes what the length field can say, also behind a startup in which
/// nothing was agreed. siw with `try_gso` sends ULPDUs of 65,154 octets.
#[test]
fn an_fpdu_as_long_as_its_length_field_can_say_is_received() {
    for crc in [true, false] {
        for ulpdu in [65_154, 65_535] {
            for role in BOTH {
                let options = ConnectOptions { crc, ..client_server() };
                let (end, mut raw) = with_raw(role, &options, &StartupConfig { crc, ..plain() });
                open_for(&mut raw, &end);
                receives(&end, &mut raw, ulpdu);
            }
        }
    }
}

/// Has the end receive a Write, a Send and a Response of two segments, the first of which makes a
/// ULPDU of this length.
fn receives(end: &End, raw: &mut Peer, ulpdu: usize) {
    let target = end.region(1 << 17, ALL);
    let octets = random_octets(2, 1 << 17);
    let remote = target.remote(0);
    let blank = vec![0; 1 << 17];
    let parts = |header: usize| {
        let (first, second) = octets.split_at(ulpdu - header);
        (first, &second[..100], ulpdu - header + 100)
    };

    let (first, second, len) = parts(14);
    raw.send(&segment::write(remote.stag, remote.to, false, first));
    raw.send(&segment::write(remote.stag, remote.to + first.len() as u64, true, second));
    let inbox = end.region(8, ALL);
    end.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    raw.send(&segment::send(1, 0, true, b"written"));
    assert_eq!(end.success().wr_id, 1);
    assert!(target.read(0, len).unwrap() == octets[..len], "a Write");

    target.write(0, &blank).unwrap();
    let (first, second, len) = parts(18);
    end.qp.post_recv(RecvWr::one(2, target.whole())).unwrap();
    raw.send(&segment::send(2, 0, false, first));
    raw.send(&segment::send(2, first.len() as u32, true, second));
    let done = end.success();
    assert_eq!((done.wr_id, done.byte_len as usize), (2, len));
    assert!(target.read(0, len).unwrap() == octets[..len], "a Send");

    target.write(0, &blank).unwrap();
    let (first, second, len) = parts(14);
    end.qp.post_send(&SendWr::read(3, target.sge(0..len), REMOTE)).unwrap();
    let request = raw.read_request();
    raw.send(&segment::response(request.sink_stag, request.sink_to, false, first));
    raw.send(&segment::response(request.sink_stag, request.sink_to + first.len() as u64, true, second));
    assert_eq!(end.success().wr_id, 3);
    assert!(target.read(0, len).unwrap() == octets[..len], "a Response");
}
