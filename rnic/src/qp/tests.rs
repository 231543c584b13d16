//! What needs a hand inside: streams that have carried four billion messages, and bounds.

mod bounds;
mod lease;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use rddp_ddp::{Msn, Qn, Stag};
use rddp_mpa::{Framer, Framing, Negotiated, Revision};
use rddp_rdmap::Opcode;
use serde_json::Value;

use super::*;
use crate::{Access, CompletionQueue, ProtectionDomain, Rnic, SendWr};

/// Ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a startup without wishes comes to.
fn negotiated() -> Negotiated {
    Negotiated {
        revision: Revision::Two,
        enhanced: true,
        crc: true,
        markers_tx: false,
        markers_rx: false,
        ird: 8,
        ord: 8,
        rtr: None,
        peer_ird: Some(8),
        peer_ord: Some(8),
    }
}

/// An active QP whose peer is a plain socket, every queue of both directions being at `next`.
fn taken_over(next: Msn) -> (ProtectionDomain, CompletionQueue, QueuePair, TcpStream) {
    let rnic = Rnic::open().unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
    let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let socket = listener.accept().unwrap().0.into();
    qp.attach(socket, negotiated(), &ConnectOptions::default(), true).unwrap();
    qp.inner.with_core(|_, core| {
        let link = core.link.as_mut().unwrap();
        for qn in [Qn(0), Qn(1)] {
            link.stream.expect_msn(qn, next);
            link.msns.set(qn, next);
        }
    });
    (pd, cq, qp, peer)
}

fn octets_of(vector: &str) -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/vectors.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let vectors = file["vectors"].as_array().unwrap();
    let hex = vectors.iter().find(|entry| entry["name"] == vector).unwrap()["hex"].as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// RFC 5041 §4.3: after 0xffffffff comes 0. The two vectors that `tests/vectors` cannot reach.
#[test]
fn inbound_message_numbers_wrap() {
    let (pd, cq, qp, mut peer) = taken_over(Msn(u32::MAX));
    let inbox = pd.allocate(64, Access::LOCAL_WRITE).unwrap();
    for (id, vector) in ["send_msn_wrap_last", "send_msn_wrapped"].into_iter().enumerate() {
        qp.post_recv(RecvWr::one(id as u64, inbox.whole())).unwrap();
        let octets = octets_of(vector);
        peer.write_all(&octets).unwrap();
        assert!(cq.wait(Some(PATIENCE)).unwrap());
        let done = cq.poll_one().unwrap();
        assert_eq!((done.wr_id, done.status), (id as u64, crate::Status::Success));
        let len = done.byte_len as usize;
        assert_eq!((len, inbox.read(0, len).unwrap()), (1, octets[20..21].to_vec()));
    }
}

/// RFC 5041 §4.3, for both queues that requests go to.
#[test]
fn outbound_message_numbers_wrap() {
    let (pd, _cq, qp, mut peer) = taken_over(Msn(u32::MAX));
    let sink = pd.allocate(8, Access::LOCAL_WRITE).unwrap();
    let remote = crate::Remote { stag: Stag(1), to: 0 };
    let mut framer = Framer::new(Framing { crc: true, markers: false });
    for msn in [u32::MAX, 0, 1] {
        qp.post_send(&SendWr::send_inline(1, b"")).unwrap();
        qp.post_send(&SendWr::read(2, sink.whole(), remote)).unwrap();
        let mut expected = Vec::new();
        let send = rddp_rdmap::untagged_header(Opcode::Send, Stag(0), Msn(msn), 0, true);
        framer.emit(send.octets().as_ref(), 0, |_, _| {}, &mut expected);
        let mut octets = vec![0; expected.len()];
        peer.read_exact(&mut octets).unwrap();
        assert_eq!(octets, expected);
        let mut read = [0; 52];
        peer.read_exact(&mut read).unwrap();
        assert_eq!(read[12..16], msn.to_be_bytes(), "the Read Request's");
    }
}
