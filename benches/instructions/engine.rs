//! The software RNIC: posting, polling, receiving. Octets are exchanged with the peer between
//! rounds, so no count depends on their timing.

use std::hint::black_box;

use rddp_benches::{End, Wire, write_segment};
use rddp_ddp::{Msn, Stag};
use rddp_rdmap::{Opcode, ReadRequestRepr, untagged_header};
use rddp_rnic::{Access, Remote, SendWr};

use crate::Scenario;
use crate::count::measured;

/// Number of operations in a round.
const SOME: u32 = 16;
const DEPTH: u32 = 64;
const MANY: u32 = 1000;

const SMALL: usize = 64;
const LARGE: usize = 64 * 1024;
/// Number of FPDUs of a Write over Ethernet, and the payload of each: with header, length and CRC
/// 1,448 octets.
const TRAIN: u32 = 44;
const IN_MSS_1448: usize = 1428;

/// Small messages with CRC, large ones without: the CRC has scenarios of its own.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "post_send_64", ops: SOME, prepare: post_send },
    Scenario { name: "post_sends_64", ops: DEPTH, prepare: post_sends },
    Scenario { name: "post_write_64k", ops: 1, prepare: || post_write(Wire::STEADY) },
    Scenario { name: "post_write_64k_train", ops: 1, prepare: || post_write(Wire::ETHERNET) },
    Scenario { name: "poll_empty", ops: MANY, prepare: poll_empty },
    Scenario { name: "poll_completion", ops: DEPTH, prepare: poll_completion },
    Scenario { name: "receive_send_64", ops: 1, prepare: || receive_sends(1) },
    Scenario { name: "receive_sends_64", ops: DEPTH, prepare: || receive_sends(DEPTH) },
    Scenario { name: "receive_fpdus_1448", ops: TRAIN, prepare: || receive_fpdus(Wire::PLAIN) },
    Scenario { name: "receive_fpdus_1448_crc", ops: TRAIN, prepare: || receive_fpdus(Wire::CRC) },
    Scenario { name: "receive_write_64k", ops: 1, prepare: receive_write },
    Scenario { name: "answer_read_64k", ops: 1, prepare: answer_read },
    Scenario { name: "answer_file_64k", ops: 1, prepare: || answer_file(Wire::STEADY) },
    Scenario { name: "answer_file_1448", ops: 1, prepare: || answer_file(Wire::ETHERNET) },
];

/// Posts each Send by a call of its own.
fn post_send() -> Box<dyn FnMut()> {
    let end = End::new(Wire::CRC);
    let wr = SendWr::send(1, end.region.sge(0..SMALL));
    Box::new(move || {
        measured(&mut || {
            for _ in 0..SOME {
                end.qp.post_send(&wr).expect("room in the send queue");
            }
        });
        end.drain();
    })
}

/// Posts all Sends by one call.
fn post_sends() -> Box<dyn FnMut()> {
    let end = End::new(Wire::CRC);
    let list = vec![SendWr::send(1, end.region.sge(0..SMALL)); DEPTH as usize];
    Box::new(move || {
        measured(&mut || end.qp.post_sends(&list).expect("room in the send queue"));
        end.drain();
    })
}

/// Posts a Write, all of which TCP takes at once.
fn post_write(wire: Wire) -> Box<dyn FnMut()> {
    let end = End::new(wire);
    let wr = SendWr::write(1, end.region.sge(0..LARGE), end.region.remote(0));
    Box::new(move || {
        let before = end.qp.counters().octets_sent;
        measured(&mut || end.qp.post_send(&wr).expect("room in the send queue"));
        assert!(end.qp.counters().octets_sent - before > LARGE as u64, "TCP takes all of it");
        end.drain();
    })
}

/// Polls while the QP's socket has nothing to read.
fn poll_empty() -> Box<dyn FnMut()> {
    let end = End::new(Wire::CRC);
    Box::new(move || {
        measured(&mut || {
            for _ in 0..MANY {
                assert!(end.cq.poll_one().is_none());
            }
        });
    })
}

