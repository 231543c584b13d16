//! All wires on one completion queue and one shared receive queue: iWARP, plain TCP, records, UDP.

use std::collections::HashMap;
use std::io::Write;
use std::time::Instant;

use rddp_rnic::{
    Access, CompletionQueue, ConnectOptions, Datagram, DatagramOptions, Gather, MemoryRegion,
    ProtectionDomain, QpConfig, QpNum, QueuePair, RecvWr, Rnic, SendWr, SharedReceiveQueue, SrqConfig,
    Status, Transport,
};
use rddp_test_support::{Random, pattern_from};

use super::common::{End, PATIENCE};
use super::{MOMENT, over_tcp};

/// Queue pairs of each wire.
const EACH: usize = 100;
const WIRES: usize = 4;
const ALL: usize = WIRES * EACH;
/// Messages that go each way on each of them.
const MESSAGES: usize = 20;
const LONGEST: usize = 1024;
const RECEIVES: usize = 1024;

/// One side: its queue pairs share all queues.
struct Side {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    srq: SharedReceiveQueue,
    inbox: MemoryRegion,
    qps: Vec<QueuePair>,
    index: HashMap<QpNum, usize>,
    /// Octets that have come on each of the queue pairs.
    got: Vec<usize>,
}

impl Side {
    fn new() -> (Rnic, Self) {
        let rnic = Rnic::open().unwrap();
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(8192).unwrap());
        let srq = pd.create_srq(SrqConfig { max_recv: RECEIVES, quota: None });
        let inbox = pd.allocate(RECEIVES * LONGEST, Access::LOCAL_WRITE).unwrap();
        let (qps, index, got) = Default::default();
        let mut side = Side { pd, cq, srq, inbox, qps, index, got };
        (0..RECEIVES).for_each(|slot| side.post(slot));
        for at in 0..ALL {
            let mut config = QpConfig { srq: Some(side.srq.clone()), ..QpConfig::new(&side.cq) };
            config.transport = transport(at);
            let qp = side.pd.create_qp(&config).unwrap();
            if transport(at) == Transport::Udp {
                qp.bind("[::1]:0".parse().unwrap(), &DatagramOptions::default()).unwrap();
            }
            side.index.insert(qp.num(), at);
            side.qps.push(qp);
            side.got.push(0);
        }
        (rnic, side)
    }

    fn post(&mut self, slot: usize) {
        let room = self.inbox.sge(slot * LONGEST..(slot + 1) * LONGEST);
        self.srq.post_recv(RecvWr::one(slot as u64, room)).unwrap();
    }

    /// Takes what has completed, and checks what has come.
    fn poll(&mut self) {
        while let Some(done) = self.cq.poll_one() {
            assert_eq!(done.status, Status::Success, "{done:?}");
            if done.completed == rddp_rnic::Completed::Send {
                continue;
            }
            let (at, slot) = (self.index[&done.qp], done.wr_id as usize);
            let mut octets = self.inbox.read(slot * LONGEST, done.byte_len as usize).unwrap();
            if transport(at) == Transport::Udp {
                octets.drain(..Datagram::LEN);
            }
            assert!(octets == pattern_from(at * 7919 + self.got[at], octets.len()), "QP {at}");
            self.got[at] += octets.len();
            self.post(slot);
        }
    }
}

/// Returns the wire of a queue pair: they alternate.
fn transport(at: usize) -> Transport {
    [Transport::Iwarp, Transport::Tcp, Transport::Record, Transport::Udp][at % WIRES]
}

#[test]
fn a_hundred_queue_pairs_of_each_wire_share_their_queues() {
    let (rnic, mut near) = Side::new();
    let (_far_rnic, mut far) = Side::new();
    let options = ConnectOptions::default();
    let any = "127.0.0.1:0".parse().unwrap();
    let listeners = [0, 1, 2].map(|at| rnic.listen_by(transport(at), any, &options).unwrap());
    for at in 0..ALL {
        let Some(listener) = listeners.get(at % WIRES) else { continue };
        far.qps[at].begin_to(listener.local_addr().unwrap(), &options).unwrap();
        listener.accept(Some(PATIENCE)).unwrap().unwrap().accept(&near.qps[at], b"").unwrap();
        assert!(far.qps[at].await_begun(PATIENCE));
        far.qps[at].begun().unwrap().unwrap();
    }
    let mut random = Random::new(36);
    // Octets that were sent on each queue pair, and messages that are left, to near and to far.
    let mut sent = [vec![0; ALL], vec![0; ALL]];
    let mut left = [vec![MESSAGES; ALL], vec![MESSAGES; ALL]];
    let deadline = Instant::now() + 3 * PATIENCE;
    loop {
        near.poll();
        far.poll();
        let is_over =
            left.iter().flatten().all(|left| *left == 0) && (&near.got, &far.got) == (&sent[0], &sent[1]);
        if is_over {
            break;
        }
        assert!(Instant::now() < deadline, "octets are missing");
        for _ in 0..50 {
            let (way, at) = (random.below(2), random.below(ALL));
            let (from, to) = if way == 0 { (&far, &near) } else { (&near, &far) };
            // One message at a time; a responder sends behind the first FPDU of its peer.
            if to.got[at] == sent[way][at] && left[way][at] > 0 {
                let len = 1 + random.below(512);
                let octets = pattern_from(at * 7919 + sent[way][at], len);
                let wr = if transport(at) == Transport::Udp {
                    let to = to.qps[at].local_addr().unwrap();
                    SendWr::datagram(1, Gather::Inline(octets), to)
                } else {
                    SendWr::send_inline(1, &octets)
                };
                from.qps[at].post_send(&wr).unwrap();
                sent[way][at] += len;
                left[way][at] -= 1;
            }
        }
    }
}

/// A queue pair without octets keeps no receive from one that has some.
#[test]
fn a_receive_of_a_shared_queue_is_for_whoever_has_octets() {
    let end = End::new();
    let srq = end.pd.create_srq(SrqConfig::default());
    let ends = [0, 1].map(|_| {
        end.sibling_with(|config| {
            over_tcp(config);
            config.srq = Some(srq.clone());
        })
    });
    let [_idle, mut busy] = [0, 1].map(|at| super::connected(&ends[at], at == 0));
    let inbox = end.region(16, Access::LOCAL_WRITE);
    srq.post_recv(RecvWr::one(1, inbox.sge(0..8))).unwrap();
    std::thread::sleep(MOMENT);
    assert_eq!(srq.len(), 1);
    busy.write_all(b"first").unwrap();
    let done = end.success();
    assert_eq!((done.qp, done.byte_len), (ends[1].qp.num(), 5));
    // Octets that find no receive wait for the next that is posted.
    busy.write_all(b"second").unwrap();
    std::thread::sleep(MOMENT);
    srq.post_recv(RecvWr::one(2, inbox.sge(0..8))).unwrap();
    let done = end.success();
    assert_eq!((done.wr_id, done.qp, done.byte_len), (2, ends[1].qp.num(), 6));
    // So do those that were read ahead of it.
    busy.write_all(b"third of three pieces..").unwrap();
    for id in 3..6 {
        std::thread::sleep(MOMENT);
        srq.post_recv(RecvWr::one(id, inbox.sge(0..8))).unwrap();
        let done = end.success();
        assert_eq!((done.wr_id, done.byte_len), (id, if id < 5 { 8 } else { 7 }));
        assert_eq!(ends[1].qp.counters().octets_received, 5 + 6 + 23);
    }
    assert_eq!(inbox.read(0, 7).unwrap(), b"ieces..");
}
