//! The outcome that a vector must lead to.

use rddp_ddp::Header;
use rddp_rdmap::{
    AtomicRequestRepr, AtomicResponseRepr, Fault, Opcode, ReadRequestRepr, TerminateCode, TerminateRepr,
};
use rddp_rnic::{AsyncEventKind, Completed, Completion, QpState, Status};
use rddp_test_support::segment;

use crate::bench::Bench;
use crate::vector::{hex, number};

/// A message sent after the vector, whose arrival shows that everything before it was handled.
const FENCE: &[u8] = b"fence";

pub fn check(bench: &mut Bench<'_>, sent: Option<&[u8]>, may_answer: bool) {
    match bench.vector.verdict() {
        "accept" => accepted(bench, sent.unwrap()),
        "terminate received" => terminated(bench, sent.unwrap()),
        "error" => refused(bench, sent, may_answer),
        verdict => panic!("{}: verdict {verdict}", bench.vector.name),
    }
    bench.regions.iter().for_each(|region| region.guarded.assert_guards());
    bench.inbox.assert_guards();
}

fn name(bench: &Bench<'_>) -> &'static str {
    bench.vector.name.clone().leak()
}

/// Checks that the payload is in its place and nowhere else, and that the waiting request has
/// completed.
fn accepted(bench: &mut Bench<'_>, ulpdu: &[u8]) {
    let name = name(bench);
    let header = Header::parse(ulpdu).unwrap();
    let payload = &ulpdu[header.len()..];
    let opcode = Opcode::from_number(header.control() & 0xf).unwrap();
    let mut expected: Vec<Vec<u8>> =
        bench.regions.iter().map(|region| region.guarded.filled().to_vec()).collect();
    let mut inbox = bench.inbox.filled().to_vec();
    let mut next_msn = number(&bench.vector.rx["q0"]["next_msn"]) as u32;
    let mut receive = 0;
    match (&header, opcode) {
        (Header::Tagged(header), _) => {
            if !payload.is_empty() {
                let to =
                    |region: &crate::bench::Standin| header.to.wrapping_sub(region.guarded.region.base());
                let at = bench
                    .regions
                    .iter()
                    .position(|region| region.guarded.region.stag() == header.stag)
                    .unwrap();
                let offset = to(&bench.regions[at]) as usize;
                expected[at][offset..offset + payload.len()].copy_from_slice(payload);
            }
            if opcode == Opcode::ReadResponse {
                read_done(bench, header, payload.len());
            }
        }
        (_, Opcode::ReadRequest) => read_answered(bench, payload),
        (_, Opcode::AtomicRequest) => {
            atomic_answered(bench, payload, &mut expected);
        }
        (_, Opcode::AtomicResponse) => {
            let done = bench.completion();
            assert_eq!(
                (done.wr_id, done.status, done.completed),
                (80, Status::Success, Completed::FetchAdd),
                "{name}"
            );
            let original = AtomicResponseRepr::parse(payload).unwrap().original;
            inbox[8192..8200].copy_from_slice(&original.to_ne_bytes());
        }
        (Header::Untagged(header), _) => {
            let mo = header.mo as usize;
            let mut len = mo + payload.len();
            if opcode.is_extension() {
                // RFC 7306 §6.3: the receive's memory is not touched, and no Write came before.
                len = 0;
            } else {
                inbox[mo..len].copy_from_slice(payload);
            }
            if !header.last {
                bench.raw.send(&segment::send(next_msn, len as u32, true, b"rest"));
                inbox[len..len + 4].copy_from_slice(b"rest");
                len += 4;
            }
            let done = bench.completion();
            assert_eq!((done.wr_id, done.status, done.byte_len), (0, Status::Success, len as u32), "{name}");
            sent_message(bench, opcode, payload, &done);
            (next_msn, receive) = (next_msn + 1, 1);
        }
    }
    bench.raw.send(&segment::send(next_msn, 0, true, FENCE));
    let done = bench.completion();
    assert_eq!((done.wr_id, done.status, done.byte_len), (receive, Status::Success, 5), "{name}");
    let at = receive as usize * 4096;
    inbox[at..at + 5].copy_from_slice(FENCE);
    let contents: Vec<Vec<u8>> = bench.regions.iter().map(|region| region.guarded.octets()).collect();
    assert!(contents == expected, "{name}: octets of a region are wrong");
    assert!(bench.inbox.octets() == inbox, "{name}: octets of a receive are wrong");
    assert_eq!(bench.qp.state(), QpState::ReadyToSend, "{name}");
}

fn sent_message(bench: &Bench<'_>, opcode: Opcode, payload: &[u8], done: &Completion) {
    let name = name(bench);
    assert_eq!(done.solicited, opcode.is_solicited(), "{name}");
    if opcode.is_extension() {
        let data: [u8; 8] = payload.try_into().unwrap();
        assert_eq!((done.completed, done.immediate), (Completed::ReceiveImmediate, Some(data)), "{name}");
    }
    let revoked = opcode.invalidates().then(|| bench.regions[0].guarded.region.stag());
    assert_eq!(done.invalidated, revoked, "{name}");
    // RFC 5040 §5.3: the STag is invalid when the receive completes.
    assert_eq!(bench.regions[0].guarded.region.is_valid(), revoked.is_none(), "{name}");
}

/// Sends the rest of the Response, and checks that the Read completes.
fn read_done(bench: &mut Bench<'_>, header: &rddp_ddp::TaggedRepr, len: usize) {
    let read = &bench.vector.rx["outstanding_reads"][0];
    let size = number(&read["length"]) as usize;
    let sink = &bench.regions.last().unwrap().guarded;
    if !header.last {
        let done = (header.to - sink.region.base()) as usize + len;
        // The same octets as those that are there already.
        let rest = sink.filled()[done..size].to_vec();
        let octets = segment::response(header.stag, header.to + len as u64, true, &rest);
        bench.raw.send(&octets);
    }
    let done = bench.completion();
    assert_eq!(
        (done.wr_id, done.status, done.byte_len as usize),
        (80, Status::Success, size),
        "{}",
        name(bench)
    );
}

/// Checks a Response. RFC 5040 §5.2.2: STag and TO as in the Request, the source's octets.
fn read_answered(bench: &mut Bench<'_>, payload: &[u8]) {
    let request = ReadRequestRepr::parse(payload).unwrap();
    let (header, octets) = bench.raw.expect(Opcode::ReadResponse);
    let Header::Tagged(tagged) = header else { panic!("untagged") };
    assert_eq!((tagged.stag, tagged.to, tagged.last), (request.sink_stag, request.sink_to, true));
    if let Some(expected) = bench.vector.expect.get("response_ulpdu_hex") {
        assert_eq!([header.octets().as_ref(), &octets].concat(), hex(expected));
    }
    assert_eq!(octets.len(), request.size as usize);
    if let Some(source) = bench.regions.iter().find(|region| region.guarded.region.stag() == request.src_stag)
    {
        let from = (request.src_to - source.guarded.region.base()) as usize;
        assert!(octets == source.guarded.filled()[from..from + octets.len()], "{}", name(bench));
    }
}

/// Checks an answer to an atomic. RFC 7306 §5: done once, the original value returned.
fn atomic_answered(bench: &mut Bench<'_>, payload: &[u8], expected: &mut [Vec<u8>]) {
    let request = AtomicRequestRepr::parse(payload).unwrap();
    let (_, octets) = bench.raw.expect(Opcode::AtomicResponse);
    let response = AtomicResponseRepr::parse(&octets).unwrap();
    let at = (request.to - bench.regions[0].guarded.region.base()) as usize;
    let target: &mut [u8] = &mut expected[0][at..at + 8];
    let original = u64::from_ne_bytes(target.try_into().unwrap());
    assert_eq!(response, AtomicResponseRepr { request_id: request.request_id, original });
    target.copy_from_slice(&request.op.apply(original).unwrap_or(original).to_ne_bytes());
}

/// Checks the end by the peer's Terminate. RFC 5040 §7.1: the program is told, everything is
/// flushed, and nothing answers a Terminate.
fn terminated(bench: &mut Bench<'_>, ulpdu: &[u8]) {
    let terminate = TerminateRepr::parse(&ulpdu[18..]).unwrap();
    assert_eq!(u64::from(terminate.code.0), number(&bench.vector.expect["code"]));
    let event = bench.event(|event| matches!(event, AsyncEventKind::TerminateReceived(_)));
    assert_eq!(event, AsyncEventKind::TerminateReceived(terminate.code));
    assert_eq!(bench.raw.recv(), None, "a Terminate was answered");
    assert_eq!(bench.qp.terminate_received(), Some(terminate));
    flushed(bench, Status::Flushed);
}

/// Checks that nothing is delivered or touched, and that the peer gets the vector's Terminate.
fn refused(bench: &mut Bench<'_>, sent: Option<&[u8]>, may_answer: bool) {
    let (name, expect) = (name(bench), &bench.vector.expect);
    if expect["mpa_error"] == 1 {
        bench.raw.fin();
        bench.event(|event| *event == AsyncEventKind::BadClose);
        return flushed(bench, Status::Flushed);
    }
    let event = bench.event(|event| matches!(event, AsyncEventKind::Fault(_)));
    let AsyncEventKind::Fault(fault) = event else { unreachable!() };
    match bench.vector.code() {
        Some(code) if may_answer => {
            assert_eq!(u64::from(fault.code().0), code, "{name}: {fault}");
            let terminate = bench.raw.terminate();
            assert_eq!(u64::from(terminate.code.0), code, "{name}");
            if expect.get("terminate_ulpdu_hex").is_some() {
                assert_eq!(segment::terminate_with(&terminate), expected_terminate(bench, sent), "{name}");
            }
            assert_eq!(bench.qp.terminate_sent(), Some(terminate), "{name}");
        }
        code => {
            assert!(code.is_some() || matches!(fault, Fault::Terminate(_)), "{name}: {fault}");
            assert_eq!(bench.raw.recv(), None, "{name}: answered");
            assert_eq!(bench.qp.terminate_sent(), None, "{name}");
        }
    }
    let first = match fault.code() {
        TerminateCode::UNTAGGED_TOO_LONG => Status::MessageTooLong,
        _ if matches!(fault, Fault::Invalidate(_)) => Status::RemoteInvalidate,
        _ => Status::Flushed,
    };
    flushed(bench, first);
    let untouched = bench.regions.iter().all(|region| region.guarded.is_unchanged());
    assert!(untouched, "{name}: octets of a region have changed");
    if first == Status::RemoteInvalidate {
        assert_eq!(bench.inbox.octets()[..4], sent.unwrap()[18..], "{name}: delivered before the failure");
    } else {
        assert!(bench.inbox.is_unchanged(), "{name}: octets of a receive have changed");
    }
}

/// Returns the vector's Terminate, about the segment as it was sent.
fn expected_terminate(bench: &Bench<'_>, sent: Option<&[u8]>) -> Vec<u8> {
    const UP_TO_HEADER: usize = 24;
    let vector = hex(&bench.vector.expect["terminate_ulpdu_hex"]);
    let Some(copied) = vector.len().checked_sub(UP_TO_HEADER) else { return vector };
    let (original, sent) = (bench.vector.ulpdu.as_ref().unwrap(), sent.unwrap());
    assert_eq!(vector[UP_TO_HEADER..], original[..copied], "the vector's Terminate is about its segment");
    [&vector[..UP_TO_HEADER], &sent[..copied]].concat()
}

/// Checks that everything posted completes exactly once, the first receive with `first`, and that
/// the QP is in Error then.
fn flushed(bench: &mut Bench<'_>, first: Status) {
    let name = name(bench);
    let rx = &bench.vector.rx;
    let receives = rx["q0"]["posted_buffer_lengths"].as_array().unwrap().len() as u64;
    let reads = rx["outstanding_reads"].as_array().unwrap().len();
    let mut expected: Vec<(u64, Status)> = (0..receives).map(|id| (id, Status::Flushed)).collect();
    if first != Status::Flushed {
        expected[0].1 = first;
    }
    let mut completions: Vec<_> = (0..expected.len() + reads).map(|_| bench.completion()).collect();
    completions.retain(|done| done.wr_id != 80 || done.status != Status::Flushed);
    let got: Vec<_> = completions.iter().map(|done| (done.wr_id, done.status)).collect();
    assert_eq!(got, expected, "{name}");
    let _ = bench.raw.socket.shutdown(std::net::Shutdown::Both);
    bench.await_state(QpState::Error);
    assert!(bench.cq.poll_one().is_none(), "{name}: something completed twice");
}
