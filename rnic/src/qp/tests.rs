//! Tests that set state inside of a QP: streams that have carried four billion messages, and
//! bounds.

mod acknowledged;
mod bounds;
mod files;
mod late;
mod lease;
mod lend;
mod not_ready;
mod on_demand;
mod plain;
mod short;
mod trains;

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rddp_ddp::{Msn, Stag};
use rddp_mpa::{Framer, Framing, Negotiated, Revision};
use rddp_rdmap::Opcode;
use serde_json::Value;

use super::*;
use crate::{Access, CompletionQueue, ProtectionDomain, QpConfig, Rnic, SendWr};

/// Ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the outcome of a startup without wishes.
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
        large_fpdus: false,
        peer_ird: Some(8),
        peer_ord: Some(8),
    }
}

/// Returns both ends of a connection over loopback with this MSS: a QP's, and its peer's.
fn sockets(mss: Option<u32>) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    if let Some(mss) = mss {
        socket2::SockRef::from(&listener).set_tcp_mss(mss).unwrap();
    }
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    (listener.accept().unwrap().0, peer)
}

/// Connects a QP, as the active end, to a plain socket, which is returned.
fn attached(qp: &QueuePair) -> TcpStream {
    let (socket, peer) = sockets(None);
    qp.attach(socket, negotiated(), &ConnectOptions::default(), true).unwrap();
    peer
}

/// Returns an active QP with every queue of both directions at `next`, and the plain
/// socket that is its peer.
fn taken_over(next: Msn) -> (ProtectionDomain, CompletionQueue, QueuePair, TcpStream) {
    let rnic = Rnic::open().unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
    let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
    let peer = attached(&qp);
    qp.inner.anywhere().with_core(|_, core| {
        core.connection.as_mut().unwrap().parts().1.number_from(next);
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

/// A device with a queue and two QPs of it, each with its raw peer.
fn two_taken_over() -> (ProtectionDomain, CompletionQueue, [(QueuePair, TcpStream); 2]) {
    let rnic = Rnic::open().unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
    let ends = [0, 1].map(|_| {
        let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
        let peer = attached(&qp);
        (qp, peer)
    });
    (pd, cq, ends)
}

/// Waits without a call that makes progress itself.
fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A defect of ours that shows while the background thread handles what one peer sends
/// costs that peer's connection only: it is reset, all that was posted is flushed, and the
/// QP can be connected anew.
#[test]
fn a_panic_of_the_background_thread_costs_one_connection() {
    let (pd, cq, [(faulty, mut its_peer), (other, mut others_peer)]) = two_taken_over();
    let sink = pd.allocate(8, Access::LOCAL_WRITE).unwrap();
    let remote = crate::Remote { stag: Stag(1), to: 0 };
    faulty.post_send(&SendWr::read(1, sink.whole(), remote)).unwrap();
    faulty.post_recv(RecvWr::new(2, [])).unwrap();
    other.post_recv(RecvWr::new(3, [])).unwrap();
    faulty
        .inner
        .anywhere()
        .with_core(|_, core| core.connection.as_mut().unwrap().parts().1.panic_at_octets());
    let octets = octets_of("send_zero_length");
    its_peer.write_all(&octets).unwrap();
    await_that("the QP goes on after a panic", || faulty.state() == QpState::Error);
    others_peer.write_all(&octets).unwrap();
    await_that("nobody serves the other QP", || other.counters().octets_received > 0);
    let mut ended = Vec::new();
    cq.poll(64, &mut ended);
    let flushed = ended.iter().filter(|done| done.qp == faulty.num());
    assert_eq!(
        flushed.map(|done| (done.wr_id, done.status)).collect::<Vec<_>>(),
        [(1, crate::Status::Flushed), (2, crate::Status::Flushed)]
    );
    let event = faulty.inner.anywhere().attrs.device.events.next_event().unwrap();
    assert_eq!((event.qp, event.kind), (faulty.num(), AsyncEventKind::QpFailed));
    let reset = std::iter::repeat_with(|| its_peer.read(&mut [0; 64])).find(|read| !matches!(read, Ok(1..)));
    assert_eq!(reset.unwrap().unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert!(faulty.reset());
    let mut its_peer = attached(&faulty);
    faulty.post_recv(RecvWr::new(4, [])).unwrap();
    its_peer.write_all(&octets).unwrap();
    await_that("nobody serves the QP after its reset", || faulty.counters().octets_received > 0);
}

/// A failure of the background thread itself ends all connections of its device, and no call waits
/// for ever.
#[test]
fn a_device_that_fails_ends_its_connections() {
    let (pd, cq, [(first, _its_peer), (second, _seconds_peer)]) = two_taken_over();
    let device = first.inner.anywhere().device.clone();
    let rnic = Rnic(crate::home::Home::new(device.clone()));
    let listener = rnic.listen("127.0.0.1:0".parse().unwrap(), &ConnectOptions::default()).unwrap();
    let addr = listener.local_addr().unwrap();
    let starting = pd.create_qp(&QpConfig::new(&cq)).unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(silent.local_addr().unwrap()).unwrap();
    starting.begin(stream, &ConnectOptions::default(), true).unwrap();
    first.post_recv(RecvWr::new(1, [])).unwrap();
    device.driver.breaks.store(true, Ordering::SeqCst);
    device.driver.end_of_wait();
    listener.accept(None).unwrap_err();
    assert!(starting.await_begun(Duration::from_secs(20)));
    starting.begun().unwrap().unwrap_err();
    let mut failed = Vec::new();
    while failed.len() < 2 {
        let event = rnic.wait_async_event(Some(Duration::from_secs(20))).unwrap().expect("nobody is told");
        failed.extend((event.kind == AsyncEventKind::DeviceFailed).then_some(event.qp));
    }
    failed.sort_by_key(|qp| qp.0);
    assert_eq!(failed, [first.num(), second.num()]);
    assert!(cq.wait(Some(Duration::from_secs(20))).unwrap());
    assert_eq!(cq.poll_one().unwrap().status, crate::Status::Flushed);
    // No new startup begins, and no call waits for one.
    assert!(first.reset());
    first.connect(addr, &ConnectOptions::default()).unwrap_err();
    rnic.listen("127.0.0.1:0".parse().unwrap(), &ConnectOptions::default()).unwrap_err();
}
