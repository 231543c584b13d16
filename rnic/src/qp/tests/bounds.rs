//! Bounds on a QP's share of a thread's time and of memory while others need them.

use rddp_stat::Counter;

use rddp_rdma::{Datagram, Gather, RecvWr};

use super::super::progress::TURN;
use super::*;
use crate::queues::options::{DatagramOptions, Transport};
use crate::wire::{FEW_RESPONSES, Pulled, RESPONSES_AHEAD};

/// Most octets of one read here: an FPDU's payload, and what is staged with it.
const READ: u64 = 64 * 1024;

fn send(framer: &mut Framer, msn: u32, payload: &[u8], out: &mut Vec<u8>) {
    let header = rddp_rdmap::untagged_header(Opcode::Send, Stag(0), Msn(msn), 0, true);
    let fill = |offset: usize, out: &mut [u8]| out.copy_from_slice(&payload[offset..offset + out.len()]);
    framer.emit(header.octets().as_ref(), payload.len(), fill, out);
}

/// RFC 5042 §6.4.4: however much has come, a QP is read for one turn, and then others are.
#[test]
fn a_turn_of_reading_has_an_end() {
    let (pd, cq, qp, mut peer) = taken_over(Msn::FIRST);
    cq.resize(128).unwrap();
    let inbox = pd.allocate(40_000, Access::LOCAL_WRITE).unwrap();
    let mut framer = Framer::new(Framing { crc: true, markers: false });
    let mut octets = Vec::new();
    for msn in 1..=128 {
        qp.post_recv(RecvWr::one(msn.into(), inbox.whole())).unwrap();
        send(&mut framer, msn, &[7; 40_000], &mut octets);
    }
    peer.set_nonblocking(true).unwrap();
    // No other thread reads meanwhile.
    let inner = qp.inner.anywhere();
    let mut core = inner.core.lock();
    let (mut turns, mut written, deadline) = (Vec::new(), 0, Instant::now() + PATIENCE);
    while core.tally.of(Counter::OctetsReceived) < octets.len() as u64 {
        assert!(Instant::now() < deadline, "{turns:?}");
        // As much as TCP takes.
        while let Ok(count @ 1..) = peer.write(&octets[written..]) {
            written += count;
        }
        let before = core.tally.of(Counter::OctetsReceived);
        let pulled = inner.progress(&mut core);
        turns.push((pulled, core.tally.of(Counter::OctetsReceived) - before));
    }
    drop(core);
    // The first one fills the staging buffer; all others go straight into place,
    // so that no short read ends them.
    turns.remove(0);
    assert!(turns.iter().any(|(pulled, _)| *pulled == Pulled::More), "none was long enough: {turns:?}");
    assert!(turns.iter().all(|(_, read)| *read <= TURN + READ), "{turns:?}");
}

/// RFC 5042 §6.4.1: what all QPs together have promised to TCP is bounded, by preparing fewer
/// Responses for each; and it is given back.
#[test]
fn responses_are_few_while_all_qps_together_keep_too_many() {
    let (pd, cq, qp, mut peer) = taken_over(Msn::FIRST);
    let device = qp.inner.anywhere().device.clone();
    let source = pd.allocate(16 << 20, Access::REMOTE_READ).unwrap();
    let remote = source.remote(0);
    let request = rddp_rdmap::ReadRequestRepr {
        sink_stag: Stag(1),
        sink_to: 0,
        size: 16 << 20,
        src_stag: remote.stag,
        src_to: remote.to,
    };
    let header = rddp_rdmap::untagged_header(Opcode::ReadRequest, Stag(0), Msn(1), 0, true);
    let mut octets = Vec::new();
    Framer::new(Framing { crc: true, markers: false }).emit(
        header.octets().as_ref(),
        request.octets().len(),
        |offset, out| out.copy_from_slice(&request.octets()[offset..offset + out.len()]),
        &mut octets,
    );
    let kept_by_others = 1 << 30;
    device.promised.charge(kept_by_others);
    peer.write_all(&octets).unwrap();
    let is_blocked =
        || qp.inner.anywhere().with_core(|_, core| core.connection.as_ref().unwrap().watch.is_blocked());
    let deadline = Instant::now() + PATIENCE;
    while !is_blocked() {
        assert!(Instant::now() < deadline, "TCP takes all of it");
        cq.poll_one();
    }
    // Until TCP takes nothing more, so that all that is prepared is kept.
    let promised = || {
        qp.inner.anywhere().with_core(|qp, core| {
            let mut before = 0;
            while std::mem::replace(&mut before, core.tally.of(Counter::OctetsSent))
                != core.tally.of(Counter::OctetsSent)
            {
                qp.pump(core);
            }
            core.connection.as_ref().unwrap().iwarp().unwrap().promised()
        })
    };
    let few = promised();
    assert!((FEW_RESPONSES..FEW_RESPONSES + READ as usize).contains(&few), "{few}");
    device.promised.release(kept_by_others);
    let many = promised();
    assert!((RESPONSES_AHEAD..RESPONSES_AHEAD + READ as usize).contains(&many), "{many}");
    assert!((many..4 * many).contains(&device.promised.held()), "{} for {many}", device.promised.held());
    qp.abort();
    assert_eq!(device.promised.held(), 0);
}

/// Datagrams that wait for a receive count with the memory of their list, or those of no octets
/// would hardly count; and all of it is given back.
#[test]
fn datagrams_that_wait_count_with_what_they_take_beside_their_octets() {
    let rnic = Rnic::open().unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
    let qp = |cq| {
        let qp = pd.create_qp(&QpConfig { transport: Transport::Udp, ..QpConfig::new(cq) }).unwrap();
        qp.bind("127.0.0.1:0".parse().unwrap(), &DatagramOptions::default()).unwrap();
        qp
    };
    let (near, far) = (qp(&cq), qp(&cq));
    let device = far.inner.anywhere().device.clone();
    let inbox = pd.allocate(100, Access::LOCAL_WRITE).unwrap();
    far.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    let to = far.local_addr().unwrap();
    let list: Vec<_> =
        (0..10).map(|id| SendWr::datagram(id, Gather::Inline(vec![7]), to).unsignaled()).collect();
    near.post_sends(&list).unwrap();
    assert!(cq.wait(Some(PATIENCE)).unwrap());
    // The room in front of the first of the bundle, and nine octets.
    let octets = Datagram::LEN + 9;
    // Whoever reads them does so under this lock.
    let held = far.inner.anywhere().with_core(|_, _| device.partial.held());
    assert!(held > octets + 64, "{held}");
    far.abort();
    assert_eq!(device.partial.held(), 0);
}
