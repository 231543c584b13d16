//! Responses without a copy: when they are lent, that nobody can tell by the octets, and what
//! becomes of a source that changes all the same.

use rddp_ddp::TaggedRepr;
use rddp_mpa::{Deframer, FpduError, MAX_ULPDU, Step};
use rddp_rdmap::{ReadRequestRepr, TerminateCode};
use rddp_stat::Counter;

use super::*;
use crate::wire::Outgoing;
use crate::{MemoryRegion, Remote, Status};

/// Octets of a source: several FPDUs and trains.
const LEN: usize = 4 << 20;

const STABLE: Access = Access::REMOTE_READ.union(Access::STABLE);

/// A responder, its memory, and the plain socket that is its peer.
struct End {
    /// Closed first: else the device would wait for it.
    peer: TcpStream,
    cq: CompletionQueue,
    qp: QueuePair,
    source: Arc<MemoryRegion>,
    /// Memory that peers may write to.
    open: MemoryRegion,
    requests: Framer,
    msn: u32,
    /// Octets that have come from the responder.
    stream: Vec<u8>,
    deframer: Deframer,
}

impl End {
    fn new(negotiated: Negotiated, access: Access) -> Self {
        Self::on_path(None, negotiated, access)
    }

    fn on_path(mss: Option<u32>, negotiated: Negotiated, access: Access) -> Self {
        let rnic = Rnic::open().unwrap();
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
        let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
        let source = Arc::new(pd.allocate(LEN, access).unwrap());
        source.write(0, &octets()).unwrap();
        let open = pd.allocate(LEN, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
        open.write(0, &octets()).unwrap();
        let (socket, peer) = sockets(mss);
        // Nothing of its own accord.
        let options = ConnectOptions { nudge: false, ..Default::default() };
        let crc = negotiated.crc;
        qp.attach(socket, negotiated, &options, true).unwrap();
        let framing = Framing { crc, markers: false };
        let (requests, deframer) = (Framer::new(framing), Deframer::new(framing));
        End { peer, cq, qp, source, open, requests, msn: 0, stream: Vec::new(), deframer }
    }

    fn crc(crc: bool, access: Access) -> Self {
        Self::new(Negotiated { crc, ..negotiated() }, access)
    }

    /// Has the peer ask for so many octets, and the responder take the requests; then calls `f`
    /// before anything is sent.
    fn asked<T>(&mut self, sizes: &[usize], f: impl FnOnce(&QpInner, &mut Core) -> T) -> T {
        let source = self.source.remote(0);
        let requests: Vec<_> = sizes.iter().flat_map(|size| self.request(source, *size)).collect();
        self.asked_by(&requests, f)
    }

    /// Does what [`asked`](Self::asked) does with these requests.
    fn asked_by<T>(&mut self, requests: &[u8], f: impl FnOnce(&QpInner, &mut Core) -> T) -> T {
        let (peer, qp) = (&mut self.peer, self.qp.inner.anywhere());
        // No other thread makes progress meanwhile.
        qp.with_core(|qp, core| {
            peer.write_all(requests).unwrap();
            let deadline = Instant::now() + PATIENCE;
            while core.tally.of(Counter::OctetsReceived) < requests.len() as u64 {
                assert!(Instant::now() < deadline, "the requests are not taken");
                qp.pull(core);
            }
            f(qp, core)
        })
    }

    /// Returns the FPDU of a Read Request.
    fn request(&mut self, source: Remote, size: usize) -> Vec<u8> {
        self.msn += 1;
        let Remote { stag: src_stag, to: src_to } = source;
        let read =
            ReadRequestRepr { sink_stag: Stag(7), sink_to: 0, size: size as u32, src_stag, src_to }.octets();
        let header = rddp_rdmap::untagged_header(Opcode::ReadRequest, Stag(0), Msn(self.msn), 0, true);
        let mut octets = Vec::new();
        let fill = |at: usize, out: &mut [u8]| out.copy_from_slice(&read[at..at + out.len()]);
        self.requests.emit(header.octets().as_ref(), read.len(), fill, &mut octets);
        octets
    }

    /// Returns whether the Response to a Read of so many octets is lent.
    fn lends(&mut self, size: usize) -> bool {
        self.asked(&[size], |qp, core| {
            let (connection, mut cx) = core.split(&qp.attrs).unwrap();
            let (watch, link) = connection.parts();
            Outgoing::with_own(|out| {
                link.fill(&mut cx, out).unwrap();
                let lends = out.answers();
                assert_eq!(lends, link.promised() == 0, "lent or copied");
                // Lets go of the source.
                link.write(watch, &mut cx, out).unwrap();
                lends
            })
        })
    }

    /// Returns the next ULPDU that the responder has sent, once its CRC was checked.
    fn ulpdu(&mut self) -> Result<Vec<u8>, FpduError> {
        let mut chunk = vec![0; 1 << 16];
        loop {
            match self.deframer.step(&mut self.stream)? {
                Step::Fpdu { ulpdu, used, .. } => {
                    let octets = self.stream[ulpdu].to_vec();
                    self.stream.drain(..used);
                    return Ok(octets);
                }
                Step::Need { .. } => {
                    let count = self.peer.read(&mut chunk).unwrap();
                    assert!(count > 0, "the responder has closed");
                    self.stream.extend_from_slice(&chunk[..count]);
                }
            }
        }
    }

    /// Returns the payload of Responses of so many octets in all.
    fn payload(&mut self, len: usize) -> Result<Vec<u8>, FpduError> {
        let mut payload = Vec::new();
        while payload.len() < len {
            payload.extend_from_slice(&self.ulpdu()?[TaggedRepr::LEN..]);
        }
        Ok(payload)
    }
}

/// Returns the opcode of a ULPDU.
fn opcode(ulpdu: &[u8]) -> Option<Opcode> {
    Opcode::from_number(ulpdu[1] & 0xf)
}

fn octets() -> Vec<u8> {
    rddp_test_support::random_octets(5, LEN)
}

/// Each condition: no CRC or a stable source, no markers, more than is copied as fast.
#[test]
fn a_long_response_is_lent_where_its_crc_cannot_go_wrong() {
    let plain = Access::REMOTE_READ;
    for (crc, access, size, lent) in [
        (true, plain, 100_000, false),
        (true, STABLE, 100_000, true),
        (false, plain, 100_000, true),
        (false, STABLE, 100_000, true),
        (false, plain | Access::LOCAL_WRITE | Access::REMOTE_WRITE, 100_000, true),
        (true, STABLE, 2048, false),
        (true, STABLE, 2049, true),
        (false, plain, 0, false),
    ] {
        assert_eq!(End::crc(crc, access).lends(size), lent, "{crc} {access:?} {size}");
    }
    for crc in [true, false] {
        let marked = Negotiated { crc, markers_tx: true, ..negotiated() };
        assert!(!End::new(marked, STABLE).lends(100_000), "{crc}");
    }
}

/// RFC 5044 §5.1: a Response that is copied is cut to what is left of a segment, so that one write
/// has several segments, each of which begins with an FPDU.
#[test]
fn copied_responses_share_segments() {
    const MSS: usize = 1448;
    let mut end = End::on_path(Some(MSS as u32), negotiated(), Access::REMOTE_READ);
    let promised = end.asked(&[1000; 8], |qp, core| {
        let (connection, mut cx) = core.split(&qp.attrs).unwrap();
        let (watch, link) = connection.parts();
        Outgoing::with_own(|out| {
            link.fill(&mut cx, out).unwrap();
            let promised = link.promised();
            link.write(watch, &mut cx, out).unwrap();
            promised
        })
    });
    assert!(promised > 2 * MSS, "{promised}");
    end.qp.inner.anywhere().with_core(QpInner::pump);
    assert!(end.payload(8000).unwrap() == octets()[..1000].repeat(8));
}

/// Reads of all lengths, some copied and some lent, by a peer that is slow: TCP takes trains in
/// part.
#[test]
fn lent_responses_are_those_that_copying_makes() {
    let sizes = [3000, 100, LEN, 0, 70_000, 2048, 1 << 20, 1];
    let all: Vec<u8> = sizes.iter().flat_map(|size| octets()[..*size].to_vec()).collect();
    for crc in [true, false] {
        for large in [false, true] {
            let (mut lent, mut copied) = (End::crc(crc, STABLE), End::crc(true, Access::REMOTE_READ));
            for end in [&lent, &copied] {
                assert!(!large || end.qp.send_large_fpdus());
            }
            let mut sent = Vec::new();
            for end in [&mut lent, &mut copied] {
                end.asked(&sizes, QpInner::pump);
                assert!(end.payload(all.len()).unwrap() == all, "{crc} {large}");
                sent.push(end.qp.counters());
            }
            // Else TCP's segment size, which may change, decides.
            let counts = [0, 1].map(|at: usize| (sent[at].fpdus_sent, sent[at].octets_sent));
            assert!(!large || counts[0] == counts[1], "{counts:?}");
        }
    }
}

/// A train of lent Responses leaves this end's messages their turn: one goes before all of a long
/// Response has gone, and Responses go on behind it.
#[test]
fn messages_of_this_end_have_their_turn_between_lent_responses() {
    let mut end = End::crc(true, STABLE);
    // An FPDU each, and longer than a turn.
    let sizes = [20_000; 8];
    end.asked(&sizes, |qp, core| {
        core.sq.push(&SendWr::send_inline(1, &[9; 14]), qp.attrs.local_memory()).unwrap();
        qp.pump(core);
    });
    let opcodes: Vec<_> = (0..=sizes.len()).map(|_| opcode(&end.ulpdu().unwrap()).unwrap()).collect();
    let sends: Vec<_> = (0..opcodes.len()).filter(|at| opcodes[*at] == Opcode::Send).collect();
    assert_eq!(sends, [1], "{opcodes:?}");
    assert_eq!(end.cq.poll_one().map(|done| done.wr_id), Some(1));
}

/// RFC 5042 §6.2.2: a source is checked for each train; what was lent is let go of with the call,
/// and what TCP has begun does not depend on it.
#[test]
fn no_grant_outlives_the_call() {
    for crc in [true, false] {
        let mut end = End::crc(crc, STABLE);
        end.asked(&[LEN; 5], |qp, core| {
            let mut before = None;
            while before.replace(core.tally.of(Counter::OctetsSent))
                != Some(core.tally.of(Counter::OctetsSent))
            {
                qp.pump(core);
            }
            let (watch, link) = core.connection.as_mut().unwrap().parts();
            assert!(watch.is_blocked() && link.promised() <= MAX_ULPDU, "only the rest of an FPDU is kept");
        });
        // It would wait for a grant.
        end.source.deregister().unwrap();
        // The rest of the FPDU that TCP had begun, and then the Terminate.
        let all = octets().repeat(5);
        let mut wanted = &all[..];
        loop {
            let ulpdu = end.ulpdu().unwrap();
            if opcode(&ulpdu) == Some(Opcode::Terminate) {
                break;
            }
            let (now, later) = wanted.split_at(ulpdu.len() - TaggedRepr::LEN);
            assert!(*now == ulpdu[TaggedRepr::LEN..]);
            wanted = later;
        }
        assert!(wanted.len() < all.len(), "some of it had gone");
    }
}

/// A bad source ends the connection behind the Responses before it.
#[test]
fn a_bad_source_ends_the_connection_behind_the_good_ones() {
    let mut end = End::crc(true, STABLE);
    let sizes = [50_000, 60_000, LEN + 1];
    end.asked(&sizes, QpInner::pump);
    let payload = end.payload(110_000).unwrap();
    assert!(payload[..50_000] == octets()[..50_000] && payload[50_000..] == octets()[..60_000]);
    let deadline = Instant::now() + PATIENCE;
    while end.qp.terminate_sent().is_none() {
        assert!(Instant::now() < deadline, "no Terminate");
        end.cq.poll_one();
    }
    assert_eq!(end.qp.terminate_sent().unwrap().code, TerminateCode(0x0101));
}

/// RFC 5044 §4.4: a source that its owner calls stable, and that changes between the CRC and the
/// write, is found out by the peer.
#[test]
fn a_source_that_changes_arrives_with_a_wrong_crc() {
    for (crc, access, wrong) in [
        (true, STABLE, true),
        // Copied.
        (true, Access::REMOTE_READ, false),
    ] {
        let mut end = End::crc(crc, access);
        let source = end.source.clone();
        end.asked(&[100_000], |qp, core| {
            let (connection, mut cx) = core.split(&qp.attrs).unwrap();
            let (watch, link) = connection.parts();
            Outgoing::with_own(|out| {
                link.fill(&mut cx, out).unwrap();
                source.write(0, b"changed").unwrap();
                link.write(watch, &mut cx, out).unwrap();
            });
        });
        let payload = end.payload(100_000);
        assert_eq!(matches!(payload, Err(FpduError::Crc { .. })), wrong, "{payload:?}");
        assert!(wrong || payload.unwrap() == octets()[..100_000]);
    }
}

/// A Response from memory that others may change is copied, also behind one that is lent.
#[test]
fn a_train_of_lent_responses_ends_before_one_that_is_not() {
    let mut end = End::crc(true, STABLE);
    let [stable, open] = [end.source.remote(0), end.open.remote(0)];
    let requests = [(stable, 50_000), (open, 60_000), (stable, 50_000)];
    let requests: Vec<_> =
        requests.into_iter().flat_map(|(source, size)| end.request(source, size)).collect();
    let lent = end.asked_by(&requests, |qp, core| {
        let (connection, mut cx) = core.split(&qp.attrs).unwrap();
        let (watch, link) = connection.parts();
        Outgoing::with_own(|out| {
            link.fill(&mut cx, out).unwrap();
            let before = cx.tally.of(Counter::OctetsSent);
            link.write(watch, &mut cx, out).unwrap();
            cx.tally.of(Counter::OctetsSent) - before
        })
    });
    assert!((50_000..60_000).contains(&lent), "{lent}");
    end.qp.inner.anywhere().with_core(QpInner::pump);
    let all = [&octets()[..50_000], &octets()[..60_000], &octets()[..50_000]].concat();
    assert!(end.payload(all.len()).unwrap() == all);
}

/// The peer ends the connection by a Terminate about the CRC, and its Read never succeeds.
#[test]
fn a_changed_source_ends_the_connection_and_delivers_nothing() {
    let ends = [(); 2].map(|()| {
        let rnic = Rnic::open().unwrap();
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
        let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
        (pd, cq, qp)
    });
    let [(pd, _, responder), (reader_pd, reader_cq, reader)] = &ends;
    let source = pd.allocate(LEN, STABLE).unwrap();
    let sink = reader_pd.allocate(LEN, Access::LOCAL_WRITE).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = ConnectOptions { nudge: false, ..Default::default() };
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    responder.attach(listener.accept().unwrap().0, negotiated(), &options, false).unwrap();
    reader.attach(socket, negotiated(), &options, true).unwrap();
    responder.inner.anywhere().with_core(|qp, core| {
        reader.post_send(&SendWr::read(1, sink.sge(0..100_000), source.remote(0))).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while core.tally.of(Counter::FpdusReceived) == 0 {
            assert!(Instant::now() < deadline, "the request is not taken");
            qp.pull(core);
        }
        let (connection, mut cx) = core.split(&qp.attrs).unwrap();
        let (watch, link) = connection.parts();
        Outgoing::with_own(|out| {
            link.fill(&mut cx, out).unwrap();
            assert!(out.answers());
            source.write(0, b"changed").unwrap();
            link.write(watch, &mut cx, out).unwrap();
        });
    });
    assert!(reader_cq.wait(Some(PATIENCE)).unwrap(), "no completion came");
    let done = reader_cq.poll_one().unwrap();
    assert!(done.wr_id == 1 && done.status != Status::Success, "{done:?}");
    let deadline = Instant::now() + PATIENCE;
    while responder.terminate_received().is_none() {
        assert!(Instant::now() < deadline, "no Terminate came");
        std::thread::sleep(Duration::from_millis(1));
    }
    let crc = reader.terminate_sent().unwrap().code;
    // RFC 5044 §8: layer MPA, code 2.
    assert_eq!((crc, responder.terminate_received().unwrap().code), (TerminateCode(0x2002), crc));
}