/// Polls for completions that are there, so that no socket is read.
fn poll_completion() -> Box<dyn FnMut()> {
    let end = End::new(Wire::CRC);
    let list = vec![SendWr::send(1, end.region.sge(0..SMALL)); DEPTH as usize];
    Box::new(move || {
        end.qp.post_sends(&list).expect("room in the send queue");
        measured(&mut || {
            for _ in 0..DEPTH {
                assert!(end.cq.poll_one().is_some());
            }
        });
        end.drain();
    })
}

/// Polls with octets of Sends in the socket, which arrived together, until all have completed.
fn receive_sends(count: u32) -> Box<dyn FnMut()> {
    let mut end = End::new(Wire::CRC);
    Box::new(move || {
        end.post_receives(count as usize, SMALL);
        end.incoming_sends(count as usize, SMALL);
        measured(&mut || {
            for _ in 0..count {
                black_box(end.completion());
            }
        });
    })
}

/// Polls with a Write in FPDUs as on Ethernet in the socket.
fn receive_fpdus(wire: Wire) -> Box<dyn FnMut()> {
    let mut end = End::new(wire);
    let segments: Vec<_> = (0..TRAIN as usize)
        .map(|at| {
            let remote = end.region.remote(at * IN_MSS_1448);
            write_segment(remote.stag, remote.to, at + 1 == TRAIN as usize, IN_MSS_1448)
        })
        .collect();
    Box::new(move || {
        end.incoming(segments.iter().map(Vec::as_slice));
        let before = end.qp.counters().fpdus_received;
        measured(&mut || assert!(end.cq.poll_one().is_none()));
        assert_eq!(end.qp.counters().fpdus_received, before + u64::from(TRAIN), "one poll takes them all");
    })
}

/// Polls with a Write of 64 KiB in two FPDUs in the socket; it makes no completion.
fn receive_write() -> Box<dyn FnMut()> {
    let mut end = End::new(Wire::STEADY);
    let half = LARGE / 2;
    let segments = [(0, false), (half, true)].map(|(offset, last)| {
        let remote = end.region.remote(offset);
        write_segment(remote.stag, remote.to, last, half)
    });
    Box::new(move || {
        end.incoming(segments.iter().map(Vec::as_slice));
        let before = end.qp.counters().fpdus_received;
        measured(&mut || assert!(end.cq.poll_one().is_none()));
        assert_eq!(end.qp.counters().fpdus_received, before + 2, "one poll takes all that is there");
    })
}

/// Polls with a Read Request for 64 KiB in the socket, until the Response has gone to TCP.
fn answer_read() -> Box<dyn FnMut()> {
    let end = End::new(Wire::STEADY);
    let source = end.region.remote(0);
    answer(end, source, ())
}

/// Does what [`answer_read`] does, and the source is a file that has no disk below it.
fn answer_file(wire: Wire) -> Box<dyn FnMut()> {
    let end = End::new(wire);
    let path = format!("/dev/shm/rddp-instructions-{}", std::process::id());
    std::fs::write(&path, [7; LARGE]).expect("a file in memory");
    let file = std::fs::File::open(&path).expect("the file just made");
    std::fs::remove_file(&path).expect("the file just made");
    let file = end.pd.register_file(file, 0..LARGE as u64, Access::REMOTE_READ).expect("a whole file");
    let source = file.remote(0);
    answer(end, source, file)
}

/// Answers Reads of 64 KiB of `source`, which stays registered as long as `memory` lives.
fn answer<T: 'static>(mut end: End, source: Remote, memory: T) -> Box<dyn FnMut()> {
    let mut msn = Msn::FIRST;
    Box::new(move || {
        black_box(&memory);
        end.incoming([&read_request(msn, source)[..]]);
        msn = msn.next();
        let before = end.qp.counters().octets_sent;
        measured(&mut || assert!(end.cq.poll_one().is_none()));
        let sent = end.qp.counters().octets_sent - before;
        assert!(sent > LARGE as u64, "one poll answers what is there");
        end.drain();
    })
}

fn read_request(msn: Msn, source: Remote) -> Vec<u8> {
    let (sink_stag, sink_to, size) = (Stag(0x0a0b_0c0d), 0x2000, LARGE as u32);
    let request = ReadRequestRepr { sink_stag, sink_to, size, src_stag: source.stag, src_to: source.to };
    let header = untagged_header(Opcode::ReadRequest, Stag(0), msn, 0, true);
    [header.octets().as_ref(), &request.octets()].concat()
}
